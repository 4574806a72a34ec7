"""A scenario on its way to a framework's own settings: what is said, what cannot be, and which rules must hold.

A `Row` pairs a key of the scenario with a key of the framework, with the conversion both ways, so that one table serves
export and import. What takes more than one key to say is put by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from rlsim.scenario.schema import Scenario
from rlsim.system import System, resolve

Convert = Callable[[Any], Any]
SIMULATED_ONLY = (
    "name",
    "variant",
    "framework",
    "costs",
    "faults",
    "run.steps",
    "run.seed",
    "run.seeds",
    "run.checkpoint.storage",
    "run.checkpoint.node_storage",
    "run.checkpoint.state",
    "cluster.gpu",
    "cluster.nic",
    "cluster.nvlink",
    "cluster.nvlink_domain",
    "cluster.host_link",
    "cluster.host_memory",
    "cluster.hbm",
    "cluster.hbm_bandwidth",
    "cluster.oversubscription",
    "cluster.links",
    "workload.group_correlation",
    "workload.pass_rate",
    "workload.drift",
    "workload.learning_efficiency",
    "workload.prompt_tokens",
    "workload.response_tokens",
    "workload.reward",
    "weight_sync.changed",
    "model.base",
)
"""Keys that describe the machine, the data or the simulation: no framework is told them (lengths: only their caps)."""

ALWAYS = ("rollout.max_num_seqs", "rollout.max_num_batched_tokens")
"""Keys whose default is rlsim's own choice: told even where the file is silent."""


def same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Row:
    """`scenario` key <-> framework's `key`; `to` and `back` convert the value. `when`: for which scenarios."""

    scenario: str
    key: str
    to: Convert = same
    back: Convert = same
    when: Callable[[Scenario], bool] = lambda scenario: True


@dataclass(frozen=True)
class Setting:
    """One setting of the framework, and the scenario's keys that it says."""

    key: str
    value: Any
    says: tuple[str, ...] = ()


@dataclass
class Sheet:
    """State: the settings so far, and what could not be said."""

    framework: str
    scenario: Scenario
    system: System
    settings: list[Setting] = field(default_factory=list)
    cannot_say: dict[str, str] = field(default_factory=dict)

    def put(self, key: str, value: Any, *says: str) -> None:
        """One setting; `says`: the scenario's keys that are in it."""
        self.settings.append(Setting(key, value, says))

    def rows(self, rows: Iterable[Row], prefix: str = "") -> None:
        """All rows of a table that hold for this scenario; a value of None is left to the framework."""
        for row in rows:
            value = value_at(self.scenario, row.scenario)
            if row.when(self.scenario) and value is not None:
                self.put(prefix + row.key, row.to(value), row.scenario)

    def says(self, *keys: str) -> None:
        """The framework does so anyway, or it follows from other settings."""
        self.settings.append(Setting("", None, keys))

    def cannot(self, key: str, why: str) -> None:
        """The framework has no counterpart of a key that the scenario gives."""
        self.cannot_say[key] = why

    def rule(self, holds: bool, rule: str, key: str, fix: str) -> None:
        """A condition that the framework asserts."""
        if not holds:
            raise self.scenario.error(key, f"{self.framework} refuses this: {rule}", fix)

    def left(self) -> list[tuple[str, Any, str]]:
        """(key, value, reason) of everything that the scenario gives and no setting says."""
        said = {key for setting in self.settings for key in setting.says}
        rest, used = [], set()
        given = {key: value_at(self.scenario, key) for key in ALWAYS} | leaves(self.scenario.to_dict())
        for key, value in given.items():
            refused = next((p for p in _prefixes(key) if p in self.cannot_say), None)
            if refused is not None:
                used.add(refused)
                rest.append((key, value, self.cannot_say[refused]))
            elif not any(p in said or p in SIMULATED_ONLY for p in _prefixes(key)):
                rest.append((key, value, f"{self.framework} has no such setting"))
        defaults = [key for key in self.cannot_say if key not in used]
        return rest + [(key, value_at(self.scenario, key), self.cannot_say[key]) for key in defaults]


