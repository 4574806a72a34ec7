"""The processes of a run, and the driver's calls to them."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from validation.minigrpo import worker
from validation.minigrpo.devices import devices
from validation.minigrpo.setting import Setting
from validation.minigrpo.task import Sample

PATIENCE = 120.0
"""Seconds without any message after which a call is given up."""


class World:
    """Pipes to the trainer's ranks and to the engines. `finished` is told what engines finish, whenever it comes."""

    def __init__(self, trainers: Sequence[Connection], engines: Sequence[Connection]) -> None:
        self.trainers, self.engines = list(trainers), list(engines)
        self.finished: Callable[[int, list[Sample]], None] = lambda engine, samples: None
        self._replies: dict[Connection, list[Any]] = {conn: [] for conn in (*trainers, *engines)}

    def call(self, ranks: Sequence[Connection], command: str, values: Sequence[Any] | None = None) -> list[Any]:
        """The same command to all, with a value each; returns their answers when all are there."""
        for i, conn in enumerate(ranks):
            conn.send((command, None if values is None else values[i]))
        self.pump(lambda: all(self._replies[conn] for conn in ranks))
        return [self._replies[conn].pop(0) for conn in ranks]

    def submit(self, engine: int, requests: list[Any]) -> None:
        """Requests to an engine; nothing is waited for."""
        self.engines[engine].send(("submit", requests))

    def pump(self, until: Callable[[], bool]) -> None:
        """Take messages until something is so."""
        while not until():
            ready = wait(list(self._replies), PATIENCE)
            if not ready:
                raise RuntimeError(f"no message from any process within {PATIENCE:.0f} s")
            for conn in ready:
                assert isinstance(conn, Connection)
                kind, value = conn.recv()
                if kind == "error":
                    raise RuntimeError(f"a process failed:\n{value}")
                if kind == "done":
                    self.finished(self.engines.index(conn), value)
                else:
                    self._replies[conn].append(value)

    def sync(self, version: int) -> None:
        """Weights from the trainer to all engines."""
        ranks = [*self.trainers, *self.engines]
        self.call(ranks, "sync", [version] * len(ranks))


@contextmanager
def world(setting: Setting, share: float | None = None) -> Iterator[World]:
    """Start the processes, each on its device: `share` of a core (None: no limit); co-located roles share devices."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["validation.minigrpo.worker"])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        count = setting.trainers + setting.engines
        places: list[Path | int | None] = [None] * setting.devices
        if share is not None:
            places = list(stack.enter_context(devices(setting.devices, share)))
        processes, pipes = [], []
        for rank in range(count):
            own = rank - setting.trainers if setting.colocated and rank >= setting.trainers else rank
            member = replace(setting.member, rank=rank, device=places[own], store=str(folder / "store"))
            here, there = context.Pipe()
            process = context.Process(target=worker.main, args=(member, there), daemon=True)
            process.start()
            there.close()
            processes.append(process)
            pipes.append(here)
        found = World(pipes[: setting.trainers], pipes[setting.trainers :])
        try:
            found.pump(lambda: all(found._replies.values()))
            for replies in found._replies.values():
                replies.clear()
            yield found
        finally:
            for conn in pipes:
                with suppress(OSError):
                    conn.send(("stop", None))
            for process in processes:
                process.join(10)
                if process.is_alive():
                    process.kill()
                    process.join()
