"""slime: a scenario as flags of `train.py` or `train_async.py`. Flags as of commit 624b824 (August 2026).

Megatron's flags are Megatron's own, SGLang's have the prefix `sglang-`.
"""

from __future__ import annotations

from math import ceil

from rlsim.frameworks import megatron, write
from rlsim.frameworks.sheet import Row, Sheet, begin, cap, concurrency_per_engine, mini_batch, nodes, only, per_gpu
from rlsim.scenario.schema import Scenario
from rlsim.sync_settings import sync_bucket

NAME = "slime"
SIZES = tuple(Row(row.scenario, row.key.replace("_", "-")) for row in megatron.SIZES)
ENGINE = (
    Row("rollout.attn_dp", "sglang-dp-size"),
    Row("rollout.moe_ep", "sglang-ep-size"),
    Row("rollout.memory_utilization", "sglang-mem-fraction-static"),
    Row("rollout.enforce_eager", "sglang-disable-cuda-graph"),
)
BATCH = (
    Row("workload.prompts", "rollout-batch-size"),
    Row("workload.group_size", "n-samples-per-prompt"),
)
RUN = (
    Row("run.checkpoint_every", "save-interval"),
    Row("run.eval.every", "eval-interval"),
    Row(
        "run.eval.samples",
        "n-samples-per-eval-prompt",
        when=lambda s: s.run.eval is not None and s.run.eval.samples > 1,
    ),
)
FULLY_ASYNC = "slime.rollout.fully_async_rollout.generate_rollout_fully_async"
NONZERO = "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std"


def export(scenario: Scenario) -> str:
    """Flags of `train.py` (sync) or `train_async.py`."""
    sheet = begin(NAME, scenario)
    only(sheet, "trainer.backend", ("megatron",))
    only(sheet, "rollout.engine", ("sglang",))
    only(sheet, "workload.updates.epochs", (1,))
    _placement(sheet)
    _batch(sheet)
    _trainer(sheet)
    _engine(sheet)
    _algorithm(sheet)
    _sync(sheet)
    sheet.rows(RUN)
    if scenario.run.checkpoint.mode == "async":
        sheet.put("async-save", True, "run.checkpoint.mode")
    script = "train.py" if scenario.schedule == "sync" else "train_async.py"
    return write.flags(f"python3 {script}", sheet)


def _placement(sheet: Sheet) -> None:
    s = sheet.scenario
    count, each = nodes(sheet, s.trainer.gpus, "trainer.gpus")
    sheet.put("actor-num-nodes", count, "trainer.gpus", "cluster.gpus")
    sheet.put("actor-num-gpus-per-node", each, "cluster.gpus_per_node")
    if s.placement == "colocated":
        sheet.put("colocate", True, "placement")
        if s.offload.params and s.offload.optimizer:
            sheet.says("offload.params", "offload.optimizer", "offload.grads")
        else:
            sheet.cannot("offload", "colocate offloads all of the trainer's states")
        sheet.says("rollout.gpus")
    else:
        sheet.put("rollout-num-gpus", s.rollout[0].gpus, "placement", "rollout.gpus")
    sheet.says("schedule")
    if s.schedule == "async":
        _asynchronous(sheet)


def _asynchronous(sheet: Sheet) -> None:
    rules = sheet.scenario.async_
    sheet.put("rollout-function-path", FULLY_ASYNC)
    sheet.put("update-weights-interval", rules.sync_every or 1, "async.sync_every")
    concurrent = concurrency_per_engine(sheet)
    if concurrent is not None:
        sheet.put("sglang-server-concurrency", concurrent, "async.max_concurrent")
    if rules.policy == NAME:
        sheet.says("async.policy", "async.max_staleness")
    else:
        sheet.cannot("async.policy", "slime has no bound on staleness but sglang-server-concurrency")
        sheet.cannot("async.max_staleness", "slime has no bound on staleness but sglang-server-concurrency")
    if rules.on_sync in ("abort", "interrupt"):
        sheet.put("partial-rollout", rules.on_sync == "interrupt", "async.on_sync", "async.partial_rollout")


