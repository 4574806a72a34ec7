"""Numbered cases of one study, simulated where the user asked; those that a folder holds are not repeated."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rlsim.plan import store
from rlsim.plan.case import Case, Outcome, Study
from rlsim.plan.workers import Engine, Progress, engine


class Runner:
    """Used in a `with` block: processes (or the cluster) are started at the first case that is missing, and kept.

    `out` with `manifest`: the folder in which finished cases outlive the process, and what makes two studies the same.
    `simulated`: how many cases had to be.
    """

    def __init__(
        self,
        study: Study,
        *,
        jobs: int | None = None,
        ray: str | None = None,
        out: str | Path | None = None,
        manifest: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.study, self.simulated = study, 0
        self._jobs, self._ray, self._progress = jobs, ray, progress
        self._out, self._manifest = out, manifest or {}
        self._stack = ExitStack()
        self._engine: Engine | None = None
        self._kept: store.Store | None = None
        self._done: dict[int, Outcome] = {}

    def __enter__(self) -> Runner:
        if self._out is not None:
            self._kept = self._stack.enter_context(store.opened(Path(self._out), self._manifest))
            self._done = dict(self._kept.done)
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def run(self, cases: Mapping[int, Case]) -> dict[int, Outcome]:
        """The outcome of every case, by its number."""
        missing = [number for number in cases if number not in self._done]
        if missing:
            with ExitStack() as shown:
                tell = shown.enter_context(self._progress(len(missing))) if self._progress is not None else None
                for finished in self._started().run([cases[number] for number in missing]):
                    new = [(missing[i], outcome) for i, outcome in finished]
                    if self._kept is not None:
                        self._kept.add(new)
                    self._done.update(new)
                    if tell is not None:
                        tell(len(new))
            self.simulated += len(missing)
        return {number: self._done[number] for number in cases}

    def _started(self) -> Engine:
        if self._engine is None:
            self._engine = self._stack.enter_context(engine(self.study, self._jobs, self._ray))
        return self._engine
