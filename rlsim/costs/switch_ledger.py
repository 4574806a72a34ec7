"""The ledger of a switch between training and rollout: what leaves and enters the GPU, and how long it takes.

The ledger is by role. A role is moved over the host link, or only mapped and unmapped (its contents are
worthless by then: gradients, the KV cache, weights that the next sync brings anyway).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rlsim.catalog.switch_orders import SwitchOrder

FULL_NODE = 8
"""GPUs of the nodes that the rates of copies were seen on."""
LINK_SHARE = 0.8
"""Share of a host link's rate that large pinned copies reach when nothing else runs."""


@dataclass(frozen=True)
class HostLink:
    """Path between a GPU and its host.

    rate: bytes/s of the link, one direction (datasheet). pinned, pageable: bytes/s that copies reach with all GPUs of a
    node of eight at work. process: bytes/s of one process's pageable copies when it is alone. node: bytes/s of the
    node's memory for all its `gpus` together. map_per_byte: s/B to map or unmap. pinned_alloc:
    bytes/s of freshly page-locked memory. fixed: seconds of one switch whatever moves.
    """

    rate: float
    pinned: float
    pageable: float
    process: float
    node: float
    gpus: int
    map_per_byte: float
    pinned_alloc: float
    fixed: float

    def copy_rate(self, pinned: bool) -> float:
        """bytes/s per GPU with all GPUs of the node at work: min(link, practice, node memory / GPUs).

        Fewer GPUs share what the node can do, up to their own link or, in pageable copies, to what one process can.
        """
        least = LINK_SHARE * self.rate if pinned else self.process
        shared = (self.pinned if pinned else self.pageable) * FULL_NODE / self.gpus
        return min(least, shared, self.node / self.gpus)


@dataclass(frozen=True)
class StateBytes:
    """Bytes on the busiest GPU by role."""

    optimizer: float
    gradients: float
    parameters: float
    engine_weights: float
    kv_cache: float


@dataclass(frozen=True)
class SwitchRow:
    """One role of the ledger.

    moved: bytes per GPU over the host link, each way. mapped: bytes per GPU mapped and unmapped.
    offload_seconds is on the way to the rollout, onload_seconds on the way back to training.
    """

    role: str
    moved: float
    mapped: float
    pinned: bool
    offload_seconds: float
    onload_seconds: float


@dataclass(frozen=True)
class SwitchCost:
    """The switch of one step.

    bytes_per_gpu, bytes_per_node: moved one way. needed: without offload the roles do not fit on the GPU
    together. parts: "offload:role" or "onload:role" -> seconds, plus the fixed part of each way.
    """

    offload_seconds: float
    onload_seconds: float
    ledger: tuple[SwitchRow, ...]
    bytes_per_gpu: float
    bytes_per_node: float
    needed: bool
    parts: Mapping[str, float]

    @property
    def sources(self) -> Mapping[str, float]:
        """Seconds by provenance: bytes over a rate from the profile."""
        return {"measured": 0.0, "scaled": 0.0, "roofline": self.offload_seconds + self.onload_seconds}

    def scaled(self, factor: float) -> SwitchCost:
        """The same switch with all its durations multiplied."""
        rows = tuple(
            replace(r, offload_seconds=r.offload_seconds * factor, onload_seconds=r.onload_seconds * factor)
            for r in self.ledger
        )
        return replace(
            self,
            offload_seconds=self.offload_seconds * factor,
            onload_seconds=self.onload_seconds * factor,
            ledger=rows,
            parts={name: seconds * factor for name, seconds in self.parts.items()},
        )


NO_SWITCH = SwitchCost(0.0, 0.0, (), 0.0, 0.0, False, {})


def state_rows(
    state: StateBytes,
    order: SwitchOrder,
    link: HostLink,
    *,
    optimizer: bool,
    parameters: bool,
    gradients: bool,
) -> tuple[SwitchRow, ...]:
    """Rows of a trained model; `optimizer`, `parameters`, `gradients`: whether the scenario lets that role go.

    seconds of a moved role = bytes / copy rate; of a mapped one = bytes * map time. Source: section B of the
    frameworks' weight-sync reading (vLLM, SGLang torch_memory_saver, verl, slime, OpenRLHF, NeMo-RL).
    """
    rows = []
    if optimizer:
        rows.append(_moved("optimizer states", state.optimizer, order.optimizer_pinned, link))
    if gradients:
        if order.moves_gradients:
            rows.append(_moved("gradients", state.gradients, order.optimizer_pinned, link))
        else:
            rows.append(_mapped("gradients", state.gradients, link))
    if parameters:
        rows.append(_parameters(state.parameters, order, link))
    return tuple(rows)


def engine_rows(state: StateBytes, order: SwitchOrder, link: HostLink) -> tuple[SwitchRow, ...]:
    """Rows of the engine, which sleeps and wakes. vLLM's sleep level 1 also page-locks the buffer that it copies the
    weights into.
    """
    return _engine_weights(state.engine_weights, order, link), _mapped("KV cache", state.kv_cache, link)


def switch(rows: tuple[SwitchRow, ...], link: HostLink, *, needed: bool) -> SwitchCost:
    """Sum of the rows, one after the other on each GPU, and the fixed part once each way."""
    parts: dict[str, float] = {}
    for row in rows:
        parts[f"offload:{row.role}"] = row.offload_seconds
        parts[f"onload:{row.role}"] = row.onload_seconds
    parts |= {"offload:fixed": link.fixed, "onload:fixed": link.fixed}
    moved = sum(row.moved for row in rows)
    return SwitchCost(
        offload_seconds=sum(row.offload_seconds for row in rows) + link.fixed,
        onload_seconds=sum(row.onload_seconds for row in rows) + link.fixed,
        ledger=rows,
        bytes_per_gpu=moved,
        bytes_per_node=moved * link.gpus,
        needed=needed,
        parts=parts,
    )


def _moved(role: str, size: float, pinned: bool, link: HostLink) -> SwitchRow:
    seconds = size / link.copy_rate(pinned)
    return SwitchRow(role, size, 0.0, pinned, seconds, seconds)


def _mapped(role: str, size: float, link: HostLink) -> SwitchRow:
    seconds = size * link.map_per_byte
    return SwitchRow(role, 0.0, size, False, seconds, seconds)


def _parameters(size: float, order: SwitchOrder, link: HostLink) -> SwitchRow:
    """Parameters: out after the sync, in before the log-probs; a framework's host copy is made on the way."""
    row = _moved("parameters", size, order.parameters_pinned, link)
    if not order.host_copy:
        return row
    return replace(row, offload_seconds=row.offload_seconds + size * link.map_per_byte)


def _engine_weights(size: float, order: SwitchOrder, link: HostLink) -> SwitchRow:
    mapping = size * link.map_per_byte
    if order.sleep_level != 1:
        return SwitchRow("engine weights", 0.0, size, False, mapping, mapping)
    copy = size / link.copy_rate(True)
    return SwitchRow("engine weights", size, size, True, mapping + copy, mapping + copy + size / link.pinned_alloc)