def _batch(sheet: Sheet) -> None:
    work, dp = sheet.scenario.workload, sheet.system.trainer.dp
    sheet.rows(BATCH)
    whole = mini_batch(sheet, work.samples, "rollout-batch-size · n-samples-per-prompt =")
    sheet.rule(
        whole % dp == 0,
        f"global-batch-size {whole} is no multiple of the {dp} data-parallel ranks",
        "workload.prompts",
        f"prompts · group_size / mini_batches a multiple of {dp}",
    )
    sheet.put("global-batch-size", whole, "workload.updates.mini_batches")
    for which, key in (("prompt_tokens", "rollout-max-prompt-len"), ("response_tokens", "rollout-max-response-len")):
        longest = cap(sheet, which)
        if longest is not None:
            sheet.put(key, longest)
    if work.total_tokens is not None:
        sheet.put("rollout-max-context-len", work.total_tokens.max, "workload.total_tokens.max")
    over, dynamic = sheet.scenario.remedies.over_sampling, work.dynamic_sampling
    if dynamic is not None:
        sheet.put("dynamic-sampling-filter-path", NONZERO, "workload.dynamic_sampling.refill")
        sheet.says("workload.dynamic_sampling.max_batches")
        if dynamic.fetch is not None:
            sheet.put("over-sampling-batch-size", dynamic.fetch, "workload.dynamic_sampling.fetch")
    if over is not None and (dynamic is None or dynamic.fetch is None):
        started = ceil(over.ratio * work.prompts - 1e-9)
        sheet.put("over-sampling-batch-size", started, "remedies.over_sampling.ratio")
    if over is not None and over.unfinished != "tail-batch":
        sheet.put("partial-rollout", over.unfinished == "keep", "remedies.over_sampling.unfinished")


def _trainer(sheet: Sheet) -> None:
    t = sheet.scenario.trainer
    sheet.put("hf-checkpoint", sheet.scenario.model.base)
    sheet.says("trainer.backend")
    sheet.rows(SIZES)
    sheet.put("expert-tensor-parallel-size", megatron.etp(sheet), "trainer.etp")
    sheet.put("sequence-parallel", megatron.sequence_parallel(sheet), "trainer.sequence_parallel")
    sheet.put("use-distributed-optimizer", True)
    _stages(sheet)
    for key, value in (megatron.recompute(sheet) | megatron.dispatcher(sheet)).items():
        sheet.put(key.replace("_", "-"), value, "trainer.recompute", "trainer.dispatcher")
    sheet.says("trainer.recompute")
    if t.optimizer_device == "cpu":
        sheet.put("optimizer-cpu-offload", True, "trainer.optimizer_device")
    if t.precision == "fp8":
        sheet.put("fp8-format", "e4m3", "trainer.precision")
    sheet.put("balance-data", t.balance == "tokens", "trainer.balance")
    if t.micro_batch_tokens is not None:
        sheet.put("use-dynamic-batch-size", True)
        tokens = _budget(sheet, t.micro_batch_tokens, "micro_batch_tokens")
        sheet.put("max-tokens-per-gpu", tokens, "trainer.micro_batch_tokens")
    else:
        sheet.put("micro-batch-size", t.micro_batch_size, "trainer.micro_batch_size")
    if t.logprob_micro_batch_tokens is not None:
        tokens = _budget(sheet, t.logprob_micro_batch_tokens, "logprob_micro_batch_tokens")
        sheet.put("log-probs-max-tokens-per-gpu", tokens, "trainer.logprob_micro_batch_tokens")


def _budget(sheet: Sheet, tokens: int, key: str) -> int:
    return per_gpu(sheet, f"trainer.{key}", tokens, sheet.scenario.trainer.cp, "context-parallel")


