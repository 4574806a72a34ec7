"""Weight-sync records: one synchronisation of a published system, priced as its framework does it.

What a row's number includes differs; each case says which parts of the price it is compared with:

- verl's total_sync_s and nccl times: the whole call, gather, wire, load and fixed part.
- checkpoint-engine: copy to the GPU, broadcast and reload of weights that lie in pinned host memory; no trainer gather.
- vLLM sharded RDT: the pull of every rank's slices and their load.
- mooncake benchmark of verl: receiving only, no load into an engine.
- delta: sparse update instead of the full weights, where the changed share is given.

Layouts of the trainer that a record leaves open are filled in with what the framework's example for that model uses;
the note says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rlsim.costs.transfer import weight_sync_cost
from rlsim.costs.transfer_build import sync_case
from rlsim.costs.transfer_strategies import STRATEGIES
from rlsim.scenario import scenario_from_dict
from rlsim.system import resolve
from validation.published import names, rl
from validation.published.facts import whole
from validation.published.records import Record, SkipError


@dataclass(frozen=True)
class Case:
    """One published time.

    without    parts of the price that the number leaves out
    link_only  the number is the busiest link's time alone
    values     what the row's version has otherwise than the profile
    """

    quantity: str
    scenario: Mapping[str, Any]
    measured: float
    without: tuple[str, ...] = ()
    link_only: bool = False
    values: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


def convert(record: Record) -> tuple[Case, ...]:
    """The times of one record; `SkipError` where it does not say enough."""
    c = record.config
    m, text = record.measured, f"{record.config} {record.reference}".lower()
    if record.kind == "offload":
        raise SkipError("the GPUs, or the bytes that move, are not stated")
    if "update_broadcast_s" in m:
        return (_checkpoint_engine(record),)
    if "total_sync_s" in m and "checkpoint_engine" in c:
        return (_verl_megatron(record),)
    if "nccl_full_broadcast_s" in m:
        return _verl_delta(record)
    if "ascend" in text or "910" in text:
        raise SkipError("Ascend's transfers are not modelled")
    if "mooncake" in text and "time_s" in m:
        return (_mooncake(record),)
    if "rdt" in text and "sync_s" in m:
        return (_rdt(record),)
    if "nccl_s" in m:
        trainer = {"gpus": 8, "backend": "megatron", "tp": 4, "ep": 2, "etp": 1}
        scenario = _scenario("Qwen/Qwen3-30B-A3B", "h100-sxm", trainer, {"gpus": 8, "tp": 4})
        return (Case("nccl_s", scenario, _middle(record.measured["nccl_s"]), note="8 + 8 GPUs, rollout TP 4 assumed"),)
    if "disk" in text or "s3" in text:
        raise SkipError("deltas through disks or object stores are not modelled")
    return (_general(record),)


def _general(record: Record) -> Case:
    """Trainer and rollout GPUs of a named model; the framework's own method between them."""
    c = record.config
    keys = ("total_sync_s", "sync_s", "broadcast_median_s", "sync_median_s", "weight_sync_s", "time_s")
    key = next((k for k in keys if k in record.measured), None)
    if key is None:
        raise SkipError("no time of a synchronisation is in the record")
    model = names.model(c.get("model"))
    train, roll = whole(c, "trainer_gpus"), whole(c, "rollout_gpus", "receivers")
    if not train or not roll:
        raise SkipError("the number of GPUs is not in the record")
    backend = "megatron" if "megatron" in str(c.get("train_backend", "")).lower() else "fsdp2"
    trainer = {"gpus": train, "backend": backend, "tp": whole(c, "train_tp") or 1}
    rollout = {"gpus": roll, "tp": whole(c, "generation_tp", "tp") or min(2, roll)}
    scenario = _scenario(model, names.gpu(c.get("gpu")), trainer, rollout, rl.framework(record))
    return Case(key, scenario, _middle(record.measured[key]), note="layouts assumed")


def price(case: Case) -> tuple[float, float, dict[str, float]]:
    """(seconds, floor, parts) of the published figure."""
    system = resolve(scenario_from_dict(dict(case.scenario)))
    system = replace(system, profile=system.profile.with_values(**case.values))
    if case.link_only:
        seconds = STRATEGIES[case.scenario["weight_sync"]["strategy"]](sync_case(system)).link_seconds
        return seconds, weight_sync_cost(system).floor_seconds, {"wire": seconds}
    cost = weight_sync_cost(system)
    parts = {name: seconds for name, seconds in cost.parts.items() if name not in case.without}
    return sum(parts.values()), cost.floor_seconds if not case.without else 0.0, parts


