"""Models by name or written-out alias, and any other model by the path of its config.json."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from rlsim.architecture import ModelSpec
from rlsim.catalog.names import nearest
from rlsim.errors import UserError
from rlsim.hf_config import load_config, model_from_config

FOLDER = Path(__file__).parent / "models"

# Fine-tunes and releases with the architecture of a catalog model. Lower case, without the organisation.
ALIASES = {
    "deepseek-r1-0528": "deepseek-ai/DeepSeek-R1",
    "deepseek-r1-distill-llama-8b": "meta-llama/Llama-3.1-8B",
    "deepseek-r1-distill-llama-70b": "meta-llama/Llama-3.1-70B",
    "deepseek-r1-distill-qwen-7b": "Qwen/Qwen2.5-7B",
    "deepseek-r1-distill-qwen-14b": "Qwen/Qwen2.5-14B",
    "deepseek-r1-distill-qwen-32b": "Qwen/Qwen2.5-32B",
    "deepseek-v3-0324": "deepseek-ai/DeepSeek-V3",
    "deepseek-v3.1": "deepseek-ai/DeepSeek-V3",
    "intellect-3": "zai-org/GLM-4.5-Air",
    "llama-3-8b": "meta-llama/Meta-Llama-3-8B",
    "llama-3-70b": "meta-llama/Meta-Llama-3-70B",
    "llama-3.3-70b": "meta-llama/Llama-3.1-70B",
    "meta-llama-3.1-8b": "meta-llama/Llama-3.1-8B",
    "meta-llama-3.1-70b": "meta-llama/Llama-3.1-70B",
    "meta-llama-3.1-405b": "meta-llama/Llama-3.1-405B",
    "mistral-7b-instruct-v0.1": "mistralai/Mistral-7B-v0.1",
    "mistral-7b-instruct-v0.3": "mistralai/Mistral-7B-v0.3",
    "mixtral-8x7b-instruct-v0.1": "mistralai/Mixtral-8x7B",
    "mixtral-8x22b-instruct-v0.1": "mistralai/Mixtral-8x22B",
    "mixtral-8x7b-v0.1": "mistralai/Mixtral-8x7B",
    "mixtral-8x22b-v0.1": "mistralai/Mixtral-8x22B",
    "qwen2.5-coder-1.5b": "Qwen/Qwen2.5-1.5B",
    "qwen2.5-coder-7b": "Qwen/Qwen2.5-7B",
    "qwen2.5-coder-14b": "Qwen/Qwen2.5-14B",
    "qwen2.5-coder-32b": "Qwen/Qwen2.5-32B",
    "qwen3-30b-a3b-thinking-2507": "Qwen/Qwen3-30B-A3B-Instruct-2507",
    "qwen3-235b-a22b-thinking-2507": "Qwen/Qwen3-235B-A22B-Instruct-2507",
    "qwen3-4b-thinking-2507": "Qwen/Qwen3-4B-Instruct-2507",
    "qwen3-coder-30b-a3b": "Qwen/Qwen3-30B-A3B-Instruct-2507",
}
# Organisations whose uploads keep the name of the original.
MIRRORS = {
    "deepseek-ai",
    "google",
    "meta-llama",
    "mistralai",
    "moonshotai",
    "nousresearch",
    "openai",
    "primeintellect",
    "qwen",
    "unsloth",
    "zai-org",
    "zai",
    "thudm",
}
# Endings that change the weights or their format, not the architecture. Tried one at a time, last one first.
SUFFIXES = ("-instruct", "-base", "-chat", "-it", "-hf", "-bf16", "-fp8")
FORMATS = {"-bf16": "", "-fp8": "fp8"}


def models() -> tuple[str, ...]:
    """Ids of the catalog's models."""
    return tuple(sorted((path.stem.replace("--", "/") for path in FOLDER.glob("*.json")), key=str.lower))


def model(name: str) -> ModelSpec:
    """A model by its id ("Qwen/Qwen2.5-7B"), its bare name, an alias, or the path of its config.json.

    Case does not matter. Endings such as "-Instruct" and known mirrors ("unsloth/...") lead to the base
    architecture; anything else that is not in the catalog is refused with the nearest names, never guessed.
    """
    written = name.strip()
    path = Path(written).expanduser()
    if written.endswith(".json") or written.startswith((".", "/", "~")):
        return load_config(path)
    found = _resolve(written.lower())
    if found is not None:
        return found
    if written and path.is_dir():
        return load_config(path)
    known = models()
    close = nearest(written, [*known, *ALIASES])
    raise UserError(
        f"no model {name!r} in the catalog",
        key="model",
        fix=(f"{close}, or " if close else "`rlsim catalog models` lists them; or ") + "the path to its config.json",
    )


def _resolve(name: str) -> ModelSpec | None:
    """The catalog's model for a lower-case name, after taking off one known ending after the other."""
    by_name = _by_name()
    owner, _, bare = name.rpartition("/")
    if owner and owner not in MIRRORS:
        return None
    if bare in by_name:
        return _load(by_name[bare])
    for suffix in SUFFIXES:
        if bare.endswith(suffix):
            base = _resolve(f"{owner}/{bare.removesuffix(suffix)}" if owner else bare.removesuffix(suffix))
            if base is not None and suffix in FORMATS:
                return replace(base, quantisation=FORMATS[suffix])
            return base
    return None


@cache
def _by_name() -> dict[str, str]:
    """Lower-case bare name -> catalog id."""
    return {**ALIASES, **{name.rsplit("/", 1)[-1].lower(): name for name in models()}}


@cache
def _load(name: str) -> ModelSpec:
    file = FOLDER / (name.replace("/", "--") + ".json")
    facts = json.loads(file.read_text(encoding="utf-8"))
    return model_from_config(facts, name=name, source=str(facts["source"]), file=str(file))
