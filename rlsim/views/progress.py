"""Progress of long work: a bar on a terminal, nothing in a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


def bar(unit: str = "") -> Progress:
    """A bar with the time left; `unit` of what is counted."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,}" + (f" {unit}" if unit else "")),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def variants(total: int) -> Any:
    """A bar for so many simulated variants, as `rlsim.api.Bar` has it."""
    shown = bar("variants")
    shown.add_task("simulating", total=total)
    return shown


@contextmanager
def reported(first: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar that is told what is being done, how much of it is done, and of how much; `first`: before it is told."""
    with bar() as shown:
        task = shown.add_task(first, total=1)
        yield lambda what, done, total: shown.update(task, description=what, completed=done, total=max(total, done))


def simulations(total: int) -> AbstractContextManager[Callable[[int], None]]:
    """A bar for so many simulations; the function that it gives is told how many more are done."""
    return counted("", total)


@contextmanager
def counted(unit: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar for so many of a unit, simulated; the function that it gives is told how many more are done."""
    with bar(unit) as shown:
        task = shown.add_task("simulating", total=total)
        yield lambda more: shown.advance(task, more)
