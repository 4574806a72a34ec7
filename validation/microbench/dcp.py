"""Checkpoints of torch.distributed.checkpoint: every rank saves its share of the weights and loads it again."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from validation.microbench.setting import Setting

TENSORS = 16


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    """Seconds to save and to load `bytes` of weights of all ranks together; the page cache is not dropped."""
    mesh = init_device_mesh(setting.device.type, (setting.world,))
    for size in setting.sizes((1 << 20,), (1 << 20, 1 << 24, 1 << 27), (1 << 24, 1 << 30, 1 << 32)):
        rows = max(setting.world, size // TENSORS // 4 // 64)
        whole = {f"weight.{i}": torch.ones(rows, 64) for i in range(TENSORS)}
        state = {name: distribute_tensor(tensor, mesh, [Shard(0)]) for name, tensor in whole.items()}
        folder = _shared_folder(setting)
        try:
            save = setting.timed(
                lambda s=state, f=folder: dcp.save(s, checkpoint_id=f),
                together=True,
                prepare=lambda f=folder: _empty(setting, f),
            )
            load = setting.timed(lambda s=state, f=folder: dcp.load(s, checkpoint_id=f), together=True)
        finally:
            dist.barrier()
            if setting.rank == 0:
                shutil.rmtree(folder, ignore_errors=True)
        for op, seconds in (("save", save), ("load", load)):
            yield from setting.rows("dcp", f"dcp-{op}-{size}-w{setting.world}", seconds, op=op, bytes=size)


def _empty(setting: Setting, folder: Path) -> None:
    """Writing over old files is another thing than writing new ones."""
    dist.barrier()
    if setting.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    dist.barrier()


def _shared_folder(setting: Setting) -> Path:
    names = [tempfile.mkdtemp(prefix="rlsim-dcp-") if setting.rank == 0 else ""]
    dist.broadcast_object_list(names, 0, device=setting.device)
    return Path(names[0])
