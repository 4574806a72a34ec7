"""torch.distributed.checkpoint: saved on four ranks, loaded on two, merged offline; sharded files into one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from rlsim.errors import UserError
from rlsim.reshard import checkpoint as files
from rlsim.reshard.state import shard

from .layouts import trainer
from .small_models import BIAS, MLA, MOE, checkpoint


def save_on_four_load_on_two(rank: int, folder: str) -> None:
    """FSDP2's layout (dim 0 over four ranks, uneven) saved; then the same tensors over two ranks, loaded."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=4)
    hf = {name: x.float() for name, x in checkpoint(BIAS).items()}
    four = DeviceMesh("cpu", range(4))
    dcp.save({name: distribute_tensor(x, four, [Shard(0)]) for name, x in hf.items()}, checkpoint_id=f"{folder}/dcp")
    pair = dist.new_group([0, 1])
    two = DeviceMesh("cpu", range(2))
    if rank < 2:
        empty = {name: distribute_tensor(torch.zeros_like(x), two, [Shard(0)]) for name, x in hf.items()}
        dcp.load(empty, checkpoint_id=f"{folder}/dcp", process_group=pair)
        for name, x in hf.items():
            tensor = empty[name]
            assert isinstance(tensor, DTensor)
            assert torch.equal(tensor.full_tensor(), x), name
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dcp")
    mp.spawn(save_on_four_load_on_two, args=(str(folder),), nprocs=4)
    return folder / "dcp"


def test_saved_on_four_merged_offline(saved: Path) -> None:
    hf = {name: x.float() for name, x in checkpoint(BIAS).items()}
    found = files.merged(saved)
    assert found.keys() == hf.keys()
    assert all(torch.equal(found[name], x) for name, x in hf.items())


def test_metadata_explains_who_wrote_what(saved: Path) -> None:
    """Four ranks, four files; the vocabulary of 200 rows is four pieces of 50, 24 floats each."""
    found = files.explain(saved)
    assert list(found.files) == [f"__{rank}_0.distcp" for rank in range(4)]
    assert found.tensors["model.embed_tokens.weight"] == ((200, 24), "float32", 4)
    total = sum(x.numel() * 4 for x in checkpoint(BIAS).values())
    assert sum(size for size, _ in found.files.values()) >= total  # each piece has a header of its own


def test_fsdp2_checkpoint_into_one_file(saved: Path, tmp_path: Path) -> None:
    hf = {name: x.float() for name, x in checkpoint(BIAS).items()}
    out = tmp_path / "hf" / "model.safetensors"
    assert files.convert(saved, BIAS, trainer(BIAS, "fsdp2", gpus=4), out)[0] == len(hf)
    found = load_file(out)
    assert all(torch.equal(found[name], x) for name, x in hf.items())
    with pytest.raises(UserError, match="is missing"):
        files.convert(saved, MLA, trainer(MLA, "fsdp2", gpus=4), out)


@pytest.mark.parametrize("backend", ["megatron", "zero"])
def test_rank_files_into_one_file(backend: str, tmp_path: Path) -> None:
    hf = checkpoint(MOE)
    layout = trainer(MOE, tp=2, pp=2, ep=2, etp=1) if backend == "megatron" else trainer(MOE, "zero", gpus=3)
    for rank in range(layout.gpus):
        save_file(shard(hf, MOE, layout, rank), tmp_path / f"rank_{rank:05d}.safetensors")
    files.convert(tmp_path, MOE, layout, tmp_path / "out.safetensors")
    found = load_file(tmp_path / "out.safetensors")
    assert found.keys() == hf.keys()
    assert all(torch.equal(found[name], x) for name, x in hf.items())
    (tmp_path / "rank_00001.safetensors").unlink()
    with pytest.raises(UserError, match="no file of rank 1"):
        files.convert(tmp_path, MOE, layout, tmp_path / "out.safetensors")
