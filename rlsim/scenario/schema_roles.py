"""Blocks `trainer`, `rollout`, `roles`, `weight_sync` and `offload`: who does what with which GPUs."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, model_validator

from rlsim.scenario.block import Block, Bytes, Listed, Seconds, item, needed, whole_keys
from rlsim.scenario.geometry import engine_geometry
from rlsim.scenario.quantity import MistakeError

MICRO_BATCH_TOKENS = 16384


class PipelineEnds(Block):
    """Layers on the first and last pipeline stage; the rest is shared evenly."""

    first: int | None = item(None, "layers on the first stage", unit="layers", ge=0)
    last: int | None = item(None, "layers on the last stage", unit="layers", ge=0)


class Trainer(Block):
    """The trainer group and its parallel layout."""

    gpus: int = needed("trainer GPUs: default all (co-located) or what rollout leaves", unit="GPUs", ge=1)
    pool: str | None = item(None, "trainer pool: one of cluster.pools")
    backend: Literal["megatron", "fsdp2", "zero"] = item("megatron", "training backend")
    tp: int = item(1, "tensor parallel size (TP)", unit="GPUs", ge=1)
    pp: int = item(1, "pipeline parallel size (PP)", unit="stages", ge=1)
    vpp: int = item(1, "virtual pipeline chunks per stage (VPP)", unit="chunks", ge=1)
    cp: int = item(1, "context parallel size (CP)", unit="GPUs", ge=1)
    ep: int = item(1, "expert parallel size (EP)", unit="GPUs", ge=1)
    etp: int | None = item(None, "expert tensor parallel size (ETP): default tp", unit="GPUs", ge=1)
    pp_layers: PipelineEnds | Annotated[tuple[int, ...], Listed] | None = item(
        None, "layers per pipeline stage: {first: 3, last: 2} or a list; default even"
    )
    fsdp_size: int | None = item(None, "FSDP shard group: default all data-parallel GPUs", unit="GPUs", ge=1)
    ulysses: int = item(1, "Ulysses sequence parallel size", unit="GPUs", ge=1)
    zero_stage: Literal[1, 2, 3] = item(3, "ZeRO stage (backend zero)")
    sequence_parallel: bool | None = item(None, "sequence parallel (SP): default on with tp > 1")
    packing: bool = item(True, "packing: sequences packed to the token budget instead of padded")
    balance: Literal["none", "tokens"] = item(
        "tokens", "balance of samples over data-parallel ranks, by tokens or none"
    )
    recompute: Literal["none", "selective", "full"] = item("full", "activation recompute")
    micro_batch_tokens: int | None = item(
        None,
        f"micro-batch tokens per data-parallel rank: default {MICRO_BATCH_TOKENS:,}",
        unit="tokens",
        ge=1,
    )
    micro_batch_size: int | None = item(
        None, "micro-batch size per data-parallel rank, instead of tokens", unit="samples", ge=1
    )
    logprob_micro_batch_tokens: int | None = item(
        None, "micro-batch tokens of the log-prob pass: default as in training", unit="tokens", ge=1
    )
    logprob_micro_batch_size: int | None = item(
        None, "micro-batch size of the log-prob pass, instead of tokens", unit="samples", ge=1
    )
    reshard_after_forward: bool = item(True, "reshard after forward (FSDP): gather again in the backward pass")
    optimizer_device: Literal["gpu", "cpu", "nvme"] = item(
        "gpu", "optimizer device: where states live and the step runs"
    )
    precision: Literal["bf16", "fp8"] = item("bf16", "training precision of the GEMMs")
    grad_dtype: Literal["fp32", "bf16"] = item("fp32", "gradient dtype: of accumulation and reduction")
    param_dtype: Literal["fp32", "bf16"] = item("fp32", "parameter storage dtype (FSDP)")
    dispatcher: Literal["alltoall", "allgather", "deepep"] = item("alltoall", "MoE token dispatcher")

    @model_validator(mode="before")
    @classmethod
    def _budgets(cls, data: object) -> object:
        """Exactly one of tokens and size; tokens by default."""
        if not isinstance(data, dict):
            return data
        for prefix in ("", "logprob_"):
            if {f"{prefix}micro_batch_tokens", f"{prefix}micro_batch_size"} <= data.keys():
                raise MistakeError(
                    f"both {prefix}micro_batch_tokens and {prefix}micro_batch_size are given",
                    f"one of them (`{prefix}micro_batch_tokens: null` in a variant deletes the inherited one)",
                )
        if not {"micro_batch_tokens", "micro_batch_size"} & data.keys():
            return {**data, "micro_batch_tokens": MICRO_BATCH_TOKENS}
        return data


class Speculative(Block):
    """Speculative decoding."""

    method: Literal["mtp", "eagle", "draft", "ngram"] = needed("speculative method")
    tokens: int = item(1, "speculative tokens drafted per iteration", unit="tokens", ge=1)
    acceptance: float | Annotated[dict[int, float], BeforeValidator(whole_keys)] = needed(
        "speculative acceptance: chance that a drafted token is kept; a number, or by running sequences "
        "{1: 0.8, 64: 0.6}"
    )
    draft_model: str | None = item(None, "draft model: catalog id (method draft)")
    max_batch: int | None = item(None, "speculative decoding is off above so many running sequences", ge=1)


class RolloutEntry(Block):
    """One kind of rollout engine, `gpus_per_engine = pp·attn_tp·attn_dp = pp·moe_tp·moe_ep`.

    After loading these five are always set, and the shorthands `tp` and `ep` are None.
    """

    gpus: int = needed("rollout GPUs: default all (co-located) or what the trainer leaves", unit="GPUs", ge=1)
    pool: str | None = item(None, "rollout pool: one of cluster.pools")
    engine: Literal["vllm", "sglang", "trtllm"] = item("vllm", "inference engine")
    tp: int | None = item(None, "tensor parallel size of the engine: short for attn_tp = moe_tp", unit="GPUs", ge=1)
    ep: int | None = item(
        None,
        "expert parallel size of the engine: short, with tp, for moe_ep = ep, moe_tp = tp/ep",
        unit="GPUs",
        ge=1,
    )
    pp: int = item(1, "pipeline parallel size of the engine", unit="stages", ge=1)
    attn_tp: int = item(1, "tensor parallel size of attention", unit="GPUs", ge=1)
    attn_dp: int = item(1, "data parallel size of attention", unit="ranks", ge=1)
    moe_tp: int = item(
        1,
        "tensor parallel size of experts and MLP: default what attention and moe_ep leave",
        unit="GPUs",
        ge=1,
    )
    moe_ep: int = item(1, "expert parallel size of experts", unit="GPUs", ge=1)
    dtype: Literal["bf16", "fp8"] = item("bf16", "weight dtype of the engine")
    kv_dtype: Literal["bf16", "fp8"] = item("bf16", "KV cache dtype")
    memory_utilization: float = item(0.85, "memory utilization: share of HBM the engine may use", gt=0, le=1)
    max_num_seqs: int = item(256, "running sequences at most, per attention-DP rank", unit="samples", ge=1)
    max_num_batched_tokens: int = item(8192, "tokens per iteration at most, per attention-DP rank", unit="tokens", ge=1)
    block_size: int = item(16, "KV block size", unit="tokens", ge=1)
    enforce_eager: bool = item(False, "eager mode: no CUDA graphs")
    chunked_prefill: bool = item(True, "chunked prefill; without, whole prompts are prefilled before decoding goes on")
    prefix_caching: bool = item(
        True, "prefix caching: a group's prompt is prefilled once, and contexts are kept across turns"
    )
    preemption: Literal["recompute", "swap"] = item(
        "recompute", "preemption when KV runs out: recompute the context later, or swap its KV to the host"
    )
    return_logprobs: bool = item(
        False, "log-probs returned by the engine; always on unless workload.logprob is recompute"
    )
    deterministic: bool = item(False, "deterministic (batch-invariant) kernels")
    role: Literal["mixed", "prefill", "decode"] = item("mixed", "engine role: prefill and decode, or one of them")
    speculative: Speculative | None = item(None, "speculative decoding")

    @model_validator(mode="before")
    @classmethod
    def _geometry(cls, data: object) -> object:
        return engine_geometry(data) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _budget(self) -> Self:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise MistakeError(
                f"max_num_batched_tokens {self.max_num_batched_tokens} < max_num_seqs {self.max_num_seqs}",
                "at least one token per running sequence",
            )
        return self

    @property
    def gpus_per_engine(self) -> int:
        """pp·attn_tp·attn_dp."""
        return self.pp * self.attn_tp * self.attn_dp


class Role(Block):
    """A model besides the policy; with `gpus` it has GPUs of its own."""

    model: str | None = item(None, "model of the role: default the policy's")
    pool: str | None = item(None, "pool of the role")
    gpus: int | None = item(None, "GPUs of the role: default it takes turns on the trainer's", unit="GPUs", ge=1)
    tp: int = item(1, "tensor parallel size of the role", unit="GPUs", ge=1)
    pp: int = item(1, "pipeline parallel size of the role", unit="stages", ge=1)


class Roles(Block):
    """Models besides the policy: which, and on which GPUs."""

    reference: Role | None = item(None, "reference model (workload.reference_model): default on the trainer's GPUs")
    reward_model: Role | None = item(
        None, "reward model that is simulated (reward.kind: model); else reward.seconds says what a sample takes"
    )
    critic: Role | None = item(None, "critic (algorithm: ppo): default of the policy's size, on the trainer's GPUs")

    @property
    def gpus(self) -> int:
        """GPUs that roles have to themselves."""
        given = (self.reference, self.reward_model, self.critic)
        return sum(role.gpus or 0 for role in given if role is not None)


class OverSampling(Block):
    """More groups are started than a step needs; when enough are done the rest is aborted."""

    ratio: float = needed("over-sampling ratio: groups started ÷ groups needed", gt=1, le=8)
    unfinished: Literal["discard", "keep", "tail-batch"] = item(
        "discard",
        "aborted groups: discard, keep (they go on in the next step with the tokens they have) or tail-batch "
        "(collected until they fill a step of their own)",
    )


class Elastic(Block):
    """Trainer GPUs lent to rollout while the trainer would wait (schedule: async)."""

    below: float = item(
        0.4, "elastic threshold: lend while fewer than this share of the next batch is ready", gt=0, le=1
    )
    tp: int | None = item(None, "tensor parallel size of lent engines: default the rollout's", unit="GPUs", ge=1)


class Consolidate(Block):
    """The last running samples move onto fewer engines."""

    below: float = item(0.25, "consolidation threshold: share of the rollout's peak of running samples", gt=0, lt=1)
    early_logprob: bool = item(True, "freed GPUs start the log-prob pass of finished samples (co-located)")


class Remedies(Block):
    """What is done about the long tail of a rollout; each is off by default."""

    over_sampling: OverSampling | None = item(None, "over-sampling of groups with abort")
    elastic: Elastic | None = item(None, "elastic rollout: trainer GPUs lent to it")
    consolidate: Consolidate | None = item(None, "consolidation of the last samples onto fewer engines")


class WeightSync(Block):
    """How new weights reach the engines."""

    strategy: Literal[
        "auto",
        "ipc",
        "root-fanout",
        "broadcast",
        "p2p",
        "p2p-replicate",
        "p2p-tree",
        "chain",
        "host",
        "filesystem",
        "delta",
        "verl-nccl",
        "verl-naive-ipc",
        "slime-distributed",
        "openrlhf-broadcast",
        "areal-nccl",
        "nemo-reshard",
        "trl-server",
        "checkpoint-engine",
        "p2p-plan",
    ] = item(
        "auto",
        "weight sync strategy: auto is the framework's (generic: ipc co-located, broadcast disaggregated), a general "
        "way of moving weights, or a framework's own by its name",
    )
    bucket: Bytes | None = item(None, "weight sync bucket: default the framework's, 1 GiB for generic", gt=0)
    overlap: bool = item(False, "weight sync overlap: engines go on while the next weights arrive (schedule: async)")
    wire_dtype: Literal["fp32", "bf16", "fp8"] | None = item(
        None, "dtype on the wire: default bf16; verl sends the stored dtype, slime fp8 to fp8 engines"
    )
    changed: float = item(
        0.02, "changed values: share of the weights that one step changes (strategy delta)", gt=0, le=1
    )
    encoding: Literal["index", "zstd"] = item(
        "index",
        "delta encoding: index (int32 position and value of each changed weight) or zstd (compressed difference)",
    )
    pause: Seconds = item(
        0.0,
        "pause before a weight sync: running engines stand still so long before weights move (schedule: async)",
        ge=0,
    )
    rebuild_group: bool = item(False, "process group between trainer and engines is built anew at every weight sync")
    flush_cache: bool = item(True, "prefix cache is flushed at a weight sync: what was cached is prefilled again")


class Offload(Block):
    """What leaves the GPU while the other role works (co-located only)."""

    optimizer: bool = item(True, "offload optimizer states to the host during rollout")
    params: bool = item(True, "offload the trainer's parameters to the host during rollout")
    grads: bool = item(True, "drop gradients during rollout")
    pinned: bool = item(True, "pinned host memory: near the link's rate; pageable is several times slower")
