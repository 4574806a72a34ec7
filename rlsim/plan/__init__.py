"""Planning: what to run, and how sure that is. The package is itself the public function `rlsim.plan(...)`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlsim.plan.answer import Plan


class _Callable(ModuleType):
    """A module of the function's name that can be called: importing the package hides the function of that name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Plan:
        from rlsim.plan.planner import plan

        return plan(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
