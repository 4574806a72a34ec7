from __future__ import annotations

from rlsim.scenario import loads_scenario
from rlsim.scenario.remarks import remarks

from .text import BASE, changed


def _remarks(text: str) -> list[str]:
    return list(remarks(loads_scenario(text, variant="base").variants[0]))


def test_remarks() -> None:
    assert _remarks(BASE) == []
    assert "no advantage" in _remarks(changed(("group_size: 8", "group_size: 1"), ("prompts: 32", "prompts: 256")))[0]
    bucket = changed(("run: {steps: 3}", "weight_sync: {bucket: 1 B}"))
    assert _remarks(bucket)[0].startswith("weight_sync.bucket of 1 B")
