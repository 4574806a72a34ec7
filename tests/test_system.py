"""A scenario resolved: what it asks for and does not get is said."""

from __future__ import annotations

import pytest

from rlsim.system import resolve
from tests.layout_cases import case


@pytest.mark.parametrize(
    ("framework", "profile", "says"),
    [
        ({"name": "verl"}, "auto", ()),
        ({"name": "verl", "version": "0.6"}, "auto", ("no profile of verl 0.6: the one of verl is used",)),
        ({"name": "trl", "version": "0.24"}, "auto", ("no profile of trl 0.24: the one of generic is used",)),
        ({"name": "verl", "version": "0.6"}, "slime", ("no profile of verl 0.6: the one of slime is used",)),
    ],
)
def test_a_version_without_a_profile_is_an_assumption(
    framework: dict[str, str], profile: str, says: tuple[str, ...]
) -> None:
    scenario = case("Qwen/Qwen2.5-7B", {"gpus": 8}, framework=framework, costs={"profile": profile})
    assert resolve(scenario).assumptions == says
