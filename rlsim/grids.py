"""Rank grids: who stands where in the trainer and in a rollout engine (bytes: `slices`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlsim.engine_checks import check_engine
from rlsim.model import ModelSpec
from rlsim.trainer_checks import check_trainer, train_stage_sizes

if TYPE_CHECKING:
    from rlsim.scenario.schema import RolloutEntry, Scenario, Trainer

Stages = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class TrainLayout:
    """The trainer's grid. All sizes in GPUs.

    dp      ranks with different samples: gpus/(tp·pp·cp·ulysses)
    edp     replicas of one expert slice: gpus/(etp·ep·pp)
    shard   GPUs that share one copy of weights (FSDP2, ZeRO-3) or of the optimizer states (Megatron,
            ZeRO-1/2)
    stages  decoder layers of each pipeline stage, all its virtual chunks; the embedding stands on the first
            stage, the final norm and the LM head on the last
    """

    backend: str
    gpus: int
    gpus_per_node: int
    tp: int
    pp: int
    vpp: int
    cp: int
    ulysses: int
    ep: int
    etp: int
    dp: int
    edp: int
    shard: int
    zero_stage: int
    sequence_parallel: bool
    stages: Stages

    @property
    def nodes(self) -> int:
        return -(-self.gpus // self.gpus_per_node)

    @property
    def dense_replicas(self) -> int:
        """Ranks that hold the same dense slice before any sharding: dp·cp·ulysses = gpus/(tp·pp)."""
        return self.dp * self.cp * self.ulysses

    @property
    def replicas(self) -> int:
        """Whole copies of the dense weights: HSDP replicas, or every data-parallel rank."""
        return self.dense_replicas // self.shard if self.shards_weights else self.dense_replicas

    @property
    def expert_shard(self) -> int:
        """GPUs that share one expert slice where weights are sharded (within the expert-data-parallel group)."""
        return max(1, min(self.edp, self.shard * self.tp // (self.ep * self.etp)))

    @property
    def shards_weights(self) -> bool:
        """FSDP2 and ZeRO-3 keep a shard of the weights on each rank and gather them layer by layer."""
        return self.backend == "fsdp2" or (self.backend == "zero" and self.zero_stage == 3)

    @property
    def sequence_split(self) -> int:
        """Ranks that one sequence is split over outside tensor parallelism: cp·ulysses."""
        return self.cp * self.ulysses

    @property
    def layers_per_stage(self) -> tuple[int, ...]:
        return tuple(len(stage) for stage in self.stages)


@dataclass(frozen=True)
class EngineLayout:
    """One kind of rollout engine: `engines` instances of pp·attn_tp·attn_dp = pp·moe_tp·moe_ep GPUs.

    stages  decoder layers of each pipeline stage
    engine  "vllm", "sglang" or "trtllm": they differ in the group that splits the LM head
    """

    engines: int
    gpus_per_engine: int
    pp: int
    attn_tp: int
    attn_dp: int
    moe_tp: int
    moe_ep: int
    stages: Stages
    gpus_per_node: int
    engine: str = "vllm"

    @property
    def gpus(self) -> int:
        return self.engines * self.gpus_per_engine

    @property
    def dense_tp(self) -> int:
        """Ranks that split a dense MLP or shared expert: the attention-TP group.

        With DP attention that is what vLLM does; SGLang may also use all ranks (`moe_dense_tp_size`, often
        1).
        """
        return self.attn_tp

    @property
    def head_tp(self) -> int:
        """Ranks that split the LM head: in SGLang all of a stage, else the attention-TP group."""
        return self.attn_tp * self.attn_dp if self.engine == "sglang" else self.attn_tp

    @property
    def nodes_per_engine(self) -> int:
        return -(-self.gpus_per_engine // self.gpus_per_node)

    @property
    def layers_per_stage(self) -> tuple[int, ...]:
        return tuple(len(stage) for stage in self.stages)


def trainer_dp_width(layout: TrainLayout) -> int:
    """Data-parallel ranks, each TP·CP·PP GPUs: the samples of a mini-batch are dealt to so many."""
    return layout.dp


def train_layout(scenario: Scenario, model: ModelSpec) -> TrainLayout:
    """The trainer's layout, checked against the model.

    Megatron: DP = W/(TP·PP·CP), EDP = W/(ETP·EP·PP), ETP = TP by default (megatron.md). FSDP2: the shard
    group is `fsdp_size`, by default all ranks of one TP·PP slice; fewer is HSDP. ZeRO: all data-parallel
    ranks.
    """
    t = scenario.trainer
    etp = expert_tensor_parallel(t, model)
    check_trainer(scenario, model, etp)
    dense_replicas = t.gpus // (t.tp * t.pp)
    return TrainLayout(
        backend=t.backend,
        gpus=t.gpus,
        gpus_per_node=gpus_per_node(scenario, t.pool),
        tp=t.tp,
        pp=t.pp,
        vpp=t.vpp,
        cp=t.cp,
        ulysses=t.ulysses,
        ep=t.ep,
        etp=etp,
        dp=dense_replicas // (t.cp * t.ulysses),
        edp=t.gpus // (etp * t.ep * t.pp),
        shard=t.fsdp_size if t.backend == "fsdp2" and t.fsdp_size is not None else dense_replicas,
        zero_stage={"megatron": 1, "fsdp2": 3}.get(t.backend, t.zero_stage),
        sequence_parallel=t.tp > 1 and t.sequence_parallel is not False,
        stages=train_stages(scenario, model.num_layers),
    )


def engine_layout(scenario: Scenario, entry: RolloutEntry, model: ModelSpec) -> EngineLayout:
    """The layout of one rollout entry, checked against the model."""
    node = gpus_per_node(scenario, entry.pool)
    check_engine(scenario, entry, model, node)
    return EngineLayout(
        engines=entry.gpus // entry.gpus_per_engine,
        gpus_per_engine=entry.gpus_per_engine,
        pp=entry.pp,
        attn_tp=entry.attn_tp,
        attn_dp=entry.attn_dp,
        moe_tp=entry.moe_tp,
        moe_ep=entry.moe_ep,
        stages=consecutive(engine_stage_sizes(model.num_layers, entry.pp)),
        gpus_per_node=node,
        engine=entry.engine,
    )


def gpus_per_node(scenario: Scenario, pool: str | None) -> int:
    """GPUs per node of a role's pool, or of the cluster."""
    pools = scenario.cluster.pools
    if pool is not None and pools is not None and pool in pools:
        return pools[pool].gpus_per_node
    return scenario.cluster.gpus_per_node


