"""Sweeps: one scenario at many points, each variant at each point, on one machine or many.

The table is the same bytes whatever ran it and in whatever order: its rows are sorted by point, and every simulation
has the scenario's own seed.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlsim.catalog.profiles import profile_for
from rlsim.plan import figures, store
from rlsim.plan.case import Case, Outcome, read_study
from rlsim.plan.keys import attribute_of
from rlsim.plan.manifest import manifest_of
from rlsim.plan.runner import Runner
from rlsim.plan.space import Point, Sampler, Space, space
from rlsim.plan.workers import Progress
from rlsim.scenario.load import load_scenario
from rlsim.scenario.quantity import DIMENSIONS, MistakeError, parse
from rlsim.views import files

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Row:
    """One variant at one point, numbered from 0."""

    point: int
    settings: Point
    variant: str
    outcome: Outcome


@dataclass(frozen=True)
class Sweep:
    """All rows, sorted by point and by the file's order of variants. `simulated`: how many this call had to do."""

    name: str
    space: Space
    variants: tuple[str, ...]
    rows: tuple[Row, ...]
    simulated: int

    def count(self, status: str) -> int:
        """Rows that are ok, infeasible or error."""
        return sum(row.outcome.status == status for row in self.rows)

    @property
    def table(self) -> pd.DataFrame:
        """One line per row: point, variant, the swept keys (SI numbers, or text), status, message, all figures."""
        import pandas as pd

        columns: dict[str, list[Any]] = {
            "point": [row.point for row in self.rows],
            "variant": [row.variant for row in self.rows],
        }
        for i, key in enumerate(self.space.keys):
            columns[key] = _numbers(key, [row.settings[i][1] for row in self.rows])
        columns["status"] = [row.outcome.status for row in self.rows]
        columns["message"] = [row.outcome.message for row in self.rows]
        frame = pd.DataFrame(columns)
        values = {name: [row.outcome.values.get(name) for row in self.rows] for name in figures.KEYS}
        return pd.concat([frame, pd.DataFrame(values, dtype="float64")], axis=1)

    def as_dict(self, metrics: Sequence[str] = ()) -> dict[str, Any]:
        """The answer of `--json`; all figures unless `metrics` names some."""
        chosen = metrics or figures.KEYS
        rows = [
            {
                "point": row.point,
                "variant": row.variant,
                "settings": dict(row.settings),
                "status": row.outcome.status,
                "message": row.outcome.message or None,
                "figures": {name: row.outcome.values.get(name) for name in chosen} if row.outcome.values else None,
            }
            for row in self.rows
        ]
        counts = {status: self.count(status) for status in ("ok", "infeasible", "error")}
        return {
            "name": self.name,
            "over": list(self.space.keys),
            "sampler": self.space.sampler,
            "variants": list(self.variants),
            **counts,
            "rows": rows,
        }

    def write(self, folder: Path) -> None:
        """`sweep.csv` and `sweep.parquet` in the folder."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = self.table
        text = io.BytesIO()
        pq.write_table(pa.Table.from_pandas(table, preserve_index=False), text)
        with files.writing(folder, store.OPTION):
            (folder / "sweep.parquet").write_bytes(text.getvalue())
            (folder / "sweep.csv").write_text(table.to_csv(index=False, lineterminator="\n"), encoding="utf-8")


def sweep(
    file: str | Path,
    over: Sequence[str] | Mapping[str, Sequence[Any] | str],
    *,
    sets: Sequence[str] = (),
    variant: str | None = None,
    sampler: Sampler = "grid",
    n: int = 0,
    sample_seed: int = 0,
    steps: int | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Simulate every variant of a scenario file (or one) at every point.

    `over`: `key=a,b,c` texts or {key: [values]}; with `sampler` random or lhs, `n` points, also `key=low..high[:log]`.
    `jobs` local processes (default: one a core), or `ray`: the address of a cluster, or "local". `out`: a folder in
    which finished points outlive the process; called again with the same arguments it goes on where it stopped.
    """
    loaded = load_scenario(file, sets, variant).variants
    base = loaded[0]
    where = space(_texts(over), profile_for(base.framework.name, base.costs.profile), sampler, n, sample_seed)
    points, variants = where.points(), tuple(one.variant for one in loaded)
    cases = [Case(name, point) for point in points for name in variants]
    study = read_study(file, tuple(sets), steps, seed)
    asked = {
        "over": {a.key: list(a.values) if a.range is None else vars(a.range) | {"dimension": None} for a in where.axes},
        "sampler": [where.sampler, where.n, where.seed],
    }
    manifest = manifest_of(study, loaded, asked, [value for axis in where.axes for value in axis.values])
    workers = min(jobs, len(cases)) if jobs else None
    with Runner(study, jobs=workers, ray=ray, out=out, manifest=manifest, progress=progress) as runner:
        done = runner.run(dict(enumerate(cases)))
        rows = tuple(Row(i // len(variants), case.settings, str(case.variant), done[i]) for i, case in enumerate(cases))
        answer = Sweep(base.name, where, variants, rows, runner.simulated)
        if out is not None:
            answer.write(Path(out))
    return answer


def _texts(over: Sequence[str] | Mapping[str, Sequence[Any] | str]) -> list[str]:
    """`key=a,b,c` texts of either form."""
    if not isinstance(over, Mapping):
        return list(over)
    return [f"{key}={v if isinstance(v, str) else ','.join(str(one) for one in v)}" for key, v in over.items()]


def _numbers(key: str, texts: list[str]) -> list[Any]:
    """Values of one key as SI numbers, where all of them are numbers; else as they were written."""
    known = attribute_of(key)
    dimension = next((d for d in DIMENSIONS if known is not None and known.type == d.name), None)
    try:
        return [parse(text, dimension) if dimension is not None else float(text) for text in texts]
    except (MistakeError, ValueError):
        return list(texts)
