"""What has to divide what in the trainer: small checks, each naming the key and the nearest right values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsim.divisors import divisors, nearest
from rlsim.model import ModelSpec

if TYPE_CHECKING:
    from rlsim.scenario.schema import Scenario


def check_trainer(scenario: Scenario, model: ModelSpec, etp: int) -> None:
    """All checks of the trainer's layout."""
    check_backend(scenario)
    check_trainer_gpus(scenario)
    check_trainer_heads(scenario, model)
    check_mlp(scenario, model, etp)
    check_experts(scenario, model, etp)
    check_ulysses(scenario, model)
    check_fsdp_size(scenario)
    check_sequence_parallel(scenario)
    train_stage_sizes(scenario, model.num_layers)


def check_backend(scenario: Scenario) -> None:
    """Parallelisms that a backend does not have."""
    t = scenario.trainer
    absent = {
        "megatron": {"ulysses": "cp"},
        "fsdp2": {},
        "zero": {"pp": "tp", "vpp": "tp", "cp": "ulysses", "ep": "tp"},
    }[t.backend]
    for key, instead in absent.items():
        if getattr(t, key) > 1:
            raise scenario.error(
                f"trainer.{key}",
                f"backend {t.backend} has no {key}",
                f"{instead} instead, or another backend",
            )
    if t.vpp > 1 and t.pp == 1:
        raise scenario.error(
            "trainer.vpp", "virtual stages need a pipeline, and pp is 1", "vpp: 1, or pp of 2 and more"
        )


