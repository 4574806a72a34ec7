"""verl: a scenario as Hydra overrides. Keys as of commit 1dda039 (August 2026).

Co-located runs and asynchronous ones of other policies are for the v1 trainer, one-step-off and policy `verl` for their
own modules, whose keys differ.
"""

from __future__ import annotations

from rlsim.frameworks import megatron, write
from rlsim.frameworks.sheet import Row, Sheet, begin, cap, concurrency_per_engine, mini_batch, nodes, only, per_gpu
from rlsim.scenario.schema import Scenario
from rlsim.sync_settings import sync_bucket

NAME = "verl"
ACTOR, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
ENGINE = (
    Row("rollout.engine", "name"),
    Row("rollout.attn_tp", "tensor_model_parallel_size"),
    Row("rollout.attn_dp", "data_parallel_size"),
    Row("rollout.moe_ep", "expert_parallel_size"),
    Row("rollout.pp", "pipeline_model_parallel_size"),
    Row("rollout.memory_utilization", "gpu_memory_utilization"),
    Row("rollout.max_num_seqs", "max_num_seqs"),
    Row("rollout.max_num_batched_tokens", "max_num_batched_tokens"),
    Row("rollout.chunked_prefill", "enable_chunked_prefill"),
    Row("rollout.prefix_caching", "enable_prefix_caching"),
    Row("rollout.enforce_eager", "enforce_eager"),
    Row("rollout.return_logprobs", "calculate_log_probs"),
    Row("workload.group_size", "n"),
)
FSDP = (
    Row("trainer.ulysses", "ulysses_sequence_parallel_size"),
    Row("trainer.reshard_after_forward", "fsdp_config.reshard_after_forward"),
    Row("trainer.param_dtype", "fsdp_config.model_dtype"),
)
RUN = (
    Row("run.checkpoint_every", "trainer.save_freq"),
    Row("run.eval.every", "trainer.test_freq"),
)
LEGACY_ASYNC = (
    Row("async.require_batches", "require_batches"),
    Row("async.partial_rollout", "partial_rollout"),
)
SYNCS = {"auto": None, "ipc": "naive", "verl-naive-ipc": "naive", "broadcast": "nccl", "verl-nccl": "nccl"}
SYNCS |= {"delta": "delta_sharded", "checkpoint-engine": "kimi_ckpt_engine"}


def export(scenario: Scenario) -> str:
    """Overrides of the entry point that has this placement and schedule."""
    sheet = begin(NAME, scenario)
    only(sheet, "trainer.backend", ("fsdp2", "megatron"))
    module = _placement(sheet)
    _batch(sheet)
    _trainer(sheet)
    _engine(sheet)
    _algorithm(sheet)
    _sync(sheet)
    _run(sheet)
    config = " --config-name=ppo_megatron_trainer" if scenario.trainer.backend == "megatron" else ""
    return write.hydra(f"python3 -m {module}{_config(module, config)}", sheet)


def _config(module: str, default: str) -> str:
    """The experimental entry points have config files of their own."""
    kind = "_megatron" if default else ""
    if module.endswith("fully_async_main"):
        return f" --config-name=fully_async_ppo{kind}_trainer"
    if module.startswith("verl.experimental.one_step_off"):
        return f" --config-name=one_step_off_ppo{kind}_trainer"
    return default


def _placement(sheet: Sheet) -> str:
    """Nodes of either side, and the module that is run."""
    s = sheet.scenario
    count, each = nodes(sheet, s.trainer.gpus, "trainer.gpus")
    sheet.put("trainer.nnodes", count, "trainer.gpus", "cluster.gpus")
    sheet.put("trainer.n_gpus_per_node", each, "cluster.gpus_per_node")
    if s.placement == "colocated":
        sheet.put("actor_rollout_ref.hybrid_engine", True, "placement")
        sheet.put("trainer.v1.trainer_mode", "sync", "schedule")
        sheet.says("rollout.gpus")
        return "verl.trainer.main_ppo"
    count, each = nodes(sheet, s.rollout[0].gpus, "rollout.gpus")
    legacy = s.schedule != "async" or s.async_.policy == NAME
    prefix = "rollout." if legacy else ROLLOUT
    sheet.put(f"{prefix}nnodes", count, "rollout.gpus")
    sheet.put(f"{prefix}n_gpus_per_node", each)
    sheet.says("placement")
    if not legacy:
        _separate_async(sheet)
        return "verl.trainer.main_ppo"
    sheet.put("actor_rollout_ref.hybrid_engine", False)
    if s.schedule == "async":
        _fully_async(sheet)
        return "verl.experimental.fully_async_policy.fully_async_main"
    if s.schedule == "sync":
        sheet.cannot("placement", "verl has no synchronous disaggregated run; these are the keys of one-step-off")
    else:
        sheet.says("schedule")
    return "verl.experimental.one_step_off_policy.main_ppo"


