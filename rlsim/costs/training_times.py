"""Seconds of one layer, and of the ends of the pipeline, for arrays of micro-batches.

What depends on a micro-batch's tokens alone is tabulated once on a fine grid of token counts and interpolated;
attention and what hides behind it are computed for every micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rlsim.architecture import Layer
from rlsim.costs import training_layer as layers
from rlsim.costs import training_memorybound as streaming
from rlsim.costs import training_parallel as parallel
from rlsim.costs.training_case import Case, Floats
from rlsim.costs.training_packing import MicroBatches
from rlsim.costs.training_sharding import LayerTraffic, end_parameters, end_traffic, exposed, layer_traffic

PARTS = (
    "compute",
    "attention",
    "logits",
    "tp_comm",
    "cp_comm",
    "ep_comm",
    "moe_floor",
    "host",
    "dp_comm",
    "pp_comm",
)
"""Parts of a micro-batch's time, in the order of the arrays' first axis."""

PER_OCTAVE = 4
KNOTS = 2.0 ** (np.arange(0, 24 * PER_OCTAVE + 1) / PER_OCTAVE)
"""Tokens of a data-parallel rank's micro-batch at which curves are tabulated: 1 to 16.8 M."""


def interpolate(curves: Floats, tokens: Floats) -> Floats:
    """[C, knots] at tokens[...] -> [C, ...]: linear between knots, proportional beyond the last, 0 without tokens."""
    x = np.maximum(tokens, 1.0)
    low = np.minimum((np.log2(x) * PER_OCTAVE).astype(np.int64), len(KNOTS) - 2)
    share = (x - KNOTS[low]) / (KNOTS[low + 1] - KNOTS[low])
    at = curves[:, low] * (1.0 - share) + curves[:, low + 1] * share
    return np.where(tokens > 0, at, 0.0)


@dataclass(frozen=True)
class LayerTimes:
    """One kind of layer on one rank."""

    case: Case
    layer: Layer
    reference: float

    @cached_property
    def curves(self) -> Floats:
        """[gemm, adapters, experts, streamed, tp forward, tp backward, expert exchange] at KNOTS, forward seconds."""
        case, layer = self.case, self.layer
        gemms = layers.dense_gemms(case, layer)
        gemm, _ = layers.gemm_seconds(case, gemms, KNOTS)
        column, row = (
            layers.gemm_seconds(case, [g for g in gemms if g.side == side], KNOTS)[0] * case.slowest
            for side in ("column", "row")
        )
        adapters = layers.adapter_seconds(case, layer, KNOTS)
        zero = np.zeros(KNOTS.shape)
        gemm, adapters = gemm * case.slowest, adapters * case.slowest
        experts = layers.expert_seconds(case, KNOTS)[0] * case.slowest if layer.moe else zero
        exchange = parallel.expert_parallel(case, KNOTS)[0] if layer.moe else zero
        streamed = case.kernels.elementwise_seconds(KNOTS * layers.streamed_bytes(case, layer), 0.0)
        tensor = parallel.tensor_parallel(case, layer, KNOTS, column, row)
        return np.stack([gemm, adapters, experts, streamed, tensor.forward, tensor.backward, exchange])

    @cached_property
    def traffic(self) -> LayerTraffic:
        """Weight traffic of one micro-batch (FSDP2, ZeRO-3)."""
        return layer_traffic(self.case, self.layer)

    @cached_property
    def accumulation(self) -> tuple[float, float]:
        """Token-independent streaming, forward and backward."""
        return streaming.accumulation_seconds(self.case, *layers.held_parameters(self.case, self.layer))

    @cached_property
    def floor(self) -> tuple[str, float]:
        """(part, seconds) below which one pass of the layer can't go: the host's own work."""
        if self.layer.moe:
            return "moe_floor", self.case.profile.value("moe_layer_floor_s")
        return "host", self.case.profile.value("layer_floor_s")

    @cached_property
    def stalls(self) -> float:
        """Seconds that the GPU stands idle in one pass of a MoE layer.

        The dispatcher reads the experts' token counts on the host, so the host can't launch ahead: what follows each
        read-out waits for it. Adds to GPU time, however long that is.
        """
        return self.case.profile.value("moe_layer_sync_s") if self.layer.moe else 0.0

    def passes(self, batch: MicroBatches, train: bool) -> tuple[Floats, Floats]:
        """(forward, backward) seconds [parts, ranks, micro-batches] of this layer; backward zeros unless `train`.

        Backward: GEMMs twice (once where weights are frozen), attention 2.5 x, exchange again; full recompute repeats
        the forward, selective the attention core. GPU time below the host's floor waits for the host. Weight gathers
        and gradient reductions run beside compute; what exceeds it is exposed.
        """
        case, tokens = self.case, batch.tokens
        gemm, adapters, experts, streamed, tp_f, tp_b, exchange = interpolate(self.curves, tokens)
        attention = layers.attention_seconds(case, tokens, batch.pairs[self.layer.window]) * case.slowest
        factor = layers.attention_backward_factor(case)
        context = parallel.context_parallel(case, tokens, attention, factor)
        forward = self._parts(
            compute=gemm + adapters + experts + streamed,
            attention=attention,
            tp_comm=tp_f,
            cp_comm=context.forward,
            ep_comm=exchange,
        )
        if not train:
            return self._finish(forward, self.accumulation[0], self.traffic.gather, 1.0), np.zeros(forward.shape)
        trained = 1.0 if case.frozen else 2.0
        backward = self._parts(
            compute=trained * (gemm + experts) + 2.0 * adapters + 2.0 * streamed,
            attention=factor * attention,
            tp_comm=tp_b,
            cp_comm=context.backward,
            ep_comm=exchange,
        )
        again = case.options.recompute
        if again == "full":
            backward += forward
        elif again == "selective":
            backward[PARTS.index("attention")] += attention
        regather = self.traffic.gather if case.options.reshard_after_forward else 0.0
        forward = self._finish(forward, self.accumulation[0], self.traffic.gather, 1.0)
        floors = 2.0 if again == "full" else 1.0
        return forward, self._finish(backward, self.accumulation[1], regather + self.traffic.reduce, floors)

    def _parts(self, **parts: Floats) -> Floats:
        shape = next(iter(parts.values())).shape
        out = np.zeros((len(PARTS), *shape))
        for name, seconds in parts.items():
            out[PARTS.index(name)] = seconds
        return out

    def _finish(self, parts: Floats, streamed: float, traffic: float, floors: float) -> Floats:
        """Add token-independent streaming, stalls, the host's floor, and the exposed traffic of weights."""
        live = parts[0] > 0
        parts[0] += np.where(live, streamed, 0.0)
        name, least = self.floor
        parts[PARTS.index(name)] += np.where(live, self.stalls * floors, 0.0)
        busy = parts.sum(axis=0)
        parts[PARTS.index(name)] += np.where(live, np.maximum(0.0, least * floors - busy), 0.0)
        busy = np.maximum(busy, least * floors)
        parts[PARTS.index("dp_comm")] += np.where(live, exposed(self.case, np.array(traffic), busy), 0.0)
        return parts

    @cached_property
    def sources(self) -> Mapping[str, Mapping[str, float]]:
        """Part -> provenance -> share of the part's seconds, at `reference` tokens."""
        case, at = self.case, np.array([self.reference])
        gemms = layers.dense_gemms(case, self.layer)
        seconds, shares = layers.gemm_seconds(case, gemms, at)
        weights = {str(k): float(seconds[0]) * v for k, v in shares.items()}
        out: dict[str, Mapping[str, float]] = {"attention": {"roofline": 1.0}, "cp_comm": {"roofline": 1.0}}
        if self.layer.moe:
            expert, source = layers.expert_seconds(case, at)
            weights[source] = weights.get(source, 0.0) + float(expert[0])
            out["ep_comm"] = {parallel.expert_parallel(case, at)[1]: 1.0}
        streamed = case.kernels.elementwise_seconds(at * layers.streamed_bytes(case, self.layer), 0.0)
        weights["roofline"] = weights.get("roofline", 0.0) + float(streamed[0])
        whole = sum(weights.values())
        out["compute"] = {k: v / whole for k, v in weights.items()}
        none = np.zeros(1)
        out["tp_comm"] = {parallel.tensor_parallel(case, self.layer, at, none, none).source: 1.0}
        out["dp_comm"] = {"scaled": 1.0}
        return out


