"""NeMo-RL: a scenario as the YAML of a GRPO run. Keys as of commit 7ea279a (August 2026)."""

from __future__ import annotations

from rlsim.frameworks import megatron, write
from rlsim.frameworks.sheet import Row, Sheet, begin, cap, mini_batch, nodes, only
from rlsim.scenario.schema import Scenario

NAME = "nemo-rl"
VLLM, MEGATRON, DTENSOR = "policy.generation.vllm_cfg.", "policy.megatron_cfg.", "policy.dtensor_cfg."
BATCH = (
    Row("workload.prompts", "grpo.num_prompts_per_step"),
    Row("workload.group_size", "grpo.num_generations_per_prompt"),
)
ENGINE = (
    Row("rollout.attn_tp", "tensor_parallel_size"),
    Row("rollout.pp", "pipeline_parallel_size"),
    Row("rollout.moe_ep", "expert_parallel_size"),
    Row("rollout.memory_utilization", "gpu_memory_utilization"),
    Row("rollout.enforce_eager", "enforce_eager"),
)
ENGINE_MORE = (
    Row("rollout.max_num_seqs", "max_num_seqs"),
    Row("rollout.max_num_batched_tokens", "max_num_batched_tokens"),
    Row("rollout.chunked_prefill", "enable_chunked_prefill"),
    Row("rollout.prefix_caching", "enable_prefix_caching"),
    Row("rollout.block_size", "block_size"),
)
TORCH = (
    Row("trainer.tp", "tensor_parallel_size"),
    Row("trainer.cp", "context_parallel_size"),
)
RUN = (
    Row("run.checkpoint_every", "checkpointing.save_period"),
    Row("run.eval.every", "grpo.val_period"),
)


def export(scenario: Scenario) -> str:
    """A config file to put over `examples/configs/grpo_math_1B.yaml`."""
    sheet = begin(NAME, scenario)
    only(sheet, "trainer.backend", ("fsdp2", "megatron"))
    only(sheet, "rollout.engine", ("vllm",))
    only(sheet, "workload.updates.epochs", (1,))
    _placement(sheet)
    _batch(sheet)
    _trainer(sheet)
    _engine(sheet)
    _algorithm(sheet)
    run = scenario.run
    sheet.put("checkpointing.enabled", run.checkpoint_every is not None)
    sheet.rows(RUN)
    if run.checkpoint_every is not None and scenario.trainer.backend == "megatron":
        sheet.put(f"{MEGATRON}checkpoint.async_save", run.checkpoint.mode == "async", "run.checkpoint.mode")
    return write.yaml(sheet)


def _placement(sheet: Sheet) -> None:
    """The cluster is all GPUs; what generation has of its own is carved out of it."""
    s = sheet.scenario
    together = s.placement == "colocated"
    total = s.trainer.gpus + (0 if together else s.rollout[0].gpus)
    count, each = nodes(sheet, total, "cluster.gpus")
    sheet.put("cluster.num_nodes", count, "cluster.gpus", "trainer.gpus")
    sheet.put("cluster.gpus_per_node", each, "cluster.gpus_per_node")
    sheet.put("policy.generation.colocated.enabled", together, "placement")
    if together:
        sheet.says("rollout.gpus", "offload.optimizer", "offload.params", "offload.grads", "schedule")
        return
    prefix = "policy.generation.colocated.resources."
    own_nodes, own = nodes(sheet, s.rollout[0].gpus, "rollout.gpus")
    if count > 1:
        sheet.rule(
            own == each,
            f"on several nodes generation takes whole ones of {each} GPUs, not {own}",
            "rollout.gpus",
            f"a multiple of {each}",
        )
        sheet.put(f"{prefix}num_nodes", own_nodes, "rollout.gpus")
    else:
        sheet.put(f"{prefix}num_nodes", None)
    sheet.put(f"{prefix}gpus_per_node", own, "rollout.gpus")
    _schedule(sheet)


