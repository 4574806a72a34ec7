"""Files that the user asked for: what cannot be written is the user's mistake, told in one message."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlsim.errors import UserError


@contextmanager
def writing(path: Path, option: str) -> Iterator[None]:
    """Around the writing of `path`, which `option` of the command line names."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"cannot write to {path}: {reason}", key=option, fix="a place you may write to") from None


def write_text(path: Path, text: str, option: str) -> None:
    with writing(path, option):
        path.write_text(text, encoding="utf-8")


def folder(path: Path, option: str) -> None:
    """Make a folder that can be written to, before anything long is computed for it."""
    with writing(path, option):
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