def expert_tensor_parallel(trainer: Trainer, model: ModelSpec) -> int:
    """ETP: as written, else TP (Megatron's default); FSDP2 with EP leaves the experts whole."""
    if trainer.etp is not None:
        return trainer.etp
    return 1 if trainer.backend == "fsdp2" and trainer.ep > 1 and model.experts is not None else trainer.tp


# Pipeline stages ----------


def train_stages(scenario: Scenario, layers: int) -> Stages:
    """Layers of each stage of the trainer: even, by first/last, or as listed.

    With V_p chunks a stage holds V_p runs of layers: chunk v of stage p follows all stages of chunk v−1
    (Megatron interleaving). L = 48, P = 4, V_p = 2: stage 1 holds 6–11 and 30–35.
    """
    t = scenario.trainer
    sizes = train_stage_sizes(scenario, layers)
    if len(sizes) == t.pp * t.vpp and t.vpp > 1:
        chunks = sizes
    else:
        chunks = tuple(size // t.vpp for _ in range(t.vpp) for size in sizes)
    runs = consecutive(chunks)
    return tuple(tuple(layer for chunk in range(t.vpp) for layer in runs[chunk * t.pp + p]) for p in range(t.pp))


def engine_stage_sizes(layers: int, pp: int) -> tuple[int, ...]:
    """Layers per pipeline stage as vLLM deals them: L div P each, the remainder one each to stages P−2, P−3,
    …

    61 over 4 is 15, 15, 16, 15: the last stage has the LM head and never gets more. SGLang and TensorRT-LLM
    are taken to do the same.
    """
    base, remainder = divmod(layers, pp)
    return tuple(base + (pp - 1 - remainder <= p < pp - 1) for p in range(pp))


def consecutive(sizes: tuple[int, ...]) -> Stages:
    """Runs of consecutive layers of these sizes."""
    runs, start = [], 0
    for size in sizes:
        runs.append(tuple(range(start, start + size)))
        start += size
    return tuple(runs)
