"""Real processes over gloo: every strategy delivers every byte, for all architectures and dtypes."""

from __future__ import annotations

import json
from pathlib import Path

import torch.multiprocessing as mp

from .workers import WORLD, work


def test_every_strategy_delivers_every_byte(tmp_path: Path) -> None:
    mp.spawn(work, args=(str(tmp_path),), nprocs=WORLD)
    assert [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(WORLD)] == [[]] * WORLD