def _fully_async(sheet: Sheet) -> None:
    rules, prefix = sheet.scenario.async_, "async_training."
    sheet.put(f"{prefix}staleness_threshold", 0.1 if rules.theta is None else rules.theta, "async.theta", "schedule")
    sheet.put(f"{prefix}trigger_parameter_sync_step", rules.sync_every or 4, "async.sync_every")
    sheet.rows(LEGACY_ASYNC, prefix)
    concurrent = concurrency_per_engine(sheet)
    if concurrent is not None:
        sheet.put(f"{prefix}concurrent_samples_per_replica", concurrent, "async.max_concurrent")
    sheet.put("data.gen_batch_size", 1)
    sheet.says("async.policy", "async.max_staleness")
    sheet.put("async_training.use_dynamic_resource_scheduling", sheet.scenario.remedies.elastic is not None)
    _on_sync(sheet)


def _separate_async(sheet: Sheet) -> None:
    """v1: one weight sync after all mini-batches of a step; spans are staleness + 1."""
    s = sheet.scenario
    sheet.put("trainer.v1.trainer_mode", "separate_async", "schedule")
    every = (s.async_.sync_every or 1) * s.workload.updates.mini_batches
    sheet.put("trainer.v1.separate_async.parameter_sync_step", every)
    if (s.async_.sync_every or 1) > 1:
        sheet.cannot(
            "async.sync_every", "train_batch_size = parameter_sync_step · ppo_mini_batch_size ties it to a step"
        )
    sheet.put("trainer.v1.separate_async.num_warmup_batches", max(1, int(s.async_.max_staleness)))
    sheet.put("trainer.v1.sampler.max_off_policy_threshold", int(s.async_.max_staleness) + 1, "async.max_staleness")
    strategy = "drop" if s.async_.overtaken == "drop" else "wait"
    sheet.put("trainer.v1.sampler.max_off_policy_strategy", strategy, "async.overtaken")
    sheet.cannot("async.policy", "verl bounds the span of every prompt; the threshold above is the nearest")
    switch = "trainer.v1.separate_async.hybrid_rollout."
    sheet.put(f"{switch}enable_switch", s.remedies.elastic is not None)
    if s.remedies.elastic is not None:
        sheet.put(f"{switch}switch_threshold_ratio", s.remedies.elastic.below, "remedies.elastic.below")
    _on_sync(sheet)


def _on_sync(sheet: Sheet) -> None:
    """verl aborts running requests and prefills them again, or drains without partial rollout."""
    rules = sheet.scenario.async_
    if rules.on_sync == ("interrupt" if rules.partial_rollout else "drain"):
        sheet.says("async.on_sync", "async.partial_rollout")


def _batch(sheet: Sheet) -> None:
    s = sheet.scenario
    work, dp = s.workload, sheet.system.trainer.dp
    mini = mini_batch(sheet, work.prompts, "data.train_batch_size")
    sheet.rule(
        mini * work.group_size % dp == 0,
        f"ppo_mini_batch_size · n = {mini * work.group_size} samples are no multiple of the {dp} data-parallel ranks",
        "workload.prompts",
        f"prompts · group_size / mini_batches a multiple of {dp}",
    )
    if s.schedule == "async" and s.async_.policy == NAME:
        sheet.put("data.train_batch_size", 0, "workload.prompts")
    else:
        sheet.put("data.train_batch_size", work.prompts, "workload.prompts")
    sheet.put(f"{ACTOR}ppo_mini_batch_size", mini, "workload.updates.mini_batches")
    sheet.put(f"{ACTOR}ppo_epochs", work.updates.epochs, "workload.updates.epochs")
    for which, key in (("prompt_tokens", "max_prompt_length"), ("response_tokens", "max_response_length")):
        longest = cap(sheet, which)
        if longest is not None:
            sheet.put(f"data.{key}", longest)
    if work.total_tokens is not None:
        sheet.put(f"{ROLLOUT}max_model_len", work.total_tokens.max, "workload.total_tokens.max")
    if work.dynamic_sampling is not None:
        sheet.put("algorithm.filter_groups.enable", True, "workload.dynamic_sampling")
        sheet.put("algorithm.filter_groups.max_num_gen_batches", work.dynamic_sampling.max_batches)


