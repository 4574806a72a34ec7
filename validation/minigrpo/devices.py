"""Equal "devices" on few cores: a CPU cgroup with a quota for each (v1 or v2), or pinned cores where there are none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PERIOD = 10_000  # microseconds: short, because a throttled process stands still for the rest of one
V1, V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")


@contextmanager
def devices(count: int, share: float) -> Iterator[list[Path | int]]:
    """`count` devices of `share` of a core each: folders of cgroups, or numbers of cores if those can't be made."""
    made: list[Path] = []
    try:
        for i in range(count):
            made.append(_group(f"minigrpo-{os.getpid()}-{i}", share))
        found: Sequence[Path | int] = made
    except OSError:
        cores = sorted(os.sched_getaffinity(0))
        found = [cores[i % len(cores)] for i in range(count)]
    try:
        yield list(found)
    finally:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()


def _group(name: str, share: float) -> Path:
    root = V1 if (V1 / "cpu.cfs_quota_us").exists() else V2
    folder = root / name
    folder.mkdir()
    quota = round(PERIOD * share)
    if root is V1:
        (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
        (folder / "cpu.cfs_quota_us").write_text(str(quota))
    else:
        (folder / "cpu.max").write_text(f"{quota} {PERIOD}")
    return folder


def enter(device: Path | int) -> None:
    """This process, and the threads that it starts from now on, run on the device."""
    if isinstance(device, int):
        os.sched_setaffinity(0, {device})
    else:
        (device / "cgroup.procs").write_text(str(os.getpid()))
