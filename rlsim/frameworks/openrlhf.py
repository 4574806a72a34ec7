"""OpenRLHF: a scenario as flags of `openrlhf.cli.train_ppo_ray`. Flags as of 0.11.0 (August 2026), the dotted ones."""

from __future__ import annotations

from rlsim.frameworks import write
from rlsim.frameworks.sheet import Row, Sheet, begin, cap, mini_batch, nodes, only, per_gpu
from rlsim.scenario.schema import Scenario

NAME = "openrlhf"
ENGINE = (
    Row("rollout.attn_tp", "vllm.tensor_parallel_size"),
    Row("rollout.memory_utilization", "vllm.gpu_memory_utilization"),
    Row("rollout.enforce_eager", "vllm.enforce_eager"),
    Row("rollout.prefix_caching", "vllm.enable_prefix_caching"),
)
BATCH = (
    Row("workload.prompts", "rollout.batch_size"),
    Row("workload.group_size", "rollout.n_samples_per_prompt"),
)
TRAINER = (
    Row("trainer.zero_stage", "ds.zero_stage"),
    Row("trainer.tp", "ds.tensor_parallel_size"),
    Row("trainer.cp", "ds.ring_attn_size"),
    Row("trainer.packing", "ds.packing_samples"),
)
RUN = (
    Row("run.checkpoint_every", "ckpt.save_steps"),
    Row("run.eval.every", "eval.steps"),
)


def export(scenario: Scenario) -> str:
    """Flags of the Ray trainer."""
    sheet = begin(NAME, scenario)
    only(sheet, "trainer.backend", ("zero",))
    only(sheet, "rollout.engine", ("vllm",))
    for key in ("trainer.pp", "trainer.ulysses", "rollout.attn_dp", "rollout.pp", "rollout.moe_ep"):
        only(sheet, key, (1,))
    _placement(sheet)
    _batch(sheet)
    _trainer(sheet)
    sheet.rows(ENGINE)
    sheet.says("rollout.moe_tp", "rollout.attn_dp", "rollout.moe_ep", "rollout.engine", "rollout.return_logprobs")
    _algorithm(sheet)
    sheet.rows(RUN)
    return write.flags("python3 -m openrlhf.cli.train_ppo_ray", sheet)


def _placement(sheet: Sheet) -> None:
    s = sheet.scenario
    count, each = nodes(sheet, s.trainer.gpus, "trainer.gpus")
    sheet.put("actor.num_nodes", count, "trainer.gpus", "cluster.gpus")
    sheet.put("actor.num_gpus_per_node", each, "cluster.gpus_per_node")
    engines, tp = sheet.system.rollout[0].layout.engines, s.rollout[0].attn_tp
    sheet.put("vllm.num_engines", engines, "rollout.gpus")
    if s.placement == "colocated":
        sheet.rule(
            engines * tp == s.trainer.gpus,
            f"colocate_all needs actor GPUs {s.trainer.gpus} = engines · TP = {engines * tp}",
            "rollout.attn_tp",
            "engines on all of the trainer's GPUs",
        )
        sheet.put("train.colocate_all", True, "placement")
        sheet.put("vllm.enable_sleep", True)
        moved = s.offload.optimizer
        sheet.put("ds.enable_sleep", moved, "offload.optimizer", "offload.grads")
        if moved:
            stage = s.trainer.zero_stage
            sheet.rule(stage == 3, f"ds.enable_sleep needs ZeRO stage 3, not {stage}", "trainer.zero_stage", "3")
        if s.offload.params:
            sheet.cannot("offload.params", "DeepSpeed's 16-bit parameters stay on the GPU")
        else:
            sheet.says("offload.params")
        sheet.says("schedule")
        return
    sheet.says("placement")
    if s.schedule == "sync":
        sheet.says("schedule")
        return
    sheet.put("train.async_enable", True, "schedule")
    rules = s.async_
    queue = rules.queue or 1 if s.schedule == "async" else 1
    sheet.put("train.async_queue_size", queue, "async.queue")
    partial = s.schedule == "async" and rules.on_sync == "in-flight"
    sheet.put("train.partial_rollout_enable", partial, "async.partial_rollout")
    if s.schedule == "async" and rules.on_sync in ("in-flight", "drain"):
        sheet.says("async.on_sync")
    if s.schedule == "async" and rules.policy != NAME:
        sheet.cannot("async.policy", "OpenRLHF bounds the queue of finished batches, not the staleness")
    else:
        sheet.says("async.policy", "async.max_staleness")


