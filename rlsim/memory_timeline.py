"""Memory of all roles on one GPU over the whole step: what lies there in each phase, and where the peak is.

The bytes are the memory model's (`memory`), the phases and their order those that the simulation recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlsim.memory import asleep_bytes, process_parts
from rlsim.memory_report import GIB, MemoryReport
from rlsim.memory_roles import STATES, critic_beside, staying_parts
from rlsim.memory_trainer import master_share, resident_states
from rlsim.roles import role_system, shares_trainer

if TYPE_CHECKING:
    from rlsim.sim.recorder import Step
    from rlsim.system import System

Parts = Mapping[str, float]
ENGINE = {"weights": "engine weights", "activation peak": "engine activations"}
MOMENTS = {"logprob": "logprob", "reference": "reference", "train": "train", "weight_sync": "weight sync"}
CRITIC = {"logprob": "critic values", "train": "critic update", "onload": "critic onload", "offload": "critic offload"}


@dataclass(frozen=True)
class Occupancy:
    """One GPU of a role, the fullest, in every state that the step has.

    role    shared (trainer and rollout, co-located), trainer, rollout, critic, reference, reward model
    hbm     bytes that the GPU has
    states  state -> part -> bytes, in the order of the step; a role that does one thing has one
    cause   what makes the peak
    """

    role: str
    hbm: float
    states: Mapping[str, Parts]
    cause: str

    @property
    def peak(self) -> str:
        """The state with most bytes."""
        return max(self.states, key=lambda state: sum(self.states[state].values()))


def occupancies(system: System, report: MemoryReport) -> tuple[Occupancy, ...]:
    """All roles: the shared GPU, or trainer and rollout; then models with GPUs of their own."""
    hbm = system.trainer_pool.gpu.hbm_bytes
    if system.colocated:
        found = [_occupancy("shared", hbm, _shared_states(system, report), report)]
    else:
        found = [_occupancy("trainer", hbm, _trainer_states(system, report), report)]
        engine, part = min(
            zip(report.engines, system.rollout, strict=True), key=lambda pair: pair[0].kv_tokens_per_rank
        )
        states = {"rollout": _renamed(engine.breakdown.parts, ENGINE)}
        found.append(Occupancy("rollout", part.pool.gpu.hbm_bytes, states, engine.breakdown.cause))
    for name, own in report.roles.items():
        role = role_system(system, name.replace(" ", "_"))
        parts = _adam(role, {f"{name} {r}" if r in STATES else r: size for r, size in own.parts.items()})
        found.append(Occupancy(name, role.trainer_pool.gpu.hbm_bytes, {own.moment: parts}, own.cause))
    return tuple(found)


def _occupancy(role: str, hbm: float, states: dict[str, Parts], report: MemoryReport) -> Occupancy:
    found = Occupancy(role, hbm, states, "")
    moment = report.moments.get(found.peak)
    peak = states[found.peak]
    return Occupancy(role, hbm, states, moment.cause if moment else max(peak, key=lambda part: peak[part]))


def _trainer_states(system: System, report: MemoryReport) -> dict[str, Parts]:
    """A trainer's own GPU: its states all the time, and what each pass adds."""
    idle = _together(_policy(system, _resident(system)), critic_beside(system), process_parts(system))
    return {"idle": idle, **_passes(system, report)}


def _shared_states(system: System, report: MemoryReport) -> dict[str, Parts]:
    """A shared GPU from one update to the next."""
    asleep = {"engine asleep": asleep_bytes(system)}
    process, stays = process_parts(system), staying_parts(system)
    beside = _together(_policy(system, stays), critic_beside(system), process)
    working = _together(_policy(system, _resident(system)), critic_beside(system), process, asleep)
    sync, rollout = ({**report.moments[name].parts} for name in ("weight sync", "rollout"))
    sync.pop("trainer resident")
    rollout.pop("trainer resident", None)
    without = {role: size for role, size in stays.items() if role != "weights"}
    states: dict[str, Parts] = {
        "offload": working,
        "weight sync": _together(sync, _policy(system, without), critic_beside(system), process),
        "rollout": _together(_renamed(rollout, ENGINE), beside),
        "idle": _together(beside, asleep),
    }
    if shares_trainer(system.scenario, "critic"):
        critic = role_system(system, "critic")
        own = _adam(critic, {f"critic {role}": size for role, size in _resident(critic).items()})
        switching = _together(own, _policy(system, stays), process, asleep)
        states |= {"critic onload": switching, "critic offload": switching}
    return {**states, "onload": working, **_passes(system, report)}


