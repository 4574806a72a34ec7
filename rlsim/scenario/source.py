"""Where each key of a scenario was written: file and line, or the `--set` that gave it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rlsim.errors import UserError

Path = tuple[str, ...]

# What a person may have written instead of the key that the checks name.
_SHORTHANDS: Mapping[str, tuple[str, ...]] = {
    "attn_tp": ("tp",),
    "moe_tp": ("tp",),
    "moe_ep": ("ep",),
    "attn_dp": ("tp",),
}


@dataclass(frozen=True)
class Mark:
    """Place of one key: a file with a line, or the text of a `--set`; `path` is the key as written there."""

    file: str
    line: int | None
    path: Path


def path_of(key: str) -> Path:
    """`rollout[1].tp` and `rollout.1.tp` -> ("rollout", "1", "tp")."""
    return tuple(re.sub(r"\[(\d+)\]", r".\1", key).split("."))


def dotted(path: Path) -> str:
    """("rollout", "1", "tp") -> `rollout[1].tp`."""
    text = ""
    for part in path:
        text += f"[{part}]" if part.isdigit() else f".{part}" if text else part
    return text


@dataclass(frozen=True)
class Source:
    """Marks of all keys of one variant (None: the base). Equal text makes equal scenarios, wherever written."""

    file: str | None = field(default=None, compare=False)
    variant: str | None = field(default=None, compare=False)
    marks: Mapping[Path, Mark] = field(default_factory=dict, compare=False, repr=False)

    def written(self, path: Path) -> Path:
        """The path as the file has it: a single rollout entry is a mapping there, without index."""
        if path[:2] == ("rollout", "0") and path[:2] not in self.marks:
            return ("rollout", *path[2:])
        return path

    def find(self, path: Path) -> Mark | None:
        """The mark of the key, of its shorthand, or of the nearest block around it."""
        path = self.written(path)
        for end in range(len(path), 0, -1):
            head = path[:end]
            for last in (head[-1], *(_SHORTHANDS.get(head[-1], ()) if head[0] == "rollout" else ())):
                mark = self.marks.get((*head[:-1], last))
                if mark is not None:
                    return mark
        return None

    def error(self, key: str, message: str, fix: str | None = None, kind: type[UserError] = UserError) -> UserError:
        """The user's mistake at `key`, with its place."""
        path = self.written(path_of(key))
        mark = self.find(path)
        shown = path
        if mark is not None and mark.path[:1] == ("variants",) and len(mark.path) > 2:
            shown = (*mark.path[:2], *path)
        elif self.variant is not None:
            message += f" (variant {self.variant})"
        if mark is None:
            return kind(message, file=self.file, key=dotted(shown), fix=fix)
        return kind(message, file=mark.file, line=mark.line, key=dotted(shown), fix=fix)
