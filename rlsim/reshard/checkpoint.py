"""Checkpoints on disk: safetensors files, folders of them, torch files; and torch.distributed.checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlsim.errors import UserError

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
