"""Traces: one row per sample of a real run, and how batches are drawn from them without losing what belongs together.

Columns: prompt_id, prompt_tokens, response_tokens and, if there, turns, environment_seconds and reward_seconds of the
whole sample. CSV, JSONL or parquet; other columns are ignored.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rlsim.distributions import Array
from rlsim.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

Ints = NDArray[np.int64]

LEAST: Mapping[str, float] = {
    "prompt_tokens": 1.0,
    "response_tokens": 1.0,
    "turns": 1.0,
    "environment_seconds": 0.0,
    "reward_seconds": 0.0,
}
"""Columns that are read, and the least value of each."""
MOST = 1e9
PROMPT = "prompt_id"


@dataclass(frozen=True, eq=False)
class Trace:
    """A trace in memory: `columns` float64[rows] each, `prompts` int64[rows] numbers the prompts, None without ids."""

    path: str
    columns: Mapping[str, Array]
    prompts: Ints | None
    names: tuple[str, ...]

    def column(self, name: str) -> Array:
        """One column of the known ones, in the order of the rows."""
        if name in self.columns:
            return self.columns[name]
        raise UserError(
            f"the trace has no column {name}",
            file=self.path,
            fix=f"columns {PROMPT}, {name}; it has {', '.join(self.names) or 'none'}",
        )

    def correlation(self, name: str) -> float | None:
        """Correlation of a column's normal scores within prompts; None where no prompt repeats."""
        return None if self.prompts is None else within_groups(normal_scores(self.column(name)), self.prompts)


@lru_cache(maxsize=16)
def read_trace(path: str) -> Trace:
    """Read and check a trace."""
    frame = _table(path)
    if not len(frame):
        raise UserError("the trace has no rows", file=path, fix="one row per sample")
    first = _first_line(path)
    columns = {name: _numbers(frame, name, path, first) for name in LEAST if name in frame.columns}
    return Trace(path, columns, _prompt_numbers(frame, path, first), tuple(str(name) for name in frame.columns))


def _table(path: str) -> pd.DataFrame:
    import pandas as pd

    readers: dict[str, Callable[[str], Any]] = {
        ".parquet": pd.read_parquet,
        ".csv": lambda name: pd.read_csv(name, skiprows=_remarks(name), skipinitialspace=True, index_col=False),
        ".jsonl": lambda name: pd.read_json(name, lines=True),
        ".json": lambda name: pd.read_json(name, lines=True),
    }
    reader = readers.get(Path(path).suffix.lower())
    if reader is None:
        raise UserError("unknown kind of trace", file=path, fix="a .parquet, .csv or .jsonl file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # more fields than the header has
            frame = reader(path)
    except FileNotFoundError:
        raise UserError("no such trace", file=path, fix="a path relative to the scenario file") from None
    except (ValueError, OSError, TypeError, AttributeError, KeyError, RecursionError, Warning) as error:
        raise UserError(f"the trace cannot be read: {' '.join(str(error).split())}", file=path) from None
    return frame if isinstance(frame, pd.DataFrame) else frame.to_frame()


def _remarks(path: str) -> int:
    """Lines before the header that begin with `#`: where the trace comes from."""
    with Path(path).open(encoding="utf-8", errors="replace") as lines:
        return sum(1 for _ in takewhile(lambda line: line.startswith("#"), lines))


def _first_line(path: str) -> int | None:
    """Line of the first row in a text file that has a row a line."""
    kind = Path(path).suffix.lower()
    if kind == ".parquet":
        return None
    return _remarks(path) + 2 if kind == ".csv" else 1


def _numbers(frame: pd.DataFrame, name: str, path: str, first: int | None) -> Array:
    """A column as numbers; the first row that holds none, or an impossible one, is named."""
    import pandas as pd

    cells = frame[name]
    if isinstance(cells, pd.DataFrame):
        raise UserError(f"the trace has column {name} twice", file=path, fix="one column of that name")
    try:
        values = np.asarray(pd.to_numeric(cells, errors="coerce"), dtype=np.float64)
    except (TypeError, ValueError):
        values = np.full(len(cells), np.nan)
    least = LEAST[name]
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= least) & (values <= MOST)))
    if wrong.size:
        row = int(wrong[0])
        rest = f" (and {wrong.size - 1} more rows)" if wrong.size > 1 else ""
        raise UserError(
            f"{name} is {str(cells.iloc[row])!r} in row {row + 1}{rest}",
            file=path,
            line=None if first is None else first + row,
            fix=f"a number from {least:g} to {MOST:g} in every row",
        )
    return values


