"""A study on a Ray cluster: one that is there (its address), or one on this machine ("local")."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import rlsim
from rlsim.errors import UserError
from rlsim.plan.case import Case, Outcome, Study, evaluate
from rlsim.plan.workers import AHEAD, Done, Engine

LOCAL = "local"


@contextmanager
def cluster(study: Study, address: str, jobs: int | None) -> Iterator[Engine]:
    """Connect, or start a cluster of `jobs` processes (default: cores) here; disconnect, or stop it, at the end."""
    ray = _ray()
    if ray.is_initialized():  # the caller's own connection: it stays
        yield OnRay(ray, study)
        return
    _reachable(address)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address == LOCAL:
            ray.init(address=LOCAL, num_cpus=jobs, include_dashboard=False, **quiet)
        else:
            ray.init(address=address, **quiet)
    except Exception as error:  # whatever Ray says: ConnectionError, RuntimeError, ValueError
        raise _none_at(address, str(error).strip().splitlines()[0]) from None
    try:
        yield OnRay(ray, study)
    finally:
        ray.shutdown()


def _reachable(address: str) -> None:
    """Whether anything listens at host:port; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise _none_at(address, str(error)) from None


def _none_at(address: str, reason: str) -> UserError:
    fix = "its address (host:6379, ray://host:10001, auto), or local"
    return UserError(f"no Ray cluster at {address!r}: {reason}", key="--ray", fix=fix)


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise UserError("Ray is not installed", key="--ray", fix="pip install 'rlsim[ray]'") from None
    return ray


class OnRay:
    """Plain Ray tasks: they reuse the workers' processes, and a worker that dies is tried again elsewhere once."""

    def __init__(self, ray: Any, study: Study) -> None:
        self._ray = ray
        self._study = ray.put(study)
        self._task = ray.remote(num_cpus=1, max_retries=1)(_evaluate)

    def run(self, cases: Sequence[Case]) -> Iterator[Done]:
        waiting = list(range(len(cases)))[::-1]
        flying: dict[Any, int] = {}
        while waiting or flying:
            while waiting and len(flying) < self._limit():
                index = waiting.pop()
                flying[self._task.remote(self._study, cases[index], rlsim.__version__)] = index
            ready, _ = self._ray.wait(list(flying), num_returns=1)
            more, _ = self._ray.wait(list(flying), num_returns=len(flying), timeout=0)
            yield [(flying.pop(one), self._outcome(one)) for one in {*ready, *more}]

    def _limit(self) -> int:
        """Tasks in flight: some for every CPU of the cluster, which may grow while the sweep runs."""
        return AHEAD * max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def _outcome(self, reference: Any) -> Outcome:
        try:
            outcome: Outcome = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines()
            return Outcome("error", f"Ray: {type(error).__name__}: {lines[0] if lines else ''}", {})
        return outcome


def _evaluate(study: Study, case: Case, version: str) -> Outcome:
    if rlsim.__version__ != version:
        return Outcome("error", f"the cluster has rlsim {rlsim.__version__}, this machine {version}", {})
    return evaluate(study, case)