def _batch(sheet: Sheet) -> None:
    s = sheet.scenario
    work, t, dp = s.workload, s.trainer, sheet.system.trainer.dp
    sheet.rows(BATCH)
    whole = mini_batch(sheet, work.samples, "rollout.batch_size · n_samples_per_prompt =")
    step = dp * (t.micro_batch_size or 1)
    sheet.rule(
        whole % step == 0,
        f"train.batch_size {whole} is no multiple of micro_batch_size · data-parallel ranks = {step}",
        "workload.prompts",
        f"prompts · group_size / mini_batches a multiple of {step}",
    )
    sheet.put("train.batch_size", whole, "workload.updates.mini_batches")
    if work.updates.epochs > 1:
        sheet.cannot("workload.updates.epochs", "set max_epochs, whose flag differs between versions")
    prompt, response = cap(sheet, "prompt_tokens"), cap(sheet, "response_tokens")
    if response is not None:
        sheet.put("rollout.max_new_tokens", response)
    if work.total_tokens is not None:
        sheet.put("data.max_len", work.total_tokens.max, "workload.total_tokens.max")
    elif prompt is not None and response is not None:
        sheet.put("data.max_len", prompt + response)
    over = s.remedies.over_sampling
    if work.dynamic_sampling is not None:
        sheet.put("algo.dynamic_filtering_enable", True, "workload.dynamic_sampling.refill")
    if over is not None:
        sheet.cannot("remedies.over_sampling", "vllm_generate_batch_size buffers the surplus, it does not abort it")


def _trainer(sheet: Sheet) -> None:
    t = sheet.scenario.trainer
    sheet.cannot("model.base", "give it as the actor's checkpoint")
    sheet.says("trainer.backend")
    sheet.rows(TRAINER)
    sheet.put("ds.param_dtype", "bf16")
    sheet.put("ds.adam_offload", t.optimizer_device == "cpu")
    if t.optimizer_device == "cpu":
        sheet.says("trainer.optimizer_device")
    sheet.put("actor.gradient_checkpointing_enable", t.recompute != "none")
    if t.recompute != "selective":
        sheet.says("trainer.recompute")
    if t.micro_batch_tokens is not None:
        sheet.put("train.dynamic_batch_enable", True)
        tokens = _budget(sheet, t.micro_batch_tokens, "micro_batch_tokens")
        sheet.put("train.max_tokens_per_gpu", tokens, "trainer.micro_batch_tokens")
    else:
        sheet.put("train.micro_batch_size", t.micro_batch_size, "trainer.micro_batch_size")
    if t.logprob_micro_batch_size is not None:
        sheet.put("rollout.micro_batch_size", t.logprob_micro_batch_size, "trainer.logprob_micro_batch_size")
    elif t.logprob_micro_batch_tokens is not None:
        tokens = _budget(sheet, t.logprob_micro_batch_tokens, "logprob_micro_batch_tokens")
        sheet.put("rollout.max_tokens_per_gpu", tokens, "trainer.logprob_micro_batch_tokens")


def _budget(sheet: Sheet, tokens: int, key: str) -> int:
    return per_gpu(sheet, f"trainer.{key}", tokens, sheet.scenario.trainer.cp, "ring-attention")


def _algorithm(sheet: Sheet) -> None:
    s, work = sheet.scenario, sheet.scenario.workload
    sheet.put("algo.advantage.estimator", "group_norm" if work.algorithm == "grpo" else "gae", "workload.algorithm")
    if work.logprob == "rollout":
        sheet.cannot("workload.logprob", "OpenRLHF always computes the old log-probs itself")
    else:
        sheet.put("algo.advantage.is_correction_enable", work.logprob == "decoupled", "workload.logprob")
    sheet.put("algo.kl.init_coef", 0.01 if work.reference_model else 0.0, "workload.reference_model")
    for name in ("reference", "reward_model", "critic"):
        role = getattr(s.roles, name)
        if role is not None and role.gpus is not None:
            flag = {"reference": "ref", "reward_model": "reward", "critic": "critic"}[name]
            count, each = nodes(sheet, role.gpus, f"roles.{name}.gpus")
            sheet.put(f"{flag}.num_nodes", count, f"roles.{name}.gpus")
            sheet.put(f"{flag}.num_gpus_per_node", each)
    if work.reference_model and s.roles.reference is None and s.placement != "colocated":
        sheet.put("train.colocate_actor_ref", True)
    if s.weight_sync.strategy in ("auto", "openrlhf-broadcast", "broadcast", "ipc"):
        sheet.put("vllm.sync_backend", "nccl", "weight_sync.strategy")
