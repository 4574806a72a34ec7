"""Frameworks: a scenario as their settings, and what their logs say."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING

from rlsim.errors import UserError

if TYPE_CHECKING:
    from rlsim.scenario.schema import Scenario

NAMES = ("verl", "slime", "openrlhf", "areal", "nemo-rl", "trl")


def known(framework: str) -> None:
    """Raise `UserError` for a framework that there is no export to."""
    if framework not in NAMES:
        close = difflib.get_close_matches(framework, NAMES, n=1)
        fix = close[0] if close else "one of " + ", ".join(NAMES)
        raise UserError(f"no export to {framework!r}", key="FRAMEWORK", fix=fix)


def export(framework: str, scenario: Scenario) -> str:
    """The scenario as a framework's own flags or config file, ready to print.

    What has no counterpart is a comment, `# not expressible: …`. Raises `UserError` that names the rule where the
    framework would refuse the numbers.
    """
    known(framework)
    module = importlib.import_module(f"rlsim.frameworks.{framework.replace('-', '_')}")
    text: str = module.export(scenario)
    return text