def _schedule(sheet: Sheet) -> None:
    s, rules, prefix = sheet.scenario, sheet.scenario.async_, "grpo.async_grpo."
    sheet.put(f"{prefix}enabled", s.schedule != "sync", "schedule")
    if s.schedule == "sync":
        return
    age = int(rules.max_staleness) if s.schedule == "async" else 1
    sheet.put(f"{prefix}max_trajectory_age_steps", age, "async.max_staleness")
    sheet.put(f"{VLLM}async_engine", True)
    if s.schedule != "async":
        return
    sheet.put(f"{prefix}in_flight_weight_updates", rules.on_sync in ("in-flight", "interrupt"), "async.partial_rollout")
    sheet.put(f"{prefix}recompute_kv_cache_after_weight_updates", rules.on_sync == "interrupt")
    if rules.on_sync != "abort":
        sheet.says("async.on_sync")
    if rules.policy == NAME:
        sheet.says("async.policy")
    else:
        sheet.cannot("async.policy", "NeMo-RL reserves every trajectory for a step; the age above is the nearest bound")


def _batch(sheet: Sheet) -> None:
    s = sheet.scenario
    work, t, dp = s.workload, s.trainer, sheet.system.trainer.dp
    sheet.rows(BATCH)
    whole = mini_batch(sheet, work.samples, "prompts · generations =")
    step = dp * (t.micro_batch_size or 1)
    sheet.rule(
        whole % step == 0,
        f"train_global_batch_size {whole} is no multiple of train_micro_batch_size · data-parallel ranks = {step}",
        "workload.prompts",
        f"prompts · group_size / mini_batches a multiple of {step}",
    )
    sheet.put("policy.train_global_batch_size", whole, "workload.updates.mini_batches")
    prompt, response = cap(sheet, "prompt_tokens"), cap(sheet, "response_tokens")
    longest = work.total_tokens.max if work.total_tokens is not None else prompt and response and prompt + response
    if longest:
        sheet.put("policy.max_total_sequence_length", longest, "workload.total_tokens.max")
        sheet.put(f"{VLLM}max_model_len", longest)
    if response is not None:
        sheet.put("policy.generation.max_new_tokens", response)
    dynamic = work.dynamic_sampling
    sheet.put("grpo.use_dynamic_sampling", dynamic is not None)
    if dynamic is not None:
        sheet.put("grpo.dynamic_sampling_max_gen_batches", dynamic.max_batches, "workload.dynamic_sampling")
        over = s.remedies.over_sampling
        if over is not None and over.unfinished == "discard":
            sheet.put("grpo.batch_multiplier", over.ratio, "remedies.over_sampling")


def _trainer(sheet: Sheet) -> None:
    t = sheet.scenario.trainer
    sheet.put("policy.model_name", sheet.scenario.model.base)
    sheet.put("policy.sequence_packing.enabled", t.packing, "trainer.packing")
    if t.micro_batch_size is not None:
        sheet.put("policy.train_micro_batch_size", t.micro_batch_size, "trainer.micro_batch_size")
    elif t.packing:
        sheet.put("policy.sequence_packing.train_mb_tokens", t.micro_batch_tokens, "trainer.micro_batch_tokens")
        sheet.put(
            "policy.sequence_packing.logprob_mb_tokens",
            t.logprob_micro_batch_tokens or t.micro_batch_tokens,
            "trainer.logprob_micro_batch_tokens",
        )
    else:
        sheet.put("policy.dynamic_batching.enabled", True)
        sheet.put("policy.dynamic_batching.train_mb_tokens", t.micro_batch_tokens, "trainer.micro_batch_tokens")
    if t.logprob_micro_batch_size is not None:
        sheet.put("policy.logprob_batch_size", t.logprob_micro_batch_size, "trainer.logprob_micro_batch_size")
    torch = t.backend == "fsdp2"
    sheet.put(f"{DTENSOR}enabled", torch, "trainer.backend")
    sheet.put(f"{MEGATRON}enabled", not torch)
    if torch:
        _dtensor(sheet)
    else:
        _megatron(sheet)


def _dtensor(sheet: Sheet) -> None:
    t = sheet.scenario.trainer
    sheet.rows(TORCH, DTENSOR)
    sheet.put(f"{DTENSOR}sequence_parallel", megatron.sequence_parallel(sheet), "trainer.sequence_parallel")
    sheet.put(f"{DTENSOR}activation_checkpointing", t.recompute != "none")
    if t.recompute != "selective":
        sheet.says("trainer.recompute")
    sheet.put(f"{DTENSOR}cpu_offload", t.optimizer_device == "cpu")
    if t.optimizer_device == "cpu":
        sheet.says("trainer.optimizer_device")