def leaves(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys; a block that says nothing but that it is there is a leaf too."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            found |= leaves(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _prefixes(key: str) -> list[str]:
    parts = key.split(".")
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def value_at(scenario: Scenario, key: str) -> Any:
    """The value at a dotted key; of a single rollout entry without its number. None where a block is not there."""
    here: Any = scenario
    for part in key.split("."):
        if isinstance(here, tuple):
            here = here[0]
        here = getattr(here, "async_" if part == "async" else part, None)
    return here


def begin(framework: str, scenario: Scenario) -> Sheet:
    """An empty sheet. Raises `UserError` where the scenario is more than one kind of engine or GPU."""
    sheet = Sheet(framework, scenario, resolve(scenario))
    if len(scenario.rollout) > 1:
        raise scenario.error("rollout", f"{framework}'s settings have one kind of engine", "one rollout entry")
    if scenario.cluster.pools:
        message = f"{framework}'s settings have one kind of GPU: pools are placed by its scheduler"
        raise scenario.error("cluster.pools", message, "a cluster of one kind, or export each side by hand")
    return sheet


def nodes(sheet: Sheet, gpus: int, key: str) -> tuple[int, int]:
    """(nodes, GPUs on each) of so many GPUs. Frameworks place whole nodes, or part of one."""
    per_node = sheet.scenario.cluster.gpus_per_node
    if gpus <= per_node:
        return 1, gpus
    fits = f"{gpus // per_node * per_node} or {-(-gpus // per_node) * per_node}"
    sheet.rule(gpus % per_node == 0, f"{gpus} GPUs are no whole nodes of {per_node}", key, fits)
    return gpus // per_node, per_node


def cap(sheet: Sheet, which: str) -> int | None:
    """Longest prompt or response in tokens; None, and said so, where the scenario has no cap."""
    longest = value_at(sheet.scenario, f"workload.{which}.max")
    if longest is None:
        sheet.cannot(f"workload.{which}", "the lengths have no cap (max): set the framework's by hand")
        return None
    return ceil(float(longest))


def mini_batch(sheet: Sheet, of: int, what: str) -> int:
    """`of` prompts or samples over the step's mini-batches."""
    count = sheet.scenario.workload.updates.mini_batches
    sheet.rule(
        of % count == 0,
        f"{what} {of} is no multiple of the mini-batch: {count} of them do not divide it",
        "workload.updates.mini_batches",
        "a divisor of the batch",
    )
    return of // count


def per_gpu(sheet: Sheet, key: str, tokens: int, ranks: int, what: str) -> int:
    """A token budget of a data-parallel rank as each of its `ranks` GPUs has it; `what`: how they share a sequence."""
    sheet.rule(
        tokens % ranks == 0,
        f"token budgets are per GPU: {tokens:,} tokens over {ranks} {what} GPUs leave a rest",
        key,
        f"a multiple of {ranks}",
    )
    return tokens // ranks


def concurrency_per_engine(sheet: Sheet) -> int | None:
    """Groups that one engine may have running, where the scenario bounds them."""
    groups, engines = sheet.scenario.async_.max_concurrent, sheet.system.rollout[0].layout.engines
    if groups is None:
        return None
    sheet.rule(
        groups % engines == 0,
        f"concurrency is set per engine, and {groups} groups over {engines} engines leave a rest",
        "async.max_concurrent",
        f"a multiple of {engines}",
    )
    return groups // engines


def only(sheet: Sheet, key: str, allowed: tuple[Any, ...]) -> None:
    """The framework runs some values of a key alone."""
    value = value_at(sheet.scenario, key)
    if value not in allowed:
        fix = f"{key}: " + " or ".join(str(one) for one in allowed)
        raise sheet.scenario.error(key, f"{sheet.framework} has no {value}", fix)
