"""AReaL: a scenario as the YAML of a GRPO run. Keys as of commit 4aef98d (May 2026).

Layouts are strings: `sglang:d4t8` is four instances of TP 8, `megatron:(attn:d1p12t4|ffn:d1p12t1e4)` a folded MoE.
"""

from __future__ import annotations

from rlsim.frameworks import megatron, write
from rlsim.frameworks.sheet import Row, Sheet, begin, cap, nodes, only
from rlsim.scenario.schema import Scenario

NAME = "areal"
BATCH = (
    Row("workload.prompts", "train_dataset.batch_size"),
    Row("workload.prompts", "rollout.consumer_batch_size"),
    Row("workload.group_size", "gconfig.n_samples"),
    Row("workload.updates.mini_batches", "actor.ppo_n_minibatches"),
)
SGLANG = (
    Row("rollout.memory_utilization", "mem_fraction_static"),
    Row("rollout.attn_dp", "dp_size"),
    Row("rollout.moe_ep", "ep_size"),
    Row("rollout.enforce_eager", "disable_cuda_graph"),
)
VLLM = (
    Row("rollout.memory_utilization", "gpu_memory_utilization"),
    Row("rollout.max_num_seqs", "max_num_seqs"),
    Row("rollout.enforce_eager", "enforce_eager"),
)
RUN = (
    Row("run.checkpoint_every", "saver.freq_steps"),
    Row("run.eval.every", "evaluator.freq_steps"),
)


def export(scenario: Scenario) -> str:
    """A config file for `areal`'s GRPO trainer."""
    sheet = begin(NAME, scenario)
    only(sheet, "trainer.backend", ("fsdp2", "megatron"))
    only(sheet, "rollout.engine", ("sglang", "vllm"))
    only(sheet, "workload.updates.epochs", (1,))
    _placement(sheet)
    _batch(sheet)
    _trainer(sheet)
    _engine(sheet)
    _algorithm(sheet)
    sheet.rows(RUN)
    return write.yaml(sheet)


def _placement(sheet: Sheet) -> None:
    s = sheet.scenario
    together = s.placement == "colocated"
    count, each = nodes(sheet, s.trainer.gpus + (0 if together else s.rollout[0].gpus), "cluster.gpus")
    sheet.put("cluster.n_nodes", count, "cluster.gpus")
    sheet.put("cluster.n_gpus_per_node", each, "cluster.gpus_per_node")
    sheet.put(
        "rollout.backend", _rollout_dims(sheet), "rollout.engine", "rollout.gpus", "rollout.attn_tp", "rollout.pp"
    )
    sheet.put("actor.backend", _actor_dims(sheet), "trainer.backend", "trainer.gpus", "trainer.tp", "trainer.pp")
    sheet.says(
        "trainer.cp", "trainer.ulysses", "trainer.ep", "trainer.etp", "rollout.moe_tp", "rollout.return_logprobs"
    )
    sheet.put("enable_offload", together, "placement")
    if together:
        sheet.put("rollout.scheduling_strategy.type", "colocation")
        sheet.put("rollout.scheduling_strategy.target", "actor")
        if s.offload.params and s.offload.optimizer:
            sheet.says("offload.params", "offload.optimizer", "offload.grads")
    _staleness(sheet)


def _staleness(sheet: Sheet) -> None:
    s, rules = sheet.scenario, sheet.scenario.async_
    eta = {"sync": 0, "one-step-off": 1, "async": int(rules.max_staleness)}[s.schedule]
    sheet.put("rollout.max_head_offpolicyness", eta, "schedule", "async.max_staleness")
    if s.schedule != "async":
        return
    if rules.max_concurrent is not None:
        sheet.put("rollout.max_concurrent_rollouts", rules.max_concurrent, "async.max_concurrent")
    else:
        sheet.put("rollout.max_concurrent_rollouts", (eta + 1) * s.workload.prompts)
    sheet.put("rollout.pause_grace_period", s.weight_sync.pause, "weight_sync.pause")
    if rules.policy == NAME:
        sheet.says("async.policy")
    else:
        sheet.cannot("async.policy", "AReaL admits prompts by its own rule; the bound above is the nearest")
    if rules.on_sync == "interrupt":
        sheet.says("async.on_sync", "async.partial_rollout")


def _rollout_dims(sheet: Sheet) -> str:
    """An instance is t·p GPUs; attention-DP ranks are inside its t."""
    entry, engines = sheet.scenario.rollout[0], sheet.system.rollout[0].layout.engines
    return f"{entry.engine}:d{engines}p{entry.pp}t{entry.attn_tp * entry.attn_dp}"


def _actor_dims(sheet: Sheet) -> str:
    """d·t·p·c = GPUs; experts in a grid of their own, whose p and whole size are the same."""
    t, layout = sheet.scenario.trainer, sheet.system.trainer
    split = t.cp * t.ulysses
    if t.backend == "fsdp2":
        return f"fsdp:d{layout.dp}t{t.tp}c{split}"
    attention = f"d{layout.dp}p{t.pp}t{t.tp}c{split}"
    if sheet.system.model.experts is None:
        return f"megatron:{attention}"
    return f"megatron:(attn:{attention}|ffn:d{layout.edp}p{t.pp}t{layout.etp}e{t.ep})"