def _megatron(sheet: Sheet) -> None:
    t = sheet.scenario.trainer
    sheet.rows(megatron.SIZES, MEGATRON)
    sheet.put(f"{MEGATRON}expert_tensor_parallel_size", megatron.etp(sheet), "trainer.etp")
    sheet.put(f"{MEGATRON}sequence_parallel", megatron.sequence_parallel(sheet), "trainer.sequence_parallel")
    first, last = megatron.ends(sheet)
    for name, layers in (("first", first), ("last", last)):
        if layers is not None:
            sheet.put(f"{MEGATRON}num_layers_in_{name}_pipeline_stage", layers, "trainer.pp_layers")
    sheet.put(f"{MEGATRON}activation_checkpointing", t.recompute == "full", "trainer.recompute")
    if t.recompute == "selective":
        sheet.put(f"{MEGATRON}recompute_granularity", "selective")
    for key, value in megatron.dispatcher(sheet).items():
        sheet.put(f"{MEGATRON}{key}", value, "trainer.dispatcher")
    prefix = f"{MEGATRON}optimizer."
    sheet.put(f"{prefix}use_distributed_optimizer", True)
    sheet.put(f"{prefix}optimizer_cpu_offload", t.optimizer_device == "cpu")
    if t.optimizer_device == "cpu":
        sheet.put(f"{prefix}optimizer_offload_fraction", 1.0, "trainer.optimizer_device")
    if t.precision == "fp8":
        sheet.put(f"{MEGATRON}fp8_cfg.enabled", True, "trainer.precision")


def _engine(sheet: Sheet) -> None:
    """vLLM's expert parallelism spans TP and an internal DP = EP / TP."""
    entry = sheet.scenario.rollout[0]
    sheet.put("policy.generation.backend", "vllm", "rollout.engine")
    if entry.moe_ep > 1:
        sheet.rule(
            entry.moe_ep == entry.attn_tp * entry.attn_dp,
            f"expert_parallel_size {entry.moe_ep} is TP · internal DP = {entry.attn_tp * entry.attn_dp}",
            "rollout.moe_ep",
            f"a multiple of attn_tp {entry.attn_tp}, and attn_dp = moe_ep / attn_tp",
        )
        sheet.says("rollout.attn_dp")
    else:
        only(sheet, "rollout.attn_dp", (1,))
        sheet.says("rollout.attn_dp")
    sheet.rows(ENGINE, VLLM)
    sheet.rows(ENGINE_MORE, "policy.generation.vllm_kwargs.")
    sheet.put(f"{VLLM}precision", "fp8" if entry.dtype == "fp8" else "bfloat16", "rollout.dtype")
    sheet.put(f"{VLLM}kv_cache_dtype", "fp8" if entry.kv_dtype == "fp8" else "auto", "rollout.kv_dtype")
    sheet.says("rollout.moe_tp", "rollout.return_logprobs")


def _algorithm(sheet: Sheet) -> None:
    work, sync = sheet.scenario.workload, sheet.scenario.weight_sync
    only(sheet, "workload.algorithm", ("grpo",))
    sheet.put("loss_fn.reference_policy_kl_penalty", 0.01 if work.reference_model else 0, "workload.reference_model")
    if work.logprob == "rollout":
        sheet.cannot("workload.logprob", "NeMo-RL always computes the policy's log-probs itself")
    else:
        sheet.put("loss_fn.use_importance_sampling_correction", work.logprob == "decoupled", "workload.logprob")
    if sync.bucket is not None:
        sheet.put("policy.refit_buffer_size_gb", sync.bucket / 2**30, "weight_sync.bucket")
    if sync.strategy == "nemo-reshard":
        sheet.put("policy.generation.refit_transport", "nccl_reshard", "weight_sync.strategy")
    elif sync.strategy in ("auto", "ipc", "broadcast"):
        sheet.says("weight_sync.strategy")
