"""Seconds of a trainer's passes: one optimizer update, or one log-prob forward, on samples of given lengths.

t = max over data-parallel ranks of the pipeline's schedule over their real micro-batches
    + exposed weight and gradient traffic + optimizer + fixed cost
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rlsim.architecture import Layer
from rlsim.costs import training_memorybound as streaming
from rlsim.costs import training_packing as packing
from rlsim.costs import training_pipeline as pipeline
from rlsim.costs.offload import host_link
from rlsim.costs.training_case import Case, Floats, TrainingKernels, case_of
from rlsim.costs.training_floor import floor_seconds, model_flops
from rlsim.costs.training_packing import Ints, MicroBatches, Rules, micro_batches
from rlsim.costs.training_sharding import once_per_update, update_traffic
from rlsim.costs.training_times import PARTS, EndTimes, LayerTimes
from rlsim.costs.vision import encoder_seconds
from rlsim.lora import reference_is_base
from rlsim.memory_trainer import reference_bytes

if TYPE_CHECKING:
    from rlsim.system import System

WAIT_ON_HOST = ("reference", "reward")
"""Roles on the trainer's GPUs whose weights wait on the host for their pass."""


@dataclass(frozen=True)
class StepTime:
    """Price of one pass.

    parts          seconds by cause, adding up to `seconds`. Those of micro-batches are the mean rank's on the busiest
                   pipeline stage; `imbalance` is what the slowest rank has on top, `bubble` what that stage waits
    sources        seconds by provenance: measured, scaled, roofline
    flops          model FLOPs (no recompute) of all GPUs, for MFU
    floor_seconds  physics' bound: FLOPs at peak, or bytes at full HBM bandwidth
    micro_batches  per data-parallel rank
    """

    seconds: float
    parts: Mapping[str, float]
    sources: Mapping[str, float]
    flops: float
    floor_seconds: float
    micro_batches: int


@dataclass(frozen=True)
class Schedule:
    """Times of the micro-batches of one pass, played out on the pipeline."""

    seconds: float
    parts: dict[str, float]
    last_backward: float
    first_forward: float