def _scenario(
    model: str, gpu: str, trainer: dict[str, Any], rollout: dict[str, Any], framework: str = "verl", **sync: Any
) -> dict[str, Any]:
    gpus = trainer["gpus"] + rollout["gpus"]
    return {
        "model": model,
        "framework": framework,
        "cluster": {"gpu": gpu, "gpus": -(-gpus // 8) * 8, "gpus_per_node": 8},
        "workload": {"prompts": 64, "group_size": 8, "prompt_tokens": 512, "response_tokens": 512},
        "placement": "disaggregated",
        "trainer": trainer,
        "rollout": {"engine": "sglang", **rollout},
        "weight_sync": sync or {"strategy": "auto"},
    }


def _middle(value: Any) -> float:
    return sum(value) / len(value) if isinstance(value, list) else float(value)


def _checkpoint_engine(record: Record) -> Case:
    """Weights in the pinned memory of all hosts; the part that every instance shares."""
    c = record.config
    n, fp8 = c["gpus_total"], "FP8" in c["model"]
    rollout = {"gpus": n, "engine": "vllm", "tp": c["generation_tp"], "ep": c["generation_tp"]}
    rollout |= {"dtype": "fp8" if fp8 else "bf16"}
    scenario = _scenario(
        names.model(c["model"]), names.gpu(c["gpu"]), {"gpus": n, "backend": "fsdp2"}, rollout, "generic"
    )
    scenario["placement"] = "colocated"
    scenario["cluster"]["gpus"] = n
    bucket = f"{c['broadcast_bucket_gib']} GiB"
    scenario["weight_sync"] = {"strategy": "host", "bucket": bucket, "wire_dtype": "fp8" if fp8 else "bf16"}
    return Case("update_broadcast_s", scenario, record.measured["update_broadcast_s"], ("device_to_host", "fixed"))


def _verl_megatron(record: Record) -> Case:
    """Fully asynchronous verl on H20, Megatron trainer; its example's layout."""
    c = record.config
    big = "235B" in c["model"]
    trainer = {"gpus": c["trainer_gpus"], "backend": "megatron", "tp": 4, "pp": 8 if big else 1, "ep": 8, "etp": 1}
    if big:
        trainer |= {"pp_layers": {"first": 11, "last": 11}}
    rollout = {"gpus": c["rollout_gpus"], "engine": "vllm", "tp": 8 if big else 4}
    note = "layouts of verl's example assumed"
    seconds = float(record.measured["total_sync_s"])
    if not c["checkpoint_engine"]:
        # ray.util.collective: every tensor is broadcast and waited for, without a remote call
        scenario = _scenario(
            names.model(c["model"]), names.gpu(c["gpu"]), trainer, rollout, strategy="openrlhf-broadcast"
        )
        return Case("total_sync_s", scenario, seconds, values={"refit_rpc_s": 0.5e-3}, note=note)
    scenario = _scenario(names.model(c["model"]), names.gpu(c["gpu"]), trainer, rollout, strategy="verl-nccl")
    return Case("total_sync_s", scenario, seconds, note=note)


def _verl_delta(record: Record) -> tuple[Case, ...]:
    c = record.config
    gpu = names.gpu(c["gpu"])
    trainer: dict[str, Any] = {"backend": "fsdp2"}
    if gpu == "a100-80g" and not str(c["placement"]).startswith("1 node"):
        raise SkipError(
            "the network of the A100 cluster is not stated and bounds the row (8B: 10 s where shards stay in a node, "
            "34 s across)"
        )
    if gpu == "a100-80g":
        name, note = str(c["model"]), "4 + 4 GPUs assumed"
        trainer |= {"gpus": 4}
        rollout = {"gpus": 4, "tp": 1}
    else:
        name, note = str(c["model"]), ""
        per_node = int(c["gpus_per_node"])
        trainer |= {"gpus": c["trainer_nodes"] * per_node}
        if "ep8" in str(c["train_backend"]):
            trainer |= {"ep": 8}
            note = "VeOmni priced as FSDP2 with EP"
        rollout = {"gpus": c["rollout_nodes"] * per_node, "tp": c.get("generation_tp", 1 if "7B" in name else 4)}
    trainer |= {"param_dtype": c.get("dtype", "bf16")}
    scenario = _scenario(names.model(name), gpu, trainer, rollout, strategy="verl-nccl")
    measured = _middle(record.measured["nccl_full_broadcast_s"])
    return (Case("nccl_full_broadcast_s", scenario, measured, note=note),)


def _mooncake(record: Record) -> Case:
    """Two FSDP ranks send, thirty receive in a chain; no load."""
    trainer = {"gpus": 2, "backend": "fsdp2", "param_dtype": "bf16"}
    scenario = _scenario("Qwen/Qwen3-30B-A3B", "h100-sxm", trainer, {"gpus": 30, "tp": 1}, strategy="chain")
    scenario["weight_sync"] |= {"bucket": "2 GiB"}
    return Case("time_s", scenario, float(record.measured["time_s"]), link_only=True, note="wire alone")


def _rdt(record: Record) -> Case:
    trainer = {"gpus": 8, "backend": "fsdp2", "param_dtype": "bf16"}
    rollout = {"gpus": 8, "engine": "vllm", "attn_tp": 1, "attn_dp": 8, "moe_ep": 8}
    scenario = _scenario("Qwen/Qwen3-235B-A22B", "h100-sxm", trainer, rollout, "generic", strategy="p2p-plan")
    return Case("sync_s", scenario, _middle(record.measured["sync_s"]))
