"""TRL: a scenario as GRPOConfig and accelerate's config, two YAML documents. Keys as of commit f2cd577 (July 2026).

Batches count completions: generation_batch_size = per_device · processes · steps_per_generation.
"""

from __future__ import annotations

from rlsim.frameworks import write
from rlsim.frameworks.sheet import Row, Sheet, begin, cap, mini_batch, nodes, only
from rlsim.scenario.schema import Scenario

NAME = "trl"
GRPO, ACCELERATE = "grpo:", "accelerate:"
BATCH = (
    Row("workload.group_size", "num_generations"),
    Row("workload.updates.epochs", "num_iterations"),
)
ASYNC = (
    Row("async.queue", "queue_maxsize"),
    Row("async.sync_every", "weight_sync_steps"),
)


def export(scenario: Scenario) -> str:
    """GRPOConfig (AsyncGRPOConfig for an asynchronous run), accelerate's config, and the server's command."""
    sheet = begin(NAME, scenario)
    only(sheet, "trainer.backend", ("zero", "fsdp2"))
    only(sheet, "rollout.engine", ("vllm",))
    only(sheet, "workload.algorithm", ("grpo",))
    for key in ("trainer.tp", "trainer.cp", "trainer.ep", "trainer.ulysses", "rollout.pp", "rollout.moe_ep"):
        only(sheet, key, (1,))
    _rollout(sheet)
    _batch(sheet)
    _trainer(sheet)
    _run(sheet)
    kind = "AsyncGRPOConfig" if scenario.schedule == "async" else "GRPOConfig"
    text = write.yaml(sheet, ((f"{kind} (trl grpo --config)", GRPO), ("accelerate launch --config_file", ACCELERATE)))
    return text if scenario.placement == "colocated" else f"{text}\n# server: {_server(sheet)}"


def _rollout(sheet: Sheet) -> None:
    s, entry = sheet.scenario, sheet.scenario.rollout[0]
    asynchronous = s.schedule == "async"
    if not asynchronous:
        sheet.put(f"{GRPO}use_vllm", True)
        sheet.put(f"{GRPO}vllm_mode", "colocate" if s.placement == "colocated" else "server", "placement")
    sheet.says("rollout.engine", "rollout.gpus", "rollout.attn_tp", "rollout.moe_tp", "rollout.attn_dp")
    sheet.says("rollout.moe_ep", "rollout.memory_utilization", "rollout.return_logprobs", "placement")
    if s.placement == "colocated":
        only(sheet, "rollout.attn_dp", (1,))
        sheet.rule(
            s.trainer.gpus % entry.attn_tp == 0,
            f"{s.trainer.gpus} processes are no multiple of vllm_tensor_parallel_size {entry.attn_tp}",
            "rollout.attn_tp",
            "a divisor of the processes",
        )
        sheet.put(f"{GRPO}vllm_tensor_parallel_size", entry.attn_tp)
        sheet.put(f"{GRPO}vllm_gpu_memory_utilization", entry.memory_utilization)
        sheet.put(f"{GRPO}vllm_enable_sleep_mode", True)
    if s.schedule == "one-step-off":
        sheet.cannot("schedule", "TRL's server mode does not overlap generation and training")
    else:
        sheet.says("schedule")
    if asynchronous:
        _asynchronous(sheet)
    if s.weight_sync.strategy in ("auto", "ipc", "trl-server", "broadcast"):
        sheet.says("weight_sync.strategy")


def _asynchronous(sheet: Sheet) -> None:
    s, rules = sheet.scenario, sheet.scenario.async_
    sheet.put(f"{GRPO}max_staleness", int(rules.max_staleness), "async.max_staleness")
    tasks = -1 if rules.max_concurrent is None else rules.max_concurrent * s.workload.group_size
    sheet.put(f"{GRPO}max_inflight_tasks", tasks, "async.max_concurrent")
    sheet.rows(ASYNC, GRPO)
    if rules.policy == NAME:
        sheet.says("async.policy")
    else:
        sheet.cannot("async.policy", "TRL drops samples older than max_staleness; it does not hold them back")
    if rules.on_sync == "in-flight":
        sheet.says("async.on_sync", "async.partial_rollout")


def _server(sheet: Sheet) -> str:
    """The command on the GPUs of the rollout: T·D of them."""
    entry, layout = sheet.scenario.rollout[0], sheet.system.rollout[0].layout
    return (
        f"trl vllm-serve --model {sheet.scenario.model.base} --tensor-parallel-size {entry.attn_tp} "
        f"--data-parallel-size {layout.engines * entry.attn_dp} --gpu-memory-utilization {entry.memory_utilization:g}"
        + (" --enforce-eager" if entry.enforce_eager else "")
    )