@dataclass(frozen=True)
class EndTimes:
    """Embedding on the first stage, LM head and loss on the last, hand-over between stages."""

    case: Case
    train: bool

    @cached_property
    def curves(self) -> Floats:
        """[embedding, head GEMM, logits, send] at KNOTS; all but the send of forward and backward together."""
        head, logits, _ = streaming.head_seconds(self.case, KNOTS, self.train)
        embedding = streaming.embedding_seconds(self.case, KNOTS, self.train)
        return np.stack([embedding, head * self.case.slowest, logits, parallel.stage_send(self.case, KNOTS)])

    @cached_property
    def weights(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """(streaming, exposed traffic) of the embedding's and of the head's weights in a micro-batch that has tokens.

        Gathered first and reduced last, they have nothing to hide behind. Forward and backward together.
        """
        each = []
        for held, traffic in zip(end_parameters(self.case), end_traffic(self.case), strict=True):
            forward, backward = streaming.accumulation_seconds(self.case, held, 0.0, kept=True)
            streamed = forward + backward * self.train
            each.append((streamed, traffic.gather + traffic.reduce * self.train))
        return each[0], each[1]

    def passes(self, batch: MicroBatches) -> tuple[Floats, Floats, Floats]:
        """(first stage, last stage, any stage but the last) seconds [parts, ranks, micro-batches].

        Forward and backward together for the first two; the send is one way.
        """
        embedding, head, logits, send = interpolate(self.curves, batch.tokens)
        first, last, between = (np.zeros((len(PARTS), *embedding.shape)) for _ in range(3))
        first[PARTS.index("compute")] = embedding
        last[PARTS.index("compute")] = head
        last[PARTS.index("logits")] = logits
        between[PARTS.index("pp_comm")] = send
        for end, (streamed, traffic) in zip((first, last), self.weights, strict=True):
            end[PARTS.index("compute")] += np.where(batch.tokens > 0, streamed, 0.0)
            end[PARTS.index("dp_comm")] += np.where(batch.tokens > 0, traffic, 0.0)
        return first, last, between