def _stages(sheet: Sheet) -> None:
    t, layers = sheet.scenario.trainer, sheet.system.model.num_layers
    if t.vpp > 1:
        sheet.rule(
            layers % (t.pp * t.vpp) == 0,
            f"{layers} layers are no multiple of PP · virtual chunks = {t.pp * t.vpp}",
            "trainer.vpp",
            "fewer chunks",
        )
        per_chunk = layers // (t.pp * t.vpp)
        sheet.put("num-layers-per-virtual-pipeline-stage", per_chunk, "trainer.vpp")
    first, last = megatron.ends(sheet)
    for name, count in (("first", first), ("last", last)):
        if count is not None:
            sheet.put(f"decoder-{name}-pipeline-num-layers", count, "trainer.pp_layers")


def _engine(sheet: Sheet) -> None:
    """An engine's GPUs are SGLang's TP width; attention-DP ranks are inside it, and share the limit on requests."""
    entry = sheet.scenario.rollout[0]
    size = entry.gpus_per_engine
    sheet.rule(
        entry.gpus % size == 0,
        f"rollout-num-gpus {entry.gpus} is no multiple of rollout-num-gpus-per-engine {size}",
        "rollout.gpus",
        f"a multiple of {size}",
    )
    sheet.put("rollout-num-gpus-per-engine", size, "rollout.attn_tp", "rollout.moe_tp", "rollout.engine")
    sheet.rows(ENGINE)
    sheet.put("sglang-enable-dp-attention", entry.attn_dp > 1)
    if entry.pp > 1:
        sheet.put("sglang-pp-size", entry.pp, "rollout.pp")
    sheet.put("sglang-max-running-requests", entry.max_num_seqs * entry.attn_dp, "rollout.max_num_seqs")
    chunk = entry.max_num_batched_tokens if entry.chunked_prefill else -1
    sheet.put("sglang-chunked-prefill-size", chunk, "rollout.chunked_prefill")
    if entry.chunked_prefill:
        sheet.says("rollout.max_num_batched_tokens")
    else:
        sheet.put("sglang-max-prefill-tokens", entry.max_num_batched_tokens, "rollout.max_num_batched_tokens")
    sheet.put("sglang-disable-radix-cache", not entry.prefix_caching, "rollout.prefix_caching")
    if entry.dtype == "fp8":
        sheet.put("sglang-quantization", "fp8", "rollout.dtype")
    if entry.kv_dtype == "fp8":
        sheet.put("sglang-kv-cache-dtype", "fp8_e4m3", "rollout.kv_dtype")
    if entry.block_size != 16:
        sheet.put("sglang-page-size", entry.block_size, "rollout.block_size")
    sheet.says("rollout.return_logprobs")


def _algorithm(sheet: Sheet) -> None:
    work = sheet.scenario.workload
    sheet.put("advantage-estimator", work.algorithm, "workload.algorithm")
    sheet.put("use-rollout-logprobs", work.logprob == "rollout", "workload.logprob")
    sheet.put("use-tis", work.logprob == "decoupled")
    sheet.put("use-kl-loss", work.reference_model, "workload.reference_model")
    if work.reference_model:
        sheet.put("ref-load", sheet.scenario.model.base)


def _sync(sheet: Sheet) -> None:
    sync = sheet.scenario.weight_sync
    if sync.strategy == "delta":
        sheet.put("update-weight-mode", "delta", "weight_sync.strategy")
    elif sync.strategy == "filesystem":
        sheet.put("update-weight-transport", "disk", "weight_sync.strategy")
    elif sync.strategy in ("auto", "ipc", "broadcast", "slime-distributed"):
        sheet.says("weight_sync.strategy")
    sheet.put("update-weight-buffer-size", round(sync_bucket(sheet.scenario, NAME)), "weight_sync.bucket")