def _trainer(sheet: Sheet) -> None:
    t, s = sheet.scenario.trainer, sheet.scenario
    fsdp = t.backend == "fsdp2"
    sheet.put(f"{ACTOR}strategy", t.backend, "trainer.backend")
    sheet.put("actor_rollout_ref.model.path", s.model.base)
    sheet.put("actor_rollout_ref.model.use_remove_padding", t.packing, "trainer.packing")
    sheet.put("trainer.balance_batch", t.balance == "tokens", "trainer.balance")
    if s.model.lora is not None:
        sheet.put("actor_rollout_ref.model.lora_rank", s.model.lora.rank, "model.lora.rank")
        if s.model.lora.targets == "all-linear":
            sheet.says("model.lora.targets")
    _micro_batches(sheet)
    if fsdp:
        sheet.rows(FSDP, ACTOR)
        sheet.put(f"{ACTOR}fsdp_config.fsdp_size", t.fsdp_size or -1, "trainer.fsdp_size")
        sheet.put("actor_rollout_ref.model.enable_gradient_checkpointing", t.recompute != "none")
        if t.recompute != "selective":
            sheet.says("trainer.recompute")
        sheet.put(f"{ACTOR}fsdp_config.offload_policy", t.optimizer_device == "cpu")
        block = "fsdp_config."
    else:
        _megatron(sheet)
        block = "megatron."
    if t.optimizer_device == "cpu":
        sheet.says("trainer.optimizer_device")
    moved = s.placement == "colocated"
    sheet.put(f"{ACTOR}{block}param_offload", moved and s.offload.params, "offload.params")
    sheet.put(f"{ACTOR}{block}optimizer_offload", moved and s.offload.optimizer, "offload.optimizer")
    if not fsdp:
        sheet.put(f"{ACTOR}{block}grad_offload", moved and s.offload.grads, "offload.grads")


def _megatron(sheet: Sheet) -> None:
    t, prefix = sheet.scenario.trainer, f"{ACTOR}megatron."
    extra = f"+{prefix}override_transformer_config."
    sheet.rows(megatron.SIZES, prefix)
    sheet.put(f"{prefix}expert_tensor_parallel_size", megatron.etp(sheet), "trainer.etp")
    sheet.put(f"{prefix}virtual_pipeline_model_parallel_size", t.vpp if t.vpp > 1 else None, "trainer.vpp")
    sheet.put(f"{prefix}sequence_parallel", megatron.sequence_parallel(sheet), "trainer.sequence_parallel")
    first, last = megatron.ends(sheet)
    for name, layers in (("first", first), ("last", last)):
        if layers is not None:
            sheet.put(f"{extra}num_layers_in_{name}_pipeline_stage", layers, "trainer.pp_layers")
    for key, value in megatron.recompute(sheet).items():
        sheet.put(f"{extra}{key}", value, "trainer.recompute")
    sheet.says("trainer.recompute")
    for key, value in megatron.dispatcher(sheet).items():
        sheet.put(f"{extra}{key}", value, "trainer.dispatcher")
    if t.optimizer_device == "cpu":
        override = f"+{ACTOR}optim.override_optimizer_config."
        sheet.put(f"{override}optimizer_cpu_offload", True)
        sheet.put(f"{override}optimizer_offload_fraction", 1.0)


def _micro_batches(sheet: Sheet) -> None:
    """Token budgets are per GPU: those of a rank over its sequence-parallel GPUs."""
    t = sheet.scenario.trainer
    passes = (
        ("", ACTOR, ("ppo_max_token_len_per_gpu", "ppo_micro_batch_size_per_gpu", "use_dynamic_bsz")),
        (
            "logprob_",
            ROLLOUT,
            ("log_prob_max_token_len_per_gpu", "log_prob_micro_batch_size_per_gpu", "log_prob_use_dynamic_bsz"),
        ),
    )
    split = t.cp * t.ulysses
    for own, prefix, (tokens_key, size_key, dynamic_key) in passes:
        tokens, size = getattr(t, f"{own}micro_batch_tokens"), getattr(t, f"{own}micro_batch_size")
        if tokens is None and size is None:
            own, tokens, size = "", t.micro_batch_tokens, t.micro_batch_size
        sheet.put(prefix + dynamic_key, size is None)
        if size is not None:
            sheet.put(prefix + size_key, size, f"trainer.{own}micro_batch_size")
        elif tokens is not None:
            key = f"trainer.{own}micro_batch_tokens"
            sheet.put(prefix + tokens_key, per_gpu(sheet, key, tokens, split, "sequence-parallel"), key)


