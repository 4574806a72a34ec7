"""Commands whose work is done by `validation/`, which a checkout has and an installed package has not."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from rlsim.errors import UserError

ROOT = Path(__file__).parents[2]


def module(name: str, what: str, command: str) -> ModuleType:
    """`validation.NAME` of the checkout. Without one: what is missing, and the command to type there."""
    if not (ROOT / "validation" / "cli.py").exists():
        message = f"{what} are in the repository, not in the installed package"
        raise UserError(message, fix=f"run `python -m rlsim {command}` in a checkout")
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return importlib.import_module(f"validation.{name}")
