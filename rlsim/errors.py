"""Errors that are the user's to mend: what is wrong, where, and what would be right."""

from __future__ import annotations


class UserError(Exception):
    """Wrong input. The command line prints it as one message and exits with code 2.

    `file`, `line` and `key` say where; `fix` says what would be right.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
        fix: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line
        self.key = key
        self.fix = fix

    def __str__(self) -> str:
        where = ""
        if self.file is not None:
            where = self.file if self.line is None else f"{self.file}:{self.line}"
            where += ": "
        if self.key is not None:
            where += f"{self.key}: "
        text = where + self.message
        if self.fix:
            text = text.rstrip(".") + f". Fix: {self.fix}"
        return text


class NotModelled(UserError):
    """A key of the schema whose mechanism is not in the simulation yet: refused, never ignored."""