def check_trainer_gpus(scenario: Scenario) -> None:
    """TP·PP·CP·Ulysses divides the trainer's GPUs."""
    t = scenario.trainer
    sizes = {"tp": t.tp, "pp": t.pp, "cp": t.cp, "ulysses": t.ulysses}
    used = {name: size for name, size in sizes.items() if size > 1}
    product = t.tp * t.pp * t.cp * t.ulysses
    if t.gpus % product == 0:
        return
    text = " · ".join(f"{name} {size}" for name, size in used.items())
    around = sorted({max(product, t.gpus // product * product), -(-t.gpus // product) * product})
    largest = max(used, key=lambda name: used[name])
    others = product // used[largest]
    change = ""
    if t.gpus % others == 0:
        change = f"; or {largest} of {nearest(used[largest], divisors(t.gpus // others))}"
    raise scenario.error(
        "trainer.gpus",
        f"{text} = {product} GPUs per replica do not divide {t.gpus} trainer GPUs",
        f"gpus of {' or '.join(str(a) for a in around)}{change}",
    )


def check_trainer_heads(scenario: Scenario, model: ModelSpec) -> None:
    """TP divides the query heads, and the KV heads or (not FSDP2) is a multiple of them."""
    t, a = scenario.trainer, model.attention
    kv_split = a.kind == "mla" or a.kv_heads % t.tp == 0 or (t.backend != "fsdp2" and t.tp % a.kv_heads == 0)
    if a.heads % t.tp == 0 and kv_split:
        return
    allowed = [
        d
        for d in divisors(a.heads)
        if a.kind == "mla" or a.kv_heads % d == 0 or (t.backend != "fsdp2" and d % a.kv_heads == 0)
    ]
    heads = f"{a.heads} query heads" if a.heads % t.tp else f"{a.kv_heads} KV heads"
    raise scenario.error(
        "trainer.tp",
        f"tp {t.tp} does not divide the {heads} of {model.name}",
        f"tp of {nearest(t.tp, allowed)}",
    )


def check_mlp(scenario: Scenario, model: ModelSpec, etp: int) -> None:
    """TP divides the width of dense MLPs and shared experts, ETP that of the experts."""
    t, e = scenario.trainer, model.experts
    widths = {}
    if any(not layer.moe for layer in model.layers):
        widths["MLP width"] = model.intermediate
    if e is not None and e.shared_intermediate:
        widths["shared expert width"] = e.shared_intermediate
    for what, width in widths.items():
        if width % t.tp:
            allowed = [d for d in divisors(model.attention.heads) if width % d == 0]
            raise scenario.error(
                "trainer.tp",
                f"tp {t.tp} does not divide the {what} {width} of {model.name}",
                f"tp of {nearest(t.tp, allowed)}",
            )
    if e is not None and e.intermediate % etp:
        raise scenario.error(
            "trainer.etp",
            f"etp {etp} does not divide the expert width {e.intermediate} of {model.name}",
            f"etp of {nearest(etp, divisors(e.intermediate, 64))}",
        )


def check_experts(scenario: Scenario, model: ModelSpec, etp: int) -> None:
    """EP divides the experts, and ETP·EP·PP the GPUs."""
    t, e = scenario.trainer, model.experts
    if e is None:
        if t.ep > 1:
            raise scenario.error("trainer.ep", f"{model.name} has no experts to spread over ep {t.ep}", "ep: 1")
        return
    if e.count % t.ep:
        raise scenario.error(
            "trainer.ep",
            f"ep {t.ep} does not divide the {e.count} experts of {model.name}",
            f"ep of {nearest(t.ep, divisors(e.count))}",
        )
    product = etp * t.ep * t.pp
    if t.gpus % product:
        room = t.gpus // t.pp
        allowed = [d for d in divisors(e.count) if room % (d * etp) == 0]
        lower = f", or etp: 1 (it is {etp}, by default tp)" if etp > 1 else ""
        raise scenario.error(
            "trainer.ep",
            f"etp {etp} · ep {t.ep} · pp {t.pp} = {product} do not divide {t.gpus} trainer GPUs",
            f"ep of {nearest(t.ep, allowed)}{lower}",
        )


def check_ulysses(scenario: Scenario, model: ModelSpec) -> None:
    """Ulysses deals heads to ranks: it divides the query heads, and the KV heads or is a multiple of them."""
    t, a = scenario.trainer, model.attention

    def right(size: int) -> bool:
        split = size * t.tp
        kv = max(1, a.kv_heads // t.tp)
        return a.heads % split == 0 and (a.kind == "mla" or kv % size == 0 or size % kv == 0)

    if t.ulysses > 1 and not right(t.ulysses):
        raise scenario.error(
            "trainer.ulysses",
            f"ulysses {t.ulysses} does not deal {a.heads} query and {a.kv_heads} KV heads evenly",
            f"ulysses of {nearest(t.ulysses, [d for d in divisors(a.heads) if right(d)])}",
        )


def check_fsdp_size(scenario: Scenario) -> None:
    """The FSDP shard group divides the ranks of one TP slice."""
    t = scenario.trainer
    ranks = t.gpus // (t.tp * t.pp)
    if t.backend == "fsdp2" and t.fsdp_size is not None and ranks % t.fsdp_size:
        raise scenario.error(
            "trainer.fsdp_size",
            f"fsdp_size {t.fsdp_size} does not divide the {ranks} ranks of one copy of the model",
            f"fsdp_size of {nearest(t.fsdp_size, divisors(ranks))}",
        )


def check_sequence_parallel(scenario: Scenario) -> None:
    """Megatron's MoE layer with TP and EP needs sequence parallelism."""
    t = scenario.trainer
    if t.backend == "megatron" and t.sequence_parallel is False and t.tp > 1 and t.ep > 1:
        raise scenario.error(
            "trainer.sequence_parallel",
            f"tp {t.tp} with ep {t.ep} needs sequence parallelism",
            "sequence_parallel: true, or tp: 1",
        )


def train_stage_sizes(scenario: Scenario, layers: int) -> tuple[int, ...]:
    """Layers per pipeline stage (pp of them), or per chunk (pp·vpp, chunk after chunk) where the file lists
    those.

    Even: L/P. First and last given: the others share the rest. Each stage is split over its vpp chunks.
    """
    t, given = scenario.trainer, scenario.trainer.pp_layers
    if isinstance(given, tuple):
        sizes = given
        if len(sizes) not in {t.pp, t.pp * t.vpp} or sum(sizes) != layers:
            raise scenario.error(
                "trainer.pp_layers",
                f"{len(sizes)} stages with {sum(sizes)} layers, but pp is {t.pp} and there are {layers} layers",
                f"{t.pp} numbers that add up to {layers}",
            )
        if len(sizes) == t.pp * t.vpp:
            return sizes
    elif given is not None and (given.first is not None or given.last is not None):
        sizes = _ends(scenario, layers, given.first, given.last)
    elif layers % t.pp:
        raise scenario.error(
            "trainer.pp",
            f"pp {t.pp} does not divide {layers} layers",
            f"pp of {nearest(t.pp, divisors(layers))}, or {_uneven(layers, t.pp)}",
        )
    else:
        sizes = (layers // t.pp,) * t.pp
    if any(size % t.vpp for size in sizes):
        common = [d for d in range(1, max(sizes) + 1) if all(size % d == 0 for size in sizes)]
        raise scenario.error(
            "trainer.vpp",
            f"vpp {t.vpp} does not divide the layers of each stage ({_listed(sizes)})",
            f"vpp of {nearest(t.vpp, common)}",
        )
    return sizes


def _ends(scenario: Scenario, layers: int, first: int | None, last: int | None) -> tuple[int, ...]:
    pp = scenario.trainer.pp
    ends = [end for end in (first, last) if end is not None]
    between = pp - len(ends)
    rest = layers - sum(ends)
    fits = rest >= 0 and (rest % between == 0 if between > 0 else between == 0 and rest == 0)
    if not fits:
        raise scenario.error(
            "trainer.pp_layers",
            f"{rest} layers are left for {between} stages"
            if between > 0
            else f"pp {pp} leaves {rest} of {layers} layers",
            _uneven(layers, pp),
        )
    middle = (rest // between,) * between if between > 0 else ()
    head = () if first is None else (first,)
    tail = () if last is None else (last,)
    return head + middle + tail


def _uneven(layers: int, pp: int) -> str:
    """First and last stage that make uneven stages add up: 61 over 16 is first 3, 4 in between, last 2."""
    if pp < 3:
        return f"pp_layers: [{_listed((layers - layers // 2, layers // 2))}]" if pp == 2 else "pp: 1"
    for middle in range(-(-layers // pp), 0, -1):
        rest = layers - middle * (pp - 2)
        if rest >= 2:
            return f"pp_layers: {{first: {rest - rest // 2}, last: {rest // 2}}}"
    return f"pp of at most {layers}"


def _listed(sizes: tuple[int, ...]) -> str:
    return ", ".join(str(size) for size in sizes)
