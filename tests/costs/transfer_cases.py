"""Weight synchronisations built by hand, with round numbers."""

from __future__ import annotations

from dataclasses import replace

from rlsim.catalog.profiles import profile
from rlsim.costs.transfer_case import Receiver, Side, Source, SyncCase
from rlsim.costs.transfer_methods import method_of

MODEL_70B = 70.55e9 * 2
PERFECT = profile("generic").with_values(
    sync_nic_efficiency=1.0,
    nvlink_efficiency=1.0,
    collective_latency_s=0.0,
    refit_gather_rate=1e15,
    refit_load_rate=1e15,
    refit_ipc_rate=1e15,
    refit_fsdp_gather_rate=1e15,
    chain_nic_efficiency=1.0,
    refit_per_tensor_s=0.0,
    refit_fsdp_per_tensor_s=0.0,
    refit_per_bucket_s=0.0,
    refit_p2p_op_s=0.0,
    refit_rpc_s=0.0,
    refit_fixed_s=0.0,
)


def side(gpus: int, nic: float = 50e9) -> Side:
    """H100 nodes of eight."""
    return Side(gpus=gpus, node=8, host_gpus=8, nic=nic, nvlink=450e9, hbm=3.35e12, host_link=64e9)


def case_70b(engines: int = 4, *, trainer_gpus: int = 64, framework: str = "generic") -> SyncCase:
    """70B in bf16 from FSDP over `trainer_gpus` into TP=8 engines, one node each; perfect software."""
    model = MODEL_70B
    source = Source(
        side=side(trainer_gpus),
        held_gpu=model / trainer_gpus,
        held_node=model * 8 / trainer_gpus,
        send_gpu=model / trainer_gpus,
        held_by_stage=1.0,
        owners=trainer_gpus,
    )
    receiver = Receiver(
        side=side(8 * engines),
        engines=engines,
        gpus_per_engine=8,
        recv_gpu=model / 8,
        recv_node=model,
        engine_bytes=model,
        missing_gpu=model / 8,
        missing_node=model,
        tensors_gpu=723,
    )
    return SyncCase(
        model_bytes=model,
        read_bytes=0.0,
        tensors=723,
        bucket=2**30,
        colocated=False,
        oversubscription=1.0,
        source=source,
        receivers=(receiver,),
        method=method_of(framework),
        profile=PERFECT,
    )


def colocated_7b(trainer_gpus: int = 64) -> SyncCase:
    """7B in bf16, FSDP over all GPUs, engines of TP=1 on the same GPUs; perfect software."""
    model = 7.616e9 * 2
    base = case_70b(trainer_gpus=trainer_gpus)
    source = replace(
        base.source,
        held_gpu=model / trainer_gpus,
        held_node=model * min(8, trainer_gpus) / trainer_gpus,
        send_gpu=model / trainer_gpus,
    )
    receiver = Receiver(
        side=side(trainer_gpus),
        engines=trainer_gpus,
        gpus_per_engine=1,
        recv_gpu=model,
        recv_node=model,
        engine_bytes=model,
        missing_gpu=model - source.held_gpu,
        missing_node=model - source.held_node,
        tensors_gpu=339,
    )
    return replace(base, model_bytes=model, tensors=339, colocated=True, source=source, receivers=(receiver,))