def _batch(sheet: Sheet) -> None:
    s = sheet.scenario
    work, t = s.workload, s.trainer
    size, world = t.micro_batch_size, t.gpus
    if size is None:
        sheet.cannot("trainer.micro_batch_tokens", "TRL counts completions: per_device_train_batch_size 1 is put here")
        size = 1
    whole = mini_batch(sheet, work.samples, "completions")
    sheet.rule(
        whole % (size * world) == 0,
        f"{whole} completions an update are no multiple of per_device · processes = {size * world}",
        "workload.prompts",
        f"prompts · group_size / mini_batches a multiple of {size * world}",
    )
    accumulate = whole // (size * world)
    sheet.put(f"{GRPO}per_device_train_batch_size", size, "trainer.micro_batch_size")
    sheet.put(f"{GRPO}gradient_accumulation_steps", accumulate)
    if s.schedule != "async":
        steps = accumulate * work.updates.mini_batches
        sheet.put(f"{GRPO}steps_per_generation", steps, "workload.prompts", "workload.updates.mini_batches")
        sheet.rows(BATCH, GRPO)
    else:
        sheet.put(f"{GRPO}num_generations", work.group_size, "workload.group_size")
        sheet.says("workload.prompts")
        if work.updates.mini_batches > 1:
            sheet.cannot("workload.updates.mini_batches", "an asynchronous step is one update: prompts / mini_batches")
    response = cap(sheet, "response_tokens")
    if response is not None:
        sheet.put(f"{GRPO}max_completion_length", response)
    if work.total_tokens is not None and s.placement == "colocated":
        sheet.put(f"{GRPO}vllm_max_model_length", work.total_tokens.max, "workload.total_tokens.max")
    if s.schedule == "async":
        return
    sheet.put(f"{GRPO}beta", 0.04 if work.reference_model else 0.0, "workload.reference_model")
    sheet.put(f"{GRPO}vllm_importance_sampling_correction", work.logprob != "rollout", "workload.logprob")


def _trainer(sheet: Sheet) -> None:
    t = sheet.scenario.trainer
    sheet.put(f"{GRPO}model_name_or_path", sheet.scenario.model.base)
    sheet.put(f"{GRPO}gradient_checkpointing", t.recompute != "none")
    if t.recompute != "selective":
        sheet.says("trainer.recompute")
    sheet.put(f"{GRPO}bf16", True)
    count, _ = nodes(sheet, t.gpus, "trainer.gpus")
    sheet.put(f"{ACCELERATE}num_machines", count, "cluster.gpus_per_node")
    sheet.put(f"{ACCELERATE}num_processes", t.gpus, "trainer.gpus", "cluster.gpus")
    sheet.put(f"{ACCELERATE}mixed_precision", "bf16")
    if t.backend == "zero":
        sheet.put(f"{ACCELERATE}distributed_type", "DEEPSPEED", "trainer.backend")
        sheet.put(f"{ACCELERATE}deepspeed_config.zero_stage", t.zero_stage, "trainer.zero_stage")
        device = "none" if t.optimizer_device == "gpu" else t.optimizer_device
        sheet.put(f"{ACCELERATE}deepspeed_config.offload_optimizer_device", device, "trainer.optimizer_device")
        return
    sheet.put(f"{ACCELERATE}distributed_type", "FSDP", "trainer.backend")
    sheet.put(f"{ACCELERATE}fsdp_config.fsdp_version", 2)
    prefix = f"{ACCELERATE}fsdp_config."
    sheet.put(f"{prefix}fsdp_reshard_after_forward", t.reshard_after_forward, "trainer.reshard_after_forward")
    sheet.put(f"{prefix}fsdp_offload_params", t.optimizer_device == "cpu")
    if t.optimizer_device == "cpu":
        sheet.says("trainer.optimizer_device")


def _run(sheet: Sheet) -> None:
    """TRL counts optimizer updates, of which a step has mini_batches · epochs."""
    run, updates = sheet.scenario.run, sheet.scenario.workload.updates
    each = updates.mini_batches * updates.epochs
    if run.checkpoint_every is not None:
        sheet.put(f"{GRPO}save_steps", run.checkpoint_every * each, "run.checkpoint_every")
    if run.eval is not None:
        sheet.put(f"{GRPO}eval_steps", run.eval.every * each, "run.eval.every")