def _engine(sheet: Sheet) -> None:
    entry = sheet.scenario.rollout[0]
    sheet.rows(ENGINE, ROLLOUT)
    sheet.rule(
        entry.gpus % entry.gpus_per_engine == 0,
        f"{entry.gpus} rollout GPUs are no multiple of TP · DP · PP = {entry.gpus_per_engine}",
        "rollout.gpus",
        f"a multiple of {entry.gpus_per_engine}",
    )
    sheet.rule(
        entry.moe_ep in (1, entry.attn_tp * entry.attn_dp),
        f"experts are parallel over all TP · DP = {entry.attn_tp * entry.attn_dp} ranks of an engine, or over none",
        "rollout.moe_ep",
        f"1 or {entry.attn_tp * entry.attn_dp}",
    )
    sheet.says("rollout.moe_tp")
    if entry.dtype == "fp8":
        sheet.put(f"{ROLLOUT}quantization", "fp8", "rollout.dtype")
    if entry.kv_dtype == "fp8":
        value = {"vllm": "fp8", "sglang": "fp8_e4m3", "trtllm": "fp8"}[entry.engine]
        sheet.put(f"+{ROLLOUT}engine_kwargs.{entry.engine}.kv_cache_dtype", value, "rollout.kv_dtype")
    if entry.block_size != 16 and entry.engine != "trtllm":
        key = "block_size" if entry.engine == "vllm" else "page_size"
        sheet.put(f"+{ROLLOUT}engine_kwargs.{entry.engine}.{key}", entry.block_size, "rollout.block_size")


def _algorithm(sheet: Sheet) -> None:
    work = sheet.scenario.workload
    sheet.put("algorithm.adv_estimator", "grpo" if work.algorithm == "grpo" else "gae", "workload.algorithm")
    bypass = work.logprob == "rollout"
    sheet.put("algorithm.rollout_correction.bypass_mode", bypass, "workload.logprob")
    if work.logprob == "decoupled":
        sheet.put("algorithm.rollout_correction.rollout_is", "token")
    sheet.put(f"{ACTOR}use_kl_loss", work.reference_model, "workload.reference_model")
    model = sheet.scenario.roles.reward_model
    if model is not None and model.gpus is not None and work.reward.kind == "model":
        count, each = nodes(sheet, model.gpus, "roles.reward_model.gpus")
        prefix = "reward.reward_model."
        sheet.put(f"{prefix}enable", True)
        sheet.put(f"{prefix}enable_resource_pool", True)
        sheet.put(f"{prefix}nnodes", count, "roles.reward_model.gpus")
        sheet.put(f"{prefix}n_gpus_per_node", each)
        sheet.put(f"{prefix}rollout.tensor_model_parallel_size", model.tp, "roles.reward_model.tp")


def _sync(sheet: Sheet) -> None:
    s = sheet.scenario
    prefix = f"{ROLLOUT}checkpoint_engine."
    default = "naive" if s.placement == "colocated" else "nccl"
    strategy = s.weight_sync.strategy
    if strategy in SYNCS:
        sheet.put(f"{prefix}backend", SYNCS[strategy] or default, "weight_sync.strategy")
    else:
        sheet.put(f"{prefix}backend", default)
    size = sync_bucket(s, NAME) / 2**20
    sheet.put(f"{prefix}update_weights_bucket_megabytes", round(size), "weight_sync.bucket")


def _run(sheet: Sheet) -> None:
    run = sheet.scenario.run
    sheet.rows(RUN)
    if run.checkpoint_every is not None:
        sheet.put(f"{ACTOR}checkpoint.async_save", run.checkpoint.mode == "async", "run.checkpoint.mode")
    if run.eval is not None and run.eval.samples > 1:
        sheet.put(f"{ROLLOUT}val_kwargs.n", run.eval.samples, "run.eval.samples")