class TrainingCosts:
    """Prices a trainer's passes; curves of each kind of layer are tabulated when first needed."""

    def __init__(self, system: System, kernels: TrainingKernels) -> None:
        self.case: Case = case_of(system, kernels)
        self.reference_in = 0.0 if reference_is_base(system.scenario) else reference_seconds(system)
        self.vision_sample = encoder_seconds(system, 1)
        self.kinds, self.counts = self.case.kinds()

    def update(self, lengths: Ints) -> StepTime:
        """One optimizer update on one mini-batch; `lengths`: prompt + response tokens of each sample."""
        return self._step(np.asarray(lengths, dtype=np.int64), train=True)

    def logprob(self, lengths: Ints, role: str = "actor") -> StepTime:
        """One forward over the whole batch with its own micro-batches.

        The weights of a reference or reward model come in from the host first: part `reference_in`. With LoRA the
        reference is the base with its adapters off.
        """
        step = self._step(np.asarray(lengths, dtype=np.int64), train=False)
        if role not in WAIT_ON_HOST or not len(lengths):
            return step
        return replace(
            step,
            seconds=step.seconds + self.reference_in,
            parts={**step.parts, "reference_in": self.reference_in},
            sources={**step.sources, "roofline": step.sources["roofline"] + self.reference_in},
        )

    # --- one pass ---------------------------------------------------------------------------------------------------
    def _step(self, lengths: Ints, train: bool) -> StepTime:
        case = self.case
        if not len(lengths):
            return StepTime(0.0, {}, {"measured": 0.0, "scaled": 0.0, "roofline": 0.0}, 0.0, 0.0, 0)
        batch = micro_batches(lengths, self.rules(train), [w for w, _ in case.model.windows])
        schedule = self._schedule(batch, train)
        parts = schedule.parts
        fixed = case.profile.value("update_fixed_s" if train else "logprob_fixed_s")
        parts["fixed"] = fixed
        parts["micro_batches"] = batch.count * case.profile.value("microbatch_host_s")
        if train:
            parts["dp_comm"] += once_per_update(
                case, self._traffic, (schedule.last_backward, schedule.first_forward), batch.count
            )
            parts["optimizer"] = self._optimizer
        if self.vision_sample:
            parts["vision"] = self.vision_sample * len(lengths)
        flops = model_flops(case, lengths, train)
        return StepTime(
            seconds=float(sum(parts.values())),
            parts=parts,
            sources=self._sources(parts),
            flops=flops,
            floor_seconds=floor_seconds(case, flops, train),
            micro_batches=batch.count,
        )

    def rules(self, train: bool) -> Rules:
        """Packing rules of this pass, as the framework has them."""
        case, o = self.case, self.case.options
        budget, size = o.micro_batch_tokens, o.micro_batch_size
        own = (o.logprob_micro_batch_tokens, o.logprob_micro_batch_size)
        if not train and any(v is not None for v in own):
            budget, size = own
        layout = case.layout
        return Rules(
            ranks=layout.dp,
            budget=None if size is not None else budget,
            size=size,
            packing=o.packing,
            balance=o.balance != "none",
            method=packing.METHODS.get(case.framework, "first-fit"),
            align=2 * layout.cp * layout.tp if layout.cp > 1 else 1,
            multiple=layout.pp if layout.vpp > 1 and train else 1,
            longest_pack=layout.pp > 1 and case.framework in packing.PADS_TO_LONGEST_PACK,
        )

    def _schedule(self, batch: MicroBatches, train: bool) -> Schedule:
        """Play the micro-batches through the pipeline; parts of the busiest stage, imbalance and bubble."""
        layout = self.case.layout
        kinds = self.kind_passes(batch, train)
        first, last, between = self._ends(train).passes(batch)
        stages = layout.pp
        f = np.tensordot(self.counts, np.stack([k[0].sum(axis=0) for k in kinds]), axes=1)
        b = np.tensordot(self.counts, np.stack([k[1].sum(axis=0) for k in kinds]), axes=1)
        ends = _ends_of(first.sum(axis=0), last.sum(axis=0), stages)
        share = 1 / 3 if train else 1.0
        f, b = f + ends * share, b + ends * (1 - share)
        f[:-1] += between.sum(axis=0)
        b[1:] += between.sum(axis=0) if train else 0.0
        total = f + b
        stage = int(np.argmax(total.mean(axis=1).sum(axis=1)))
        parts = self._mean_parts(stage, kinds, (first, last, between), train)
        mean = sum(parts.values())
        f, b = self.coupled(f), self.coupled(b)
        own = (f[stage] + b[stage]).sum(axis=1)
        forward, backward = np.swapaxes(f, 1, 2), np.swapaxes(b, 1, 2)
        if train:
            whole = pipeline.one_forward_one_backward(forward, backward)
            whole = pipeline.interleaved(whole, (f + b).sum(axis=2).max(axis=0), layout.vpp)
        else:
            whole = pipeline.forward_only(forward)
        seconds = float(whole.max())
        slowest = min(float(own.max()), seconds)
        parts["imbalance"] = max(0.0, slowest - mean)
        parts["bubble"] = seconds - mean - parts["imbalance"]
        return Schedule(seconds, parts, float(b[:, :, -1].mean(axis=1).max()), float(f[:, :, 0].mean(axis=1).max()))

    def kind_passes(self, batch: MicroBatches, train: bool) -> list[tuple[Floats, Floats]]:
        """(forward, backward) seconds [parts, ranks, micro-batches] of one layer of each kind."""
        return [self._layer(kind).passes(batch, train) for kind in self.kinds]

    def _mean_parts(
        self,
        stage: int,
        kinds: list[tuple[Floats, Floats]],
        ends: tuple[Floats, Floats, Floats],
        train: bool,
    ) -> dict[str, float]:
        """Seconds of the mean rank on one stage, by part, all micro-batches."""
        stages = self.case.layout.pp
        of_kind = np.stack([(f + b).mean(axis=1).sum(axis=1) for f, b in kinds])
        total = self.counts[stage] @ of_kind
        first, last, between = (e.mean(axis=1).sum(axis=1) for e in ends)
        total = total + first * (stage == 0) + last * (stage == stages - 1)
        total = total + between * (float(stage < stages - 1) + float(train and stage > 0))
        return dict(zip(PARTS, total.tolist(), strict=True))

    def coupled(self, seconds: Floats) -> Floats:
        """Ranks that meet in every layer (expert exchange, weight gathers): the slowest paces every micro-batch."""
        layout = self.case.layout
        width = 1
        if self.case.model.experts is not None and layout.ep > 1:
            width = -(-layout.etp * layout.ep // (layout.tp * layout.sequence_split))
        if layout.shards_weights:
            width = max(width, layout.shard // layout.sequence_split)
        if width <= 1:
            return seconds
        stages, ranks, m = seconds.shape
        width = width if ranks % width == 0 else ranks
        return np.asarray(seconds.reshape(stages, ranks // width, width, m).max(axis=2))

    # --- what does not depend on lengths ----------------------------------------------------------------------------
    @cached_property
    def _layers(self) -> dict[Layer, LayerTimes]:
        o = self.case.options
        tokens = float(o.micro_batch_tokens or 4096 * (o.micro_batch_size or 1))
        return {kind: LayerTimes(self.case, kind, tokens) for kind in self.kinds}

    def _layer(self, kind: Layer) -> LayerTimes:
        return self._layers[kind]

    def _ends(self, train: bool) -> EndTimes:
        return self._train_ends if train else self._forward_ends

    @cached_property
    def _train_ends(self) -> EndTimes:
        return EndTimes(self.case, True)

    @cached_property
    def _forward_ends(self) -> EndTimes:
        return EndTimes(self.case, False)

    @cached_property
    def _traffic(self) -> tuple[float, float]:
        """(reduce, gather) of the busiest stage, once per update."""
        each = [update_traffic(self.case, stage) for stage in range(self.case.layout.pp)]
        return max(each, key=sum)

    @cached_property
    def _optimizer(self) -> float:
        return max(streaming.optimizer_seconds(self.case, stage) for stage in range(self.case.layout.pp))

    @cached_property
    def _shares(self) -> dict[str, dict[str, float]]:
        """Part -> provenance -> share, weighted by layers of each kind."""
        weight = self.counts.sum(axis=0)
        out: dict[str, dict[str, float]] = {}
        for kind, count in zip(self.kinds, weight.tolist(), strict=True):
            for part, shares in self._layer(kind).sources.items():
                mine = out.setdefault(part, {})
                for source, share in shares.items():
                    mine[source] = mine.get(source, 0.0) + share * count
        return {part: {s: v / sum(mine.values()) for s, v in mine.items()} for part, mine in out.items()}

    def _sources(self, parts: Mapping[str, float]) -> dict[str, float]:
        """Seconds by provenance; waiting (bubble, imbalance) is as trustworthy as what is waited for."""
        out = {"measured": 0.0, "scaled": 0.0, "roofline": 0.0}
        waits = parts.get("bubble", 0.0) + parts.get("imbalance", 0.0)
        for part, seconds in parts.items():
            if part in ("bubble", "imbalance"):
                continue
            for source, share in self._shares.get(part, {"roofline": 1.0}).items():
                out[source] += seconds * share
        known = sum(out.values())
        factor = 1.0 + waits / known if known > 0 else 1.0
        return {source: seconds * factor for source, seconds in out.items()}


def reference_seconds(system: System) -> float:
    """Seconds to bring a forward-only model's weights in for its pass; the host keeps its copy, so nothing goes back.

    max over stages of the rank's bf16 slice (or shard) / host copy rate, all GPUs of a node at once: the rate of the
    switch's copies.
    """
    size = max(reference_bytes(system, stage) for stage in range(system.trainer.pp))
    return size / host_link(system).copy_rate(system.scenario.offload.pinned)


def _ends_of(first: Floats, last: Floats, stages: int) -> Floats:
    """What the first and last stage have on top, [stages, ranks, micro-batches]."""
    out = np.zeros((stages, *first.shape))
    out[0] += first
    out[-1] += last
    return out
