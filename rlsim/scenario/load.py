"""Scenario files: read, merge variants and `--set`, validate. A mistake is one `UserError` with its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from rlsim.errors import UserError
from rlsim.scenario.checks import complaints
from rlsim.scenario.fill import fill
from rlsim.scenario.schema import Scenario
from rlsim.scenario.source import Mark, Path, Source, path_of
from rlsim.scenario.translate import complaints_of, user_error
from rlsim.scenario.variants import drop_nulls, expand, get, merge, merge_marks, nearest, put
from rlsim.scenario.yamltext import read_value, read_yaml

BASE = "base"


@dataclass(frozen=True)
class ScenarioFile:
    """A loaded file: its variants, the base first, each merged and checked."""

    path: str
    name: str
    variants: tuple[Scenario, ...]

    def variant(self, name: str) -> Scenario:
        """The variant of that name."""
        return self.select(name)[0]

    def select(self, name: str | None = None) -> tuple[Scenario, ...]:
        """One variant, or all of them."""
        if name is None:
            return self.variants
        found = tuple(s for s in self.variants if s.variant == name)
        if not found:
            raise _no_variant(name, [s.variant for s in self.variants], self.path)
        return found


def load_scenario(path: str | FilePath, overrides: Sequence[str] = (), variant: str | None = None) -> ScenarioFile:
    """Read a scenario file. `overrides` are `key=value` texts (`--set`) that win over base and variants.

    With `variant`, only that one is merged and checked: an override may be wrong for the others.
    """
    file = FilePath(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError("no such file", file=str(path), fix=_similar_file(file)) from None
    except IsADirectoryError:
        raise UserError("this is a folder", file=str(path), fix="a scenario file (YAML)") from None
    except (UnicodeDecodeError, OSError) as error:
        raise UserError(f"cannot be read: {error}", file=str(path)) from None
    return _load(text, str(path), file.parent, file.stem, overrides, variant)


def loads_scenario(
    text: str,
    name: str = "<string>",
    overrides: Sequence[str] = (),
    variant: str | None = None,
    folder: str | FilePath = "",
) -> ScenarioFile:
    """A scenario from YAML text. `folder`: what relative paths in it are relative to."""
    return _load(text, name, FilePath(folder), "scenario", overrides, variant)


def scenario_from_dict(data: Mapping[str, Any]) -> Scenario:
    """One scenario from plain data (no variants). Quantities are text with units, or SI numbers."""
    plain, _ = expand(drop_nulls(dict(data)), {})
    return _build(plain, Source(), si=True)


def _load(
    text: str, file: str, folder: FilePath, stem: str, overrides: Sequence[str], only: str | None
) -> ScenarioFile:
    data, marks = read_yaml(text, file)
    if data is None:
        raise UserError("the file is empty", file=file, fix="at least model, cluster, workload, trainer and rollout")
    if not isinstance(data, dict):
        raise UserError("not a mapping of keys", file=file, line=1, fix="`key: value` lines, beginning with `model: …`")
    sets = [_parse_override(text) for text in overrides]
    for path, value, mark in sets:
        if path[0] == "variants":
            _refuse_new_variant(data, path, value, mark)
            data, marks = _set(data, marks, path, value, mark)
    sets = [one for one in sets if one[0][0] != "variants"]

    variants = data.pop("variants", None) or {}
    source = Source(file, None, marks)
    if not isinstance(variants, dict):
        raise source.error("variants", "not a mapping of names to settings", "`variants: {fast: {…}}`")
    base, marks = expand(data, marks)
    name = base.setdefault("name", stem)
    base_variant = base.get("variant", BASE)
    known = [str(base_variant), *variants]
    if only is not None and only not in known:
        raise _no_variant(only, known, file)

    built: list[Scenario] = []
    for variant in (None, *variants):
        label = base_variant if variant is None else variant
        if only is not None and label != only:
            continue
        if variant is not None and variant == base_variant:
            raise source.error(
                f"variants.{variant}", "the base has this name already", "another name, or another `variant:`"
            )
        merged, merged_marks = (
            (drop_nulls(base), marks) if variant is None else _merged(base, marks, variants, variant, source)
        )
        for path, value, mark in sets:
            merged, merged_marks = _set(merged, merged_marks, path, value, mark)
        merged = _with_paths(merged, folder)
        built.append(_build(merged, Source(file, variant, merged_marks)))
    return ScenarioFile(file, str(name), tuple(built))


def _merged(
    base: dict[str, Any], marks: Mapping[Path, Mark], variants: dict[str, Any], variant: str, source: Source
) -> tuple[dict[str, Any], dict[Path, Mark]]:
    """One variant laid on the base."""
    over = variants[variant] if variants[variant] is not None else {}
    if not isinstance(over, dict):
        raise source.error(f"variants.{variant}", "not a mapping of keys", "`{trainer: {tp: 8}}`")
    for key in ("name", "variant", "variants"):
        if key in over:
            raise source.error(f"variants.{variant}.{key}", "belongs to the whole file, not to a variant", "delete it")
    prefix = ("variants", variant)
    inside = {path[2:]: mark for path, mark in marks.items() if path[:2] == prefix and len(path) > 2}
    over, inside = expand(over, inside)
    merged = merge(base, over)
    merged["variant"] = variant
    return merged, merge_marks(marks, inside)


def _build(data: dict[str, Any], source: Source, si: bool = False) -> Scenario:
    """Fill defaults that depend on other keys, validate, check, refuse what is not modelled."""
    data = fill(data)
    if "rollout" in data and not isinstance(data["rollout"], list):
        data = {**data, "rollout": [data["rollout"]]}
    try:
        scenario = Scenario.model_validate(data, context={"si": si})
    except ValidationError as error:
        raise user_error(complaints_of(error, data, Scenario), source) from None
    scenario._source = source
    problems = complaints(scenario)
    if problems:
        raise user_error(problems, source)
    return scenario


def _parse_override(text: str) -> tuple[Path, Any, Mark]:
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise UserError("not KEY=VALUE", file=f"--set {text}", fix="for example --set cluster.nic='25 GB/s'")
    path = path_of(key)
    return path, read_value(value), Mark(f"--set {key}", None, path)


def _set(
    data: dict[str, Any], marks: Mapping[Path, Mark], path: Path, value: Any, mark: Mark
) -> tuple[dict[str, Any], dict[Path, Mark]]:
    """Data and marks with one `--set` applied."""
    if path[:2] == ("rollout", "0") and isinstance(data.get("rollout"), dict):
        path = ("rollout", *path[2:])
    changed, _ = expand(put(data, path, value), {})
    prefixes = {path[:i]: mark for i in range(1, len(path)) if not isinstance(get(data, path[:i]), dict | list)}
    below = {p: m for p, m in marks.items() if p[: len(path)] != path}
    return changed, {**below, **prefixes, path: mark}


def _with_paths(data: dict[str, Any], folder: FilePath) -> dict[str, Any]:
    """Relative paths in a file are relative to the file: traces, config.json, profiles."""

    def resolved(value: Any) -> Any:
        if isinstance(value, str) and not FilePath(value).is_absolute() and (folder / value).exists():
            return str(folder / value)
        return value

    places: list[Path] = [("model", "base"), ("costs", "profile")]
    places += [("workload", lengths, "trace") for lengths in ("prompt_tokens", "response_tokens")]
    for path in places:
        text = get(data, path)
        if isinstance(text, str) and text not in ("", "auto"):
            data = put(data, path, resolved(text))
    return data


def _refuse_new_variant(data: Mapping[str, Any], path: Path, value: Any, mark: Mark) -> None:
    """A variant is made only as a whole, `--set variants.NAME={…}`: a key below an unknown name is a slip."""
    known = data.get("variants")
    names = [str(name) for name in known] if isinstance(known, dict) else []
    if len(path) < 2 or path[1] in names or (len(path) == 2 and isinstance(value, dict)):
        return
    fix = nearest(path[1], names) or ("one of " + ", ".join(names) if names else "a key without `variants`")
    raise UserError(f"no variant {path[1]!r}", file=mark.file, key=".".join(path), fix=fix)


def _no_variant(name: str, known: list[str], file: str) -> UserError:
    close = nearest(name, known)
    return UserError(f"no variant {name!r}", file=file, fix=close or "one of " + ", ".join(known))


def _similar_file(file: FilePath) -> str | None:
    if not file.parent.is_dir():
        return f"the folder {file.parent} does not exist either"
    close = nearest(file.name, sorted(p.name for p in file.parent.glob("*.y*ml")))
    return str(file.parent / close) if close else None
