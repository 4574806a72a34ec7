"""rlsim: simulate one GRPO training step of a large language model, cluster and all.

The public functions are imported when they are first used, so that `import rlsim` costs nothing.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Result",
    "check",
    "compare",
    "cost",
    "crossover",
    "explain",
    "fit_lengths",
    "load_scenario",
    "plan",
    "reshard_plan",
    "sensitivity",
    "simulate",
    "sweep",
]

if TYPE_CHECKING:
    from rlsim import plan
    from rlsim.api import Result, check, compare, load_scenario, reshard_plan, simulate
    from rlsim.counterfactual.explain import explain
    from rlsim.length_fits import fit_lengths
    from rlsim.plan.crossover.crossover import crossover
    from rlsim.plan.sensitivity import sensitivity
    from rlsim.plan.sweep import sweep
    from rlsim.runcost import run_cost as cost


def __getattr__(name: str) -> Any:
    if name == "fit_lengths":
        from rlsim import length_fits

        return length_fits.fit_lengths
    if name == "cost":
        from rlsim.runcost import run_cost

        return run_cost
    if name == "crossover":
        from rlsim.plan.crossover.crossover import crossover

        return crossover
    if name == "explain":
        from rlsim.counterfactual.explain import explain

        return explain
    if name == "sensitivity":
        from rlsim.plan.sensitivity import sensitivity

        return sensitivity
    if name == "sweep":
        from rlsim.plan.sweep import sweep

        return sweep
    if name == "plan":
        import importlib

        return importlib.import_module("rlsim.plan")
    if name in __all__:
        from rlsim import api

        return getattr(api, name)
    raise AttributeError(f"module 'rlsim' has no attribute {name!r}")
