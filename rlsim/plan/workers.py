"""Who simulates the cases of a study: this process, several local ones, or a Ray cluster.

Every engine has `run(cases)`, which yields `(index, outcome)` pairs in lists, as they come in, in any order. Processes
live as long as the `with` block, so that imports and kernel tables are loaded once in each.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rlsim.plan.case import Case, Outcome, Study, evaluate

Done = list[tuple[int, Outcome]]
Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]
"""A bar for so many cases; the function that it gives is told how many more are done."""
AHEAD = 4
"""Cases handed out per process: none waits for the next, and little is lost when the sweep stops."""
DIED = "the process that simulated it died, twice (out of memory?)"


class Engine(Protocol):
    """What a study runs on."""

    def run(self, cases: Sequence[Case]) -> Iterator[Done]: ...


def engine(study: Study, jobs: int | None = None, ray: str | None = None) -> AbstractContextManager[Engine]:
    """The engine asked for: Ray at an address ("local": one on this machine), or `jobs` processes (default: cores)."""
    if ray is not None:
        from rlsim.plan import on_ray

        return on_ray.cluster(study, ray, jobs)
    jobs = jobs or len(os.sched_getaffinity(0))
    return _here(study) if jobs == 1 else _processes(study, jobs)


@contextmanager
def _here(study: Study) -> Iterator[Engine]:
    yield Here(study)


@contextmanager
def _processes(study: Study, jobs: int) -> Iterator[Engine]:
    local = Local(study, jobs)
    try:
        yield local
    finally:
        local.close()


class Here:
    """One after the other, in this process."""

    def __init__(self, study: Study) -> None:
        self._study = study

    def run(self, cases: Sequence[Case]) -> Iterator[Done]:
        for index, case in enumerate(cases):
            yield [(index, evaluate(self._study, case))]


class Local:
    """Processes on this machine. One that dies takes its pool along: the cases in flight are tried again, alone."""

    def __init__(self, study: Study, jobs: int) -> None:
        self._study, self._jobs = study, jobs
        self._pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._jobs, initializer=_start, initargs=(self._study, os.getpid()))

    def run(self, cases: Sequence[Case]) -> Iterator[Done]:
        waiting = list(range(len(cases)))[::-1]
        flying: dict[Future[Outcome], int] = {}
        while waiting or flying:
            try:
                while waiting and len(flying) < AHEAD * self._jobs:
                    flying[self._pool.submit(_evaluate, cases[waiting[-1]])] = waiting[-1]
                    waiting.pop()
                ready, _ = wait(flying, return_when=FIRST_COMPLETED)
                done = [(flying[future], future.result()) for future in ready]
            except BrokenProcessPool:
                yield self._again(cases, flying)
                flying = {}
                continue
            for future in ready:
                del flying[future]
            yield done

    def _again(self, cases: Sequence[Case], flying: dict[Future[Outcome], int]) -> Done:
        """The outcomes of the cases that were in flight when a process died, each simulated in a process of its own."""
        done: Done = []
        for future, index in flying.items():
            if future.done() and future.exception() is None:
                done.append((index, future.result()))
                continue
            with ProcessPoolExecutor(1, initializer=_start, initargs=(self._study, os.getpid())) as alone:
                try:
                    done.append((index, alone.submit(_evaluate, cases[index]).result()))
                except BrokenProcessPool:
                    done.append((index, Outcome("error", DIED, {})))
        self.close()
        self._pool = self._new()
        return done

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


_study: Study | None = None


def _start(study: Study, parent: int) -> None:
    """A worker's beginning: the heavy imports, once. It ends when its parent is gone, whatever ended that."""
    global _study
    import rlsim.api  # noqa: F401

    _study = study

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _evaluate(case: Case) -> Outcome:
    if _study is None:
        raise RuntimeError("a worker without a study")
    return evaluate(_study, case)