def _prompt_numbers(frame: pd.DataFrame, path: str, first: int | None) -> Ints | None:
    import pandas as pd

    if PROMPT not in frame.columns:
        return None
    try:
        numbers, _ = pd.factorize(frame[PROMPT])
    except (TypeError, ValueError):
        raise UserError(f"{PROMPT} is not one value a row", file=path, fix="a number or a text in every row") from None
    if (numbers < 0).any():
        row = int(np.argmax(numbers < 0))
        raise UserError(
            f"{PROMPT} is missing in row {row + 1}",
            file=path,
            line=None if first is None else first + row,
            fix=f"{PROMPT} in every row, or no such column",
        )
    return np.asarray(numbers, dtype=np.int64)


def normal_scores(values: Array) -> Array:
    """Normal scores of the ranks, ties at their mean rank: Φ⁻¹((rank − ½)/n)."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - counts / 2
    return np.asarray(special.ndtri(ranks / len(values))[which], dtype=np.float64)


def within_groups(scores: Array, groups: Ints) -> float | None:
    """Mean product of distinct pairs of one group ÷ variance; None where no group has a pair."""
    counts = np.bincount(groups)
    variance = float(scores.var())
    pairs = float((counts * (counts - 1)).sum())
    if not pairs or not variance:
        return None
    products = float((np.bincount(groups, weights=scores) ** 2 - np.bincount(groups, weights=scores**2)).sum())
    return float(np.clip(products / pairs / variance, 0.0, 0.99))


@dataclass(frozen=True, eq=False)
class Rows:
    """Draws rows of a trace for groups of samples.

    `order`: rows by response length. `whole`: rows int64[prompts of the trace, most rows of one] of each prompt, -1
    where it has fewer; None where groups are composed. `slope`: regression of a response's normal score on its prompt's
    (0 where the prompt comes from elsewhere); `prompt_scores` float64[rows]. `correlation`: within a group.
    """

    trace: Trace
    order: Ints
    whole: Ints | None
    slope: float
    prompt_scores: Array
    correlation: float

    def draw(self, rng: np.random.Generator, prompts: int, group: int) -> tuple[Ints, Ints]:
        """Rows int64[prompts] that give the prompts, and rows int64[prompts, group] that give their samples.

        A drawn row brings its prompt. Where every prompt of the trace has enough rows, its samples are rows of that
        prompt, none twice: exact. Elsewhere they are composed with a Gaussian copula,
        z = β·x + √(ρ − β²)·z_group + √(1 − ρ)·z_sample, x being the prompt's score: marginals, correlation within the
        group and dependence on the prompt's length stay. A group of one is the row itself.
        """
        heads = rng.integers(0, len(self.order), prompts)
        if group == 1:
            return heads, heads[:, None]
        if self.whole is not None and self.trace.prompts is not None:
            rows = self.whole[self.trace.prompts[heads]]
            keys = np.where(rows >= 0, rng.random(rows.shape), np.inf)
            return heads, np.take_along_axis(rows, np.argsort(keys, axis=1)[:, :group], axis=1)
        explained = self.slope**2
        shared = max(self.correlation, explained)
        z = math.sqrt(shared - explained) * rng.standard_normal((prompts, 1))
        z = self.slope * self.prompt_scores[heads][:, None] + z
        z = z + math.sqrt(1 - shared) * rng.standard_normal((prompts, group))
        ranks = np.minimum((special.ndtr(z) * len(self.order)).astype(np.int64), len(self.order) - 1)
        return heads, self.order[ranks]


def rows_of(trace: Trace, group: int, correlation: float | None, with_prompts: bool) -> Rows:
    """How groups of `group` samples are drawn.

    `correlation`: None for the trace's own, and whole prompts where it has them; `with_prompts`: prompts are of the
    same rows.
    """
    responses = trace.column("response_tokens")
    scores = normal_scores(responses)
    own = correlation if correlation is not None else (trace.correlation("response_tokens") or 0.0)
    prompt_scores = normal_scores(trace.column("prompt_tokens")) if with_prompts else np.zeros(len(scores))
    variance = float(prompt_scores.var())
    slope = float(prompt_scores @ scores) / len(scores) / variance if variance else 0.0
    return Rows(
        trace=trace,
        order=np.argsort(responses, kind="stable"),
        whole=_whole_prompts(trace, group) if correlation is None else None,
        slope=float(np.clip(slope, -0.99, 0.99)),
        prompt_scores=prompt_scores,
        correlation=own,
    )


def _whole_prompts(trace: Trace, group: int) -> Ints | None:
    """Rows of each prompt, where every prompt has at least `group`."""
    if trace.prompts is None:
        return None
    counts = np.bincount(trace.prompts)
    if counts.min() < group:
        return None
    order = np.argsort(trace.prompts, kind="stable")
    place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = np.full((len(counts), int(counts.max())), -1, dtype=np.int64)
    rows[trace.prompts[order], place] = order
    return rows