def _batch(sheet: Sheet) -> None:
    work, dp = sheet.scenario.workload, sheet.system.trainer.dp
    parts = work.updates.mini_batches * dp
    sheet.rule(
        work.samples % parts == 0,
        f"{work.samples} samples are no multiple of mini-batches · data-parallel ranks = {parts}",
        "workload.prompts",
        f"prompts · group_size a multiple of {parts}",
    )
    sheet.rows(BATCH)
    response = cap(sheet, "response_tokens")
    if response is not None:
        sheet.put("gconfig.max_new_tokens", response)
    prompt = cap(sheet, "prompt_tokens")
    if work.total_tokens is not None:
        sheet.put("gconfig.max_tokens", work.total_tokens.max, "workload.total_tokens.max")
    elif prompt is not None and response is not None:
        sheet.put("gconfig.max_tokens", prompt + response)
    t = sheet.scenario.trainer
    if t.micro_batch_tokens is not None:
        sheet.put("actor.mb_spec.max_tokens_per_mb", t.micro_batch_tokens, "trainer.micro_batch_tokens")
    else:
        sheet.cannot("trainer.micro_batch_size", "AReaL packs micro-batches to a token budget")


def _trainer(sheet: Sheet) -> None:
    s, t = sheet.scenario, sheet.scenario.trainer
    sheet.put("actor.path", s.model.base)
    sheet.put("actor.dtype", "bfloat16")
    sheet.put("actor.grad_reduce_dtype", {"fp32": "float32", "bf16": "bfloat16"}[t.grad_dtype], "trainer.grad_dtype")
    sheet.put("actor.gradient_checkpointing", t.recompute != "none")
    sheet.put("actor.pad_to_maximum", not t.packing, "trainer.packing")
    strategies = {"filesystem": "disk", "auto": "xccl", "areal-nccl": "xccl", "broadcast": "xccl"}
    if s.weight_sync.strategy in strategies:
        sheet.put("actor.weight_update_mode", strategies[s.weight_sync.strategy], "weight_sync.strategy")
    if t.backend == "fsdp2":
        if t.recompute != "selective":
            sheet.says("trainer.recompute")
        sheet.put("actor.fsdp.offload_params", t.optimizer_device == "cpu")
        if t.optimizer_device == "cpu":
            sheet.says("trainer.optimizer_device")
        return
    prefix = "actor.megatron."
    sheet.put(f"{prefix}virtual_pipeline_parallel_size", t.vpp, "trainer.vpp")
    for key, value in megatron.recompute(sheet).items():
        sheet.put(f"{prefix}{key}", value)
    sheet.says("trainer.recompute")
    kind = megatron.dispatcher(sheet)
    if kind:
        sheet.put(f"{prefix}moe_token_dispatcher_type", kind["moe_token_dispatcher_type"])
        if t.dispatcher != "deepep":
            sheet.says("trainer.dispatcher")
        else:
            sheet.cannot("trainer.dispatcher", "flex is set; DeepEP itself is Megatron's moe_enable_deepep")


def _engine(sheet: Sheet) -> None:
    entry = sheet.scenario.rollout[0]
    kv = "fp8_e4m3" if entry.engine == "sglang" else "fp8"
    if entry.engine == "vllm":
        for key in ("rollout.attn_dp", "rollout.moe_ep"):
            only(sheet, key, (1,))
            sheet.says(key)
        sheet.rows(VLLM, "vllm.")
        sheet.put("vllm.no_enable_prefix_caching", not entry.prefix_caching, "rollout.prefix_caching")
    else:
        sheet.rows(SGLANG, "sglang.")
        sheet.put("sglang.enable_dp_attention", entry.attn_dp > 1)
        sheet.put("sglang.max_running_requests", entry.max_num_seqs * entry.attn_dp, "rollout.max_num_seqs")
        chunk = entry.max_num_batched_tokens if entry.chunked_prefill else -1
        sheet.put("sglang.chunked_prefill_size", chunk, "rollout.chunked_prefill")
        if entry.chunked_prefill:
            sheet.says("rollout.max_num_batched_tokens")
        sheet.put("sglang.disable_radix_cache", not entry.prefix_caching, "rollout.prefix_caching")
    if entry.dtype == "fp8":
        sheet.put(f"{entry.engine}.quantization", "fp8", "rollout.dtype")
    if entry.kv_dtype == "fp8":
        sheet.put(f"{entry.engine}.kv_cache_dtype", kv, "rollout.kv_dtype")


def _algorithm(sheet: Sheet) -> None:
    work = sheet.scenario.workload
    only(sheet, "workload.algorithm", ("grpo",))
    sheet.put("actor.recompute_logprob", work.logprob != "rollout", "workload.logprob")
    sheet.put("actor.use_decoupled_loss", work.logprob == "decoupled")
    sheet.put("actor.kl_ctl", 0.1 if work.reference_model else 0.0, "workload.reference_model")
