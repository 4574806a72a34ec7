"""What rlsim's formulas say of a weight sync over the cluster: links alone, software free, nothing fitted.

The scenario is what a user would write, every host a node with one GPU and one NIC; a NIC gives the share of its rate
that a TCP stream has of Ethernet (`GOODPUT`), which is known.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, log2
from pathlib import Path

from rlsim.costs.transfer_build import sync_case
from rlsim.costs.transfer_case import SyncCase
from rlsim.costs.transfer_floor import floor_seconds
from rlsim.costs.transfer_strategies import STRATEGIES
from rlsim.scenario import load_scenario
from rlsim.system import resolve
from validation import sync_models
from validation.netcluster.cluster import GOODPUT

FORMULAS = {"root-fanout": "root-fanout", "chain": "chain", "p2p": "p2p", "replicate": "p2p-replicate"}
"""Strategies of `rlsim.reshard.distributed`: names of the formulas in `rlsim.costs`."""
FREE_RATES = (
    "refit_gather_rate", "refit_fsdp_gather_rate", "refit_load_rate", "refit_ipc_rate", "refit_quantise_rate",
)  # fmt: skip
FREE_SECONDS = (
    "refit_fsdp_per_tensor_s", "refit_per_tensor_s", "refit_per_bucket_s", "refit_p2p_op_s", "refit_fixed_s",
    "collective_latency_s",
)  # fmt: skip
SCENARIO = """
model: config.json
cluster: {{gpu: cpu, gpus: {hosts}, gpus_per_node: 1, nvlink_domain: 1, nic: {nic} B/s}}
workload:
  prompts: {trainers}
  group_size: 2
  prompt_tokens: {{mean: 16, max: 16}}
  response_tokens: {{mean: 64, p99: 180, max: 200}}
placement: disaggregated
schedule: sync
trainer: {{gpus: {trainers}, backend: fsdp2, micro_batch_size: 1}}
rollout: {{gpus: {receivers}, engine: vllm, tp: 1, max_num_seqs: 8}}
"""


@dataclass(frozen=True)
class Sync:
    """One weight sync. nic: bytes/s; bytes: of the model on the wire; bucket: bytes, 0 where there are none."""

    strategy: str
    trainers: int
    receivers: int
    nic: float
    bytes: float
    bucket: float


def seconds(sync: Sync) -> float:
    """Of the strategy by its formula; the library's broadcast by the tree that gloo sends along."""
    case = case_of(sync)
    if sync.strategy == "broadcast":
        return tree_seconds(case)
    return STRATEGIES[FORMULAS[sync.strategy]](case).seconds


def floor(sync: Sync) -> float:
    """Of any strategy, at the NICs' full rate."""
    return floor_seconds(case_of(sync))


def tree_seconds(case: SyncCase) -> float:
    """Of gloo's broadcast: a binomial tree over all ranks, whose root sends one copy per level.

    ceil(log2(ranks)) · P / NIC. NCCL's ring, which rlsim's `broadcast` is a formula of, sends one copy in all.
    """
    ranks = case.source.side.gpus + case.receiving_gpus
    return ceil(log2(ranks)) * case.model_bytes / case.nic_rate(case.source.side)


def case_of(sync: Sync) -> SyncCase:
    """The sync as rlsim sees it, with the bytes and buckets of the measurement."""
    case = _case(sync.trainers, sync.receivers, sync.nic, sync.bytes)
    return replace(case, bucket=sync.bucket or sync.bytes)


@lru_cache(maxsize=256)
def _case(trainers: int, receivers: int, nic: float, size: float) -> SyncCase:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(_config(size)))
        text = SCENARIO.format(hosts=trainers + receivers, trainers=trainers, receivers=receivers, nic=nic)
        (folder / "cluster.yaml").write_text(text)
        case = sync_case(resolve(load_scenario(folder / "cluster.yaml").variants[0]))
    efficiency = {"sync_nic_efficiency": GOODPUT, "chain_nic_efficiency": GOODPUT}
    free = {**dict.fromkeys(FREE_RATES, 1e18), **dict.fromkeys(FREE_SECONDS, 0.0)}
    return replace(case, profile=case.profile.with_values(**efficiency, **free))


def _config(size: float) -> Mapping[str, object]:
    """The model of the measurement as a Hugging Face config."""
    m = sync_models.model_of(size)
    return {
        "architectures": [m.architecture],
        "model_type": "llama",
        "hidden_size": m.hidden,
        "intermediate_size": m.intermediate,
        "num_attention_heads": m.attention.heads,
        "num_key_value_heads": m.attention.kv_heads,
        "head_dim": m.attention.head_dim,
        "num_hidden_layers": m.num_layers,
        "vocab_size": m.vocab,
        "max_position_embeddings": m.max_context,
        "tie_word_embeddings": m.tied,
    }
