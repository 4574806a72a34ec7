"""`rlsim check`: the layout that was understood, and the memory of every role, before anything is simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlsim.api import Check
from rlsim.costs.checkpoint import checkpoint_cost
from rlsim.costs.offload import switch_cost
from rlsim.costs.offload_report import OffloadReport, offload_report
from rlsim.memory_report import Breakdown
from rlsim.memory_timeline import occupancies, peaks
from rlsim.roles import ROLES, has_role, own_gpus, role_system
from rlsim.system import Pool, RolloutPart
from rlsim.views.memory import check_lines, ledger_lines

GIB = 2**30


def report(checks: Sequence[Check]) -> RenderableType:
    """One block per variant: layout, memory by role, how many sequences fit, what is inert."""
    return Group(*[_block(c) for c in checks])


def as_dict(check: Check) -> dict[str, Any]:
    """The same for `--json`."""
    memory, ledger = check.memory, _offload(check)
    sides = {"trainer": memory.trainer, "rollout": memory.rollout, "host": memory.host, **memory.roles}
    return {
        "name": check.scenario.name,
        "variant": check.scenario.variant,
        "feasible": check.feasible,
        "problems": [
            {"role": p.role, "need_gib": p.need / GIB, "have_gib": p.have / GIB, "by": p.by, "fix": p.fix}
            for p in memory.problems
        ],
        "memory_gib": {side: {role: b / GIB for role, b in d.parts.items()} for side, d in sides.items()},
        "memory_states_gib": {
            role.role: {state: {part: b / GIB for part, b in parts.items()} for state, parts in role.states.items()}
            for role in occupancies(check.system, memory)
        },
        "memory_peak": peaks(occupancies(check.system, memory)),
        "offload_ledger": ledger.as_dict() if ledger is not None else None,
        "kv_tokens_per_engine": memory.kv_tokens_per_engine,
        "engines": [
            {"pool": part.pool.name, "gpu": part.pool.gpu.name, "kv_tokens_per_engine": engine.kv_tokens_per_engine}
            for part, engine in zip(check.system.rollout, memory.engines, strict=True)
        ],
        "inert": list(check.inert),
    }


def _block(check: Check) -> RenderableType:
    scenario = check.scenario
    verdict = Text("fits", style="bold green") if check.feasible else Text("does not fit", style="bold red")
    parts: list[RenderableType] = [
        Text.assemble((f"{scenario.name} / {scenario.variant}: ", "bold"), verdict),
        Text(f"  {_layout(check)}"),
        _memory(check),
    ]
    memory = check.memory
    for i, engine in enumerate(memory.engines):
        who = "an engine" if len(memory.engines) == 1 else f"an engine of rollout[{i}]"
        parts.append(
            Text(
                f"  {who} holds {engine.kv_tokens_per_engine:,.0f} KV tokens: "
                f"{engine.average_sequences:,.0f} average or {engine.longest_sequences:,.0f} longest sequences"
            )
        )
    if scenario.run.checkpoint_every:
        parts.append(Text(f"  {_checkpoint(check)}"))
    roles = occupancies(check.system, memory)
    parts += [Text(f"  over the step, {line}") for line in check_lines(roles, peaks(roles))]
    parts += [Text(f"  {line}") for line in _ledger(check)]
    for p in memory.problems:
        parts.append(Text(f"  {p.role}: needs {p.need / GIB:.1f} GiB, has {p.have / GIB:.1f} GiB; {p.by}", style="red"))
        parts.append(Text(f"  nearest change: {p.fix}"))
    parts += [Text(f"  inert here: {block}", style="dim") for block in check.inert]
    return Group(*parts, Text(""))


def _offload(check: Check) -> OffloadReport | None:
    return offload_report(check.system, switch_cost(check.system), None)


def _ledger(check: Check) -> list[str]:
    report = _offload(check)
    return [] if report is None else ledger_lines(report.as_dict())


def _checkpoint(check: Check) -> str:
    """Size and seconds of a checkpoint."""
    cost = checkpoint_cost(check.system)
    told = f"a checkpoint is {cost.bytes_total / 1e9:,.0f} GB, {cost.bytes_rank / 1e9:.1f} GB of the busiest rank; "
    told += f"{cost.mode}: the trainer stands still for {cost.blocking_seconds:.1f} s"
    return told + (f", safe {cost.background_seconds:.0f} s later" if cost.background_seconds else "")


def _layout(check: Check) -> str:
    train = check.system.trainer
    trainer = f"trainer {train.gpus} GPUs{_on(check, check.system.trainer_pool)} {train.backend}: "
    trainer += f"tp {train.tp}, pp {train.pp}, cp {train.cp}, "
    trainer += f"ep {train.ep}, dp {train.dp}"
    engines = "; ".join(_engines(p, _on(check, p.pool)) for p in check.system.rollout)
    return "; ".join([trainer, engines, *_roles(check)])


def _roles(check: Check) -> list[str]:
    """Models besides the policy that the step needs, and where they are."""
    told = []
    for name in ROLES:
        if not has_role(check.scenario, name):
            continue
        gpus, spoken = own_gpus(check.scenario, name), name.replace("_", " ")
        layout = role_system(check.system, name).trainer
        own = f"{gpus} GPUs of its own: tp {layout.tp}, pp {layout.pp}, {layout.dp} replicas"
        told.append(f"{spoken} with {own if gpus else 'the GPUs of the trainer'}")
    return told


def _on(check: Check, pool: Pool) -> str:
    """Which pool, where there are several."""
    return f" of {pool.name} ({pool.gpu.name})" if check.scenario.cluster.pools else ""


def _engines(part: RolloutPart, where: str) -> str:
    layout = part.layout
    return (
        f"{layout.engines} {part.entry.engine} engines of {layout.gpus_per_engine} GPUs{where}: "
        f"attention tp {layout.attn_tp} x dp {layout.attn_dp}, "
        f"moe tp {layout.moe_tp} x ep {layout.moe_ep}, pp {layout.pp}"
    )


def _rollout_rows(check: Check) -> list[tuple[str, Breakdown]]:
    """The busiest rollout GPU at its peak; with several entries, one of each while it generates."""
    memory = check.memory
    if len(memory.engines) == 1:
        return [("rollout/GPU", memory.rollout)]
    return [(f"rollout[{i}]/GPU", engine.breakdown) for i, engine in enumerate(memory.engines)]


def _memory(check: Check) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 2), header_style="bold")
    for name in ("GiB", "by role at the peak", "peak"):
        table.add_column(name, justify="right" if name == "peak" else "left")
    memory = check.memory
    for side, breakdown in (
        ("trainer/GPU", memory.trainer),
        *_rollout_rows(check),
        *((f"{name}/GPU", breakdown) for name, breakdown in memory.roles.items()),
        ("host/node", memory.host),
    ):
        roles = ", ".join(f"{role} {size / GIB:.1f}" for role, size in breakdown.parts.items() if size > 0.05 * GIB)
        table.add_row(side, roles or "-", f"{sum(breakdown.parts.values()) / GIB:.1f}")
    return table
