"""Who stands where and holds which slice: grids, slices and the bytes of a weight sync, under one name."""

from rlsim.grids import (
    EngineLayout,
    TrainLayout,
    engine_layout,
    engine_stage_sizes,
    gpus_per_node,
    train_layout,
    train_stages,
    trainer_dp_width,
)
from rlsim.slices import (
    RankParams,
    SyncBytes,
    absorbed_bytes,
    engine_rank_bytes,
    sync_bytes,
    train_params,
    train_rank_bytes,
)

__all__ = [
    "EngineLayout",
    "RankParams",
    "SyncBytes",
    "TrainLayout",
    "absorbed_bytes",
    "engine_layout",
    "engine_rank_bytes",
    "engine_stage_sizes",
    "gpus_per_node",
    "sync_bytes",
    "train_layout",
    "train_params",
    "train_rank_bytes",
    "train_stages",
    "trainer_dp_width",
]
