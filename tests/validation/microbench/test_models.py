"""The small transformer in the precision of GPUs: the benchmarks of a GPU can be tried without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from validation.microbench import models
from validation.microbench.setting import Setting


class Half(Setting):
    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16


@pytest.mark.parametrize("run", [models.logprob, models.prefill, models.decode])
def test_in_bfloat16(run: Callable[[Setting], Iterator[dict[str, Any]]]) -> None:
    rows = list(run(Half(torch.device("cpu"), "none", 0, 1, "quick", {})))
    assert {row["dtype"] for row in rows} == {"bfloat16"}
