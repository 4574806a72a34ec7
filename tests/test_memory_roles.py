"""Bytes of the models besides the policy."""

from __future__ import annotations

from typing import Any

import pytest

from rlsim.memory import check_memory, measure
from rlsim.memory_roles import critic_beside, staying_states
from rlsim.memory_trainer import state_bytes
from rlsim.roles import role_system
from rlsim.system import System, resolve
from tests.layout_cases import case

QWEN7 = "Qwen/Qwen2.5-7B"


def system(workload: dict[str, Any], **blocks: Any) -> System:
    return resolve(case(QWEN7, blocks.pop("trainer", {"gpus": 8}), workload=workload, **blocks))


def test_colocated_critic_comes_and_goes() -> None:
    grpo, ppo = measure(system({})), measure(system({"algorithm": "ppo"}))
    # the policy's own moments are as without a critic, and so is the KV cache; only the host holds more
    assert ppo.moments["train"].total == grpo.moments["train"].total
    assert ppo.kv_tokens_per_rank == grpo.kv_tokens_per_rank
    assert ppo.host.parts["critic"] > 0.9 * (grpo.host.parts["optimizer states"] + grpo.host.parts["weights"])
    # the critic has no logits: one output a token
    assert ppo.moments["critic update"].parts["logits"] < 1e-3 * ppo.moments["train"].parts["logits"]


def test_what_does_not_leave_stays_beside_everything() -> None:
    staying = {"optimizer": False, "params": False, "grads": False}
    s = system({"algorithm": "ppo"}, offload=staying)
    critic = sum(state_bytes(role_system(s, "critic"), 0).values())
    assert critic_beside(s) == {"critic": pytest.approx(critic)}
    ppo, grpo = measure(s), measure(system({}, offload=staying))
    assert ppo.moments["train"].total == pytest.approx(grpo.moments["train"].total + critic)
    resident = ppo.moments["rollout"].parts["trainer resident"] - grpo.moments["rollout"].parts["trainer resident"]
    assert resident == pytest.approx(critic)
    assert ppo.moments["critic update"].parts["policy"] == pytest.approx(staying_states(s))


def test_roles_with_gpus_of_their_own() -> None:
    roles = {"critic": {"gpus": 4}, "reference": {"gpus": 2, "tp": 2}}
    work = {"algorithm": "ppo", "reference_model": True}
    cluster = {"gpu": "h100-sxm", "gpus": 16, "nic": "50 GB/s"}
    blocks = {"roles": roles, "placement": "disaggregated", "cluster": cluster, "rollout": {"gpus": 2, "tp": 1}}
    report = measure(system(work, **blocks))
    # 2·7.616e9/2 bytes of the reference on each of two GPUs
    assert report.roles["reference"].parts["weights"] == pytest.approx(7.616e9, rel=1e-3)
    assert report.moments.keys() & {"critic update", "reference"} == set()
    assert report.roles["critic"].parts["weights"] == pytest.approx(2 * 7.07e9, rel=0.01)  # megatron: whole on each
    # the policy keeps its LM head and the logits, which is too much; the critic fits
    assert {p.role for p in report.problems} == {"trainer"}


def test_a_role_that_does_not_fit_is_told_what_would() -> None:
    roles = {"reference": {"gpus": 2, "model": "Qwen/Qwen2.5-72B"}}
    cluster = {"gpu": "h100-sxm", "gpus": 24}
    rollout = {"gpus": 8, "tp": 1}
    s = system({"reference_model": True}, roles=roles, placement="disaggregated", cluster=cluster, rollout=rollout)
    (problem,) = (p for p in check_memory(s).problems if p.role == "reference")
    # 2·72.7e9 bytes: 145 GB on one of 85, 73 GB and the pass on one of two
    assert problem.need > 145e9
    assert problem.fix.startswith("roles.reference: {gpus: ")
    tp = int(problem.fix.split("tp: ")[1].split("}")[0])
    wide = system(
        {"reference_model": True},
        roles={"reference": {**roles["reference"], "gpus": tp, "tp": tp}},
        placement="disaggregated",
        cluster=cluster,
        rollout=rollout,
    )
    assert "reference" not in {p.role for p in check_memory(wide).problems}