def _passes(system: System, report: MemoryReport) -> dict[str, Parts]:
    """States of the trainer's passes and of the roles that take turns with it."""
    found: dict[str, Parts] = {}
    stays = _policy(system, staying_parts(system))
    for name in ("reward", "critic values", "critic update", "logprob", "reference", "train"):
        if name not in report.moments:
            continue
        parts = {role: size for role, size in report.moments[name].parts.items() if role != "policy"}
        if name in ("logprob", "reference", "train"):
            found[name] = _policy(system, parts)
        else:
            owner = role_system(system, "reward_model" if name == "reward" else "critic")
            found[name] = _together(_adam(owner, parts), stays)
    return found


def _resident(system: System) -> dict[str, float]:
    """States of the fullest stage that lie on the GPU while the trainer works."""
    stages = [resident_states(system, stage) for stage in range(system.trainer.pp)]
    return max(stages, key=lambda parts: sum(parts.values()))


def _policy(system: System, parts: Parts) -> dict[str, float]:
    """Parts of the trainer by their names on a GPU that several roles use."""
    return _adam(system, _renamed(parts, {"weights": "trainer weights"}))


def _adam(system: System, parts: Parts) -> dict[str, float]:
    """Optimizer states as fp32 master weights and two moments: 4 + 8 bytes of 12; fp32 storage is its own master."""
    master = master_share(system)
    named: dict[str, float] = {}
    for role, size in parts.items():
        prefix = role.removesuffix("optimizer states")
        if prefix == role:
            named[role] = size
        else:
            named |= {f"{prefix}master weights": size * master, f"{prefix}moments": size * (1 - master)}
    return {role: size for role, size in named.items() if size > 0}


def _renamed(parts: Parts, names: Mapping[str, str]) -> dict[str, float]:
    return {names.get(role, role): size for role, size in parts.items()}


def _together(*all_parts: Parts) -> dict[str, float]:
    """Parts side by side; the same part of two processes counts twice."""
    total: dict[str, float] = {}
    for parts in all_parts:
        for role, size in parts.items():
            total[role] = total.get(role, 0.0) + size
    return {role: size for role, size in total.items() if size > 0}


# Over time ----------


def state_of(label: str, track: str | None, states: Mapping[str, Parts]) -> str:
    """The state of the trainer group's GPU under a label of its clock; waiting and the controller are idle."""
    if track == "critic":
        name = CRITIC.get(label, "idle")
    elif label == "reward":
        name = "reward" if track is not None else "idle"
    else:
        name = MOMENTS.get(label, label)
    return name if name in states else "idle"


def timeline(occupancies: Sequence[Occupancy], step: Step) -> list[dict[str, Any]]:
    """Rows {role, phase, start, end, parts_gib} of one step, seconds from its start; each role's follow each other."""
    rows: list[dict[str, Any]] = []
    for role in occupancies:
        if role.role not in ("shared", "trainer"):
            rows.append(_row(role, role.peak, 0.0, step.seconds))
            continue
        mine: list[dict[str, Any]] = []
        for label, track, start, end in step.segments:
            state = state_of(label, track, role.states)
            if mine and mine[-1]["phase"] == state:
                mine[-1]["end"] = end - step.start
            else:
                mine.append(_row(role, state, start - step.start, end - step.start))
        rows += mine
    return rows


def peaks(occupancies: Sequence[Occupancy]) -> list[dict[str, Any]]:
    """The fullest moment of each role: {role, gib, hbm_gib, moment, cause}."""
    return [
        {
            "role": role.role,
            "gib": sum(role.states[role.peak].values()) / GIB,
            "hbm_gib": role.hbm / GIB,
            "moment": role.peak,
            "cause": role.cause,
        }
        for role in occupancies
    ]


def _row(role: Occupancy, state: str, start: float, end: float) -> dict[str, Any]:
    parts = {part: size / GIB for part, size in role.states[state].items()}
    return {"role": role.role, "phase": state, "start": start, "end": end, "parts_gib": parts}
