"""What makes two studies of a scenario the same, so that the points of a folder may be used again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rlsim
from rlsim.plan.case import Study
from rlsim.scenario.dump import to_dict
from rlsim.scenario.schema import Scenario


def manifest_of(
    study: Study, scenarios: Sequence[Scenario], asked: Mapping[str, Any], values: Sequence[str] = ()
) -> dict[str, Any]:
    """What every variant says, what was asked, and what files outside the scenario hold. `values`: those laid over it,
    which may name files too.
    """
    return {
        "scenario": Path(study.file).name,
        "variants": {one.variant: to_dict(one) for one in scenarios},
        **asked,
        "steps": study.steps,
        "seed": study.seed,
        "files": _outside(study, scenarios, values),
        "version": rlsim.__version__,
    }


def _outside(study: Study, scenarios: Sequence[Scenario], values: Sequence[str]) -> dict[str, str]:
    """Digests of the traces, profiles and model configurations that scenarios or values name."""
    named = [str(v) for one in scenarios for v in (one.costs.profile, one.model.base)]
    named += [
        str(spec.trace) for one in scenarios for spec in (one.workload.prompt_tokens, one.workload.response_tokens)
    ]
    found = {name for name in (*named, *values) if re.search(r"\.\w+$", name)}
    places = ((name, path) for name in sorted(found) for path in (Path(name), Path(study.folder, name)))
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in places if path.is_file()}
