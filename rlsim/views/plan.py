"""A plan as text: the answer first, then what would change it, then the front."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlsim.plan.answer import Choice, Plan, why
from rlsim.scenario.schema import Scenario

PHASES = {"train": "update", "weight_sync": "weight sync", "logprob": "log-prob", "wait_rollout": "wait for rollout"}


def report(plan: Plan) -> RenderableType:
    """The whole answer."""
    if plan.best is None:
        return Group(Text("Nothing fits into memory on these GPUs."), _counts(plan))
    lines: list[RenderableType] = [_answer(plan, plan.best), *_others(plan, plan.best), Text("")]
    lines += [_front(plan), Text(""), *_curve(plan), _counts(plan)]
    return Group(*lines)


def _answer(plan: Plan, best: Choice) -> Text:
    text = Text()
    if not plan.met:
        text.append("Nothing tried meets the goal. The nearest: ", style="bold")
    text.append(f"Run {best.regime} on {best.gpus:,} GPUs", style="bold")
    text.append(f": {best.seconds:,.1f} s and ${best.usd:,.2f} a step.\n", style="bold")
    goal = plan.goal
    if goal.steps is not None:
        days = best.seconds * goal.steps / 86400
        text.append(f"{goal.steps:,} steps take {days:,.2f} days and ${best.usd * goal.steps:,.0f}.\n")
    text.append(f"  trainer  {trainer(best.scenario)}\n")
    text.append(f"  rollout  {rollout(best.scenario)}\n")
    if best.scenario.weight_sync.strategy != "auto":
        text.append(f"  weight sync by {best.scenario.weight_sync.strategy}\n")
    text.append(f"  {_staleness(best)}\n")
    memory = best.summary["memory_gib"]
    text.append(
        f"  It fits: {memory['trainer_peak']:.0f} GiB of a GPU at the trainer's peak, "
        f"{memory['rollout_peak']:.0f} GiB at the engine's.\n"
    )
    text.append(f"  {best.summary['bottleneck']}")
    return text


def trainer(scenario: Scenario) -> str:
    """ "512 GPUs, megatron tp 4, pp 16, ep 32, recompute full"."""
    t = scenario.trainer
    sizes = [
        f"{name} {getattr(t, name)}" for name in ("tp", "pp", "vpp", "cp", "ep", "ulysses") if getattr(t, name) > 1
    ]
    if t.ep > 1 and t.etp is not None:
        sizes.append(f"etp {t.etp}")
    if t.backend == "fsdp2":
        sizes.append(f"fsdp_size {t.fsdp_size}" if t.fsdp_size else "sharded over all")
        sizes += [] if t.reshard_after_forward else ["no reshard after forward"]
    if t.backend == "zero":
        sizes.append(f"stage {t.zero_stage}")
    tokens = f"{t.micro_batch_tokens:,} tokens" if t.micro_batch_tokens else f"{t.micro_batch_size} samples"
    return f"{t.gpus:,} GPUs, {t.backend} {', '.join(sizes)}, recompute {t.recompute}, micro-batch {tokens}"


def rollout(scenario: Scenario) -> str:
    """ "512 GPUs, 16 sglang engines of 32: attn_tp 1, attn_dp 32, moe_ep 32, …"."""
    r = scenario.rollout[0]
    sizes = [f"{n} {getattr(r, n)}" for n in ("pp", "attn_tp", "attn_dp", "moe_tp", "moe_ep") if getattr(r, n) > 1]
    geometry = ", ".join([*sizes, r.dtype, f"max_num_seqs {r.max_num_seqs}", f"memory {r.memory_utilization:g}"])
    count = r.gpus // r.gpus_per_engine
    return f"{r.gpus:,} GPUs, {count:,} {r.engine} engine{'s' * (count > 1)} of {r.gpus_per_engine}: {geometry}"


def _staleness(choice: Choice) -> str:
    if choice.staleness == 0:
        return "On-policy: every sample is trained on by the policy that made it."
    mean = choice.summary["staleness"]["mean"]
    late = f"samples may be {choice.staleness:g} versions old (mean {mean:.1f})"
    return f"Off-policy: {late}; whether learning bears it is yours to say."


def _others(plan: Plan, best: Choice) -> Iterator[Text]:
    """What else one could run, and what it would take to prefer it."""
    yield Text("\nWhat would change this", style="bold")
    other = plan.best_other_placement
    if other is not None:
        yield _beside(f"the other placement, {other.regime}", best, other)
    fresh = plan.best_by_policy(True)
    if best.staleness > 0 and fresh is not None and fresh is not other:
        yield _beside(f"on-policy, {fresh.regime}", best, fresh)
    stale = plan.best_by_policy(False)
    if best.staleness == 0 and stale is not None and stale is not other:
        yield _beside(f"off-policy, {stale.regime}", best, stale)
    low, high = best.summary["prediction_interval_s"]["p10"], best.summary["prediction_interval_s"]["p90"]
    near = [c.regime for c in plan.choices if c is not best and c.gpus == best.gpus and low <= c.seconds <= high]
    yield Text(f"  the prediction's 80% interval is {low:,.1f} to {high:,.1f} s" + _within(near))


def _within(near: list[str]) -> str:
    return f"; inside it: {', '.join(near)}: measure both before you decide" if near else ""


def _beside(label: str, best: Choice, other: Choice) -> Text:
    more = [f"{PHASES.get(name, name)} {seconds:+,.1f} s" for name, seconds in why(best, other)[:4]]
    where = "" if other.gpus == best.gpus else f" on {other.gpus:,} GPUs"
    factor = other.seconds / best.seconds
    return Text(
        f"  {label}{where}: {other.seconds:,.1f} s, ${other.usd:,.2f} a step ({factor:.2f}x): {', '.join(more)}\n"
        f"    trainer {trainer(other.scenario)}\n    rollout {rollout(other.scenario)}"
    )


def _front(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", title="Best of each regime (* on the Pareto front)")
    table.title_justify, table.title_style = "left", "bold"
    for column in ("GPUs", "regime", "s/step", "$/step", "staleness", "split"):
        table.add_column(column, justify="left" if column in ("regime", "split") else "right")
    for choice in sorted(plan.choices, key=lambda c: (c.gpus, c.seconds)):
        split = "shared"
        if choice.placement == "disaggregated":
            split = f"{choice.scenario.trainer.gpus:,} + {choice.scenario.rollout[0].gpus:,}"
        star = "*" if choice in plan.pareto else " "
        late = f"{choice.summary['staleness']['mean']:.1f} of {choice.staleness:g}"
        figures = (f"{choice.seconds:,.1f}", f"{choice.usd:,.2f}", late, split)
        table.add_row(f"{choice.gpus:,}", f"{star} {choice.regime}", *figures)
    return table


def _curve(plan: Plan) -> Iterator[Text]:
    knee = plan.knee
    if knee is not None:
        points = ", ".join(f"{c.gpus:,}: {c.seconds:,.1f} s" for c in plan.curve)
        yield Text(
            f"GPUs to step time: {points}\nknee at {knee:,} GPUs: beyond, more than half of what is added is lost\n"
        )


def _counts(plan: Plan) -> Text:
    count = plan.count
    text = (
        f"{count.candidates:,} candidates in {plan.seconds:.0f} s: {count.infeasible:,} do not fit, "
        f"{count.pruned:,} cannot win (their bound says so), {count.simulated:,} simulated ({plan.steps} steps each)"
    )
    if count.undecided:
        left = ", ".join(f"{name} {number:,}" for name, number in plan.undecided.items())
        text += f"\nnot excluded, and not simulated for lack of time: {left}; --simulations takes more of the likeliest"
    return Text(text)
