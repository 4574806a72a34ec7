"""`rlsim check`: the layout that was understood, and the memory of every role, before anything is simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlsim.api import Check
from rlsim.roles import ROLES, has_role, own_gpus, role_system
from rlsim.system import RolloutPart

GIB = 2**30


def report(checks: Sequence[Check]) -> RenderableType:
    """One block per variant: layout, memory by role, how many sequences fit, what is inert."""
    return Group(*[_block(c) for c in checks])


def as_dict(check: Check) -> dict[str, Any]:
    """The same for `--json`."""
    memory = check.memory
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
        "kv_tokens_per_engine": memory.kv_tokens_per_engine,
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
    parts.append(
        Text(
            f"  an engine holds {memory.kv_tokens_per_engine:,.0f} KV tokens: "
            f"{memory.fits_average_sequences:,.0f} average or {memory.fits_longest_sequences:,.0f} longest sequences"
        )
    )
    for p in memory.problems:
        parts.append(Text(f"  {p.role}: needs {p.need / GIB:.1f} GiB, has {p.have / GIB:.1f} GiB; {p.by}", style="red"))
        parts.append(Text(f"  nearest change: {p.fix}"))
    parts += [Text(f"  inert here: {block}", style="dim") for block in check.inert]
    return Group(*parts, Text(""))


def _layout(check: Check) -> str:
    train = check.system.trainer
    trainer = f"trainer {train.gpus} GPUs {train.backend}: tp {train.tp}, pp {train.pp}, cp {train.cp}, "
    trainer += f"ep {train.ep}, dp {train.dp}"
    engines = "; ".join(_engines(p) for p in check.system.rollout)
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


def _engines(part: RolloutPart) -> str:
    layout = part.layout
    return (
        f"{layout.engines} {part.entry.engine} engines of {layout.gpus_per_engine} GPUs: attention tp {layout.attn_tp} "
        f"x dp {layout.attn_dp}, moe tp {layout.moe_tp} x ep {layout.moe_ep}, pp {layout.pp}"
    )


def _memory(check: Check) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 2), header_style="bold")
    for name in ("GiB", "by role at the peak", "peak"):
        table.add_column(name, justify="right" if name == "peak" else "left")
    memory = check.memory
    for side, breakdown in (
        ("trainer/GPU", memory.trainer),
        ("rollout/GPU", memory.rollout),
        *((f"{name}/GPU", breakdown) for name, breakdown in memory.roles.items()),
        ("host/node", memory.host),
    ):
        roles = ", ".join(f"{role} {size / GIB:.1f}" for role, size in breakdown.parts.items() if size > 0.05 * GIB)
        table.add_row(side, roles or "-", f"{sum(breakdown.parts.values()) / GIB:.1f}")
    return table
