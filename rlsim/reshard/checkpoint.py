"""Checkpoints on disk: safetensors files, folders of them, torch files; and torch.distributed.checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlsim.errors import UserError
from rlsim.grids import TrainLayout
from rlsim.model import ModelSpec
from rlsim.reshard.state import checkpoint_shapes, unshard

if TYPE_CHECKING:
    import torch

    State = dict[str, torch.Tensor]


def read(path: Path) -> State:
    """All tensors of a checkpoint: a .safetensors file, a folder of them, a .pt or .bin file, or a DCP folder.

    Raises `UserError` for anything else, and for files that cannot be read.
    """
    needed()
    if path.is_dir():
        files = sorted(path.glob("*.safetensors"))
        if files:
            return {name: tensor for file in files for name, tensor in _safetensors(file).items()}
        if (path / ".metadata").exists():
            return merged(path)
        raise UserError("no checkpoint in this folder", file=str(path), fix="*.safetensors files or a DCP checkpoint")
    if not path.exists():
        raise UserError("no such checkpoint", file=str(path))
    return _safetensors(path) if path.suffix == ".safetensors" else _pickled(path)


def needed() -> None:
    """Raise `UserError` where torch is not installed."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        raise UserError("checkpoints need torch", fix="pip install 'rlsim[torch]'") from None


def _safetensors(file: Path) -> State:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(file))
    except (SafetensorError, OSError) as error:
        raise UserError(f"not a safetensors file: {error}", file=str(file)) from None


def _pickled(file: Path) -> State:
    import pickle

    import torch

    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        raise UserError(f"not a torch checkpoint: {error}", file=str(file)) from None
    if not isinstance(state, dict):
        raise UserError("the file does not hold a state dict", file=str(file), fix="a mapping of names to tensors")
    return {name: tensor for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}


@dataclass(frozen=True)
class Written:
    """What a DCP folder says of itself.

    files    file -> (bytes of tensors in it, pieces): each rank writes its own
    tensors  name -> (shape, dtype, pieces)
    """

    files: Mapping[str, tuple[int, int]]
    tensors: Mapping[str, tuple[tuple[int, ...], str, int]]


def explain(folder: Path) -> Written:
    """The metadata of a torch.distributed.checkpoint folder: who wrote which bytes of which tensor."""
    needed()
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    if not (folder / ".metadata").exists():
        raise UserError("no torch.distributed.checkpoint here", file=str(folder), fix="a folder with .metadata in it")
    metadata = FileSystemReader(folder).read_metadata()
    tensors = {
        name: (tuple(facts.size), str(facts.properties.dtype).removeprefix("torch."), len(facts.chunks))
        for name, facts in metadata.state_dict_metadata.items()
        if isinstance(facts, TensorStorageMetadata)
    }
    files: dict[str, tuple[int, int]] = {}
    for info in (metadata.storage_data or {}).values():
        size, pieces = files.get(info.relative_path, (0, 0))
        files[info.relative_path] = (size + info.length, pieces + 1)
    return Written(dict(sorted(files.items())), tensors)


def convert(folder: Path, m: ModelSpec, layout: TrainLayout, out: Path) -> tuple[int, int]:
    """A sharded checkpoint into one Hugging Face safetensors file; returns (tensors, bytes).

    The folder holds a DCP checkpoint with Hugging Face names (FSDP2), or one file a rank, `rank_00000.safetensors` or
    `.pt`, with the local names of the layout (Megatron-Core, FSDP2, ZeRO-3).
    """
    needed()
    from safetensors.torch import save_file

    if (folder / ".metadata").exists():
        state = _named_as(merged(folder), m, folder)
    else:
        state = unshard([read(file) for file in _rank_files(folder, layout.gpus)], m, layout)
    out.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, out, metadata={"format": "pt"})
    return len(state), sum(tensor.numel() * tensor.element_size() for tensor in state.values())


def _named_as(state: State, m: ModelSpec, folder: Path) -> State:
    """The tensors of the model, whatever the wrapper put before their names (`model.`, `app.model.`)."""
    wanted = checkpoint_shapes(m)
    prefix = next((name[: -len(first)] for first in list(wanted)[:1] for name in state if name.endswith(first)), "")
    found = {name: state[prefix + name] for name in wanted if prefix + name in state}
    for name, shape in wanted.items():
        if name not in found:
            raise UserError(f"{name} is missing", file=str(folder), fix=f"a checkpoint of {m.name}")
        if tuple(found[name].shape) != shape:
            raise UserError(f"{name} has shape {list(found[name].shape)}", file=str(folder), fix=f"{list(shape)}")
    return found


def _rank_files(folder: Path, ranks: int) -> list[Path]:
    files = [next(iter(sorted(folder.glob(f"rank_{rank:05d}.*"))), None) for rank in range(ranks)]
    missing = [rank for rank, file in enumerate(files) if file is None]
    if missing:
        raise UserError(
            f"no file of rank {missing[0]}" + (f" and {len(missing) - 1} others" if len(missing) > 1 else ""),
            file=str(folder),
            fix=f"rank_{missing[0]:05d}.safetensors: the layout has {ranks} ranks",
        )
    return [file for file in files if file is not None]


def merged(folder: Path) -> State:
    """The whole tensors of a torch.distributed.checkpoint folder, put together in this process."""
    import torch
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    state: dict[str, object] = {}
    planner = _EmptyStateDictLoadPlanner()  # type: ignore[no-untyped-call]
    _load_state_dict(state, storage_reader=FileSystemReader(folder), planner=planner, no_dist=True)
    return {name: tensor for name, tensor in _flat("", state) if isinstance(tensor, torch.Tensor)}


def _flat(prefix: str, value: object) -> list[tuple[str, object]]:
    if isinstance(value, dict):
        found = []
        for name, inner in value.items():
            found += _flat(f"{prefix}.{name}" if prefix else str(name), inner)
        return found
    return [(prefix, value)]
