"""Block quantisation to FP8: e4m3 values with one fp32 scale for every block of 128 x 128.

Quantising a slice is slicing the quantised tensor only where every boundary lies on the grid of blocks; a layout that
cuts through a block is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlsim.errors import UserError
from rlsim.reshard.engines import engine_side
from rlsim.reshard.plan import Plan, classes_of
from rlsim.shards import WeightClass

if TYPE_CHECKING:
    import torch

BLOCK = 128
LARGEST = 448.0  # of float8_e4m3fn


def quantised(cls: WeightClass) -> bool:
    """Matrices of attention, MLP and experts; embeddings, head, norms, router and biases stay as they are."""
    return cls.part in ("attention", "mlp", "expert", "shared_expert") and cls.rows > 1 and cls.cols > 1


def quantise(weight: torch.Tensor, power_of_two: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """(float8_e4m3fn [N, K], fp32 scale_inv [ceil(N/128), ceil(K/128)]) of a matrix [N, K].

    scale = max|block| / 448, to the next power of two for UE8M0; values are clipped and rounded to nearest even.
    """
    import torch

    scale = blocks(weight.float().abs()).amax(dim=(1, 3)) / LARGEST
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    if power_of_two:
        scale = torch.exp2(torch.ceil(torch.log2(scale)))
    values = weight.float() / spread(scale, weight.shape)
    return values.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale


def dequantise(weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """fp32 [N, K]: w[i, j] = w8[i, j] · scale[i div 128, j div 128]."""
    return weight.float() * spread(scale, weight.shape)


def blocks(matrix: torch.Tensor) -> torch.Tensor:
    """[ceil(N/128), 128, ceil(K/128), 128] of a matrix, padded with zeros."""
    import torch

    n, k = matrix.shape
    padded = torch.nn.functional.pad(matrix, (0, -k % BLOCK, 0, -n % BLOCK))
    return padded.reshape(-(-n // BLOCK), BLOCK, -(-k // BLOCK), BLOCK)


def spread(scale: torch.Tensor, shape: tuple[int, ...] | torch.Size) -> torch.Tensor:
    """The scale of every element."""
    return scale.repeat_interleave(BLOCK, 0)[: shape[0]].repeat_interleave(BLOCK, 1)[:, : shape[1]]


def quantised_engine(state: Mapping[str, torch.Tensor], plan: Plan, rank: int) -> dict[str, torch.Tensor]:
    """Tensors of one engine rank in FP8: matrices of attention, MLP and experts with `…_scale_inv` beside them.

    The shards lie on the grid (`check_grid`), so quantising them is cutting the quantised checkpoint.
    """
    import torch

    check_grid(plan)
    within = rank % plan.engine.gpus_per_engine
    found = dict(state)
    for layer in range(plan.model.num_layers):
        for cls in classes_of(plan.model, layer):
            if not quantised(cls):
                continue
            for side in engine_side(cls, layer, plan.model, plan.engine):
                for owner in [o for o in range(len(side.ranks)) if side.ranks[o, 0] == within]:
                    name = side.local[owner].name
                    if name not in state or f"{name}_scale_inv" in found:
                        continue
                    matrices = state[name] if state[name].dim() == 3 else state[name][None]
                    values, scales = zip(*(quantise(matrix) for matrix in matrices), strict=True)
                    stacked = state[name].dim() == 3
                    found[name] = torch.stack(values) if stacked else values[0]
                    found[f"{name}_scale_inv"] = torch.stack(scales) if stacked else scales[0]
    return found


def scale_rows(rows: int) -> int:
    """Rows of scales of so many rows of weights: 576 → 5."""
    return -(-rows // BLOCK)


def check_grid(plan: Plan) -> None:
    """Refuse engines whose shards cut through a block of scales (`UserError` with the sizes that would do)."""
    for layers in plan.kinds:
        for cls in classes_of(plan.model, layers[0]):
            if not quantised(cls):
                continue
            for side in engine_side(cls, layers[0], plan.model, plan.engine):
                p = side.pieces
                for axis, low, size, whole in (("rows", p.row, p.rows, cls.rows), ("columns", p.col, p.cols, cls.cols)):
                    inside = low + size < whole
                    if (low % BLOCK).any() or ((low + size)[inside] % BLOCK).any():
                        raise UserError(
                            f"{cls.name} is cut into {int(size.max())} {axis}, off the grid of {BLOCK} x {BLOCK} "
                            "blocks that share one FP8 scale",
                            key="rollout",
                            fix=_fitting(cls, whole),
                        )


def _fitting(cls: WeightClass, whole: int) -> str:
    """Numbers of parts whose size is a multiple of a block."""
    parts = [n for n in range(1, 65) if whole % n == 0 and whole // n % BLOCK == 0]
    what = "moe_tp" if cls.part == "expert" else "attn_tp"
    return f"{what} one of {', '.join(map(str, parts))}" if parts else f"{what}: 1"
