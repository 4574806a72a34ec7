"""Look-up of models by name."""

from __future__ import annotations

import pickle

import pytest

from rlsim import catalog
from rlsim.catalog.architectures import ALIASES
from rlsim.errors import UserError


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B"),
        ("qwen2.5-7b", "Qwen/Qwen2.5-7B"),
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B"),
        ("Qwen/Qwen3-8B-Base", "Qwen/Qwen3-8B"),
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
        ("meta-llama/Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("meta-llama/Meta-Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-70B"),
        ("unsloth/DeepSeek-V3-0324-BF16", "deepseek-ai/DeepSeek-V3"),
        ("unsloth/Llama-3.2-1B-Instruct", "meta-llama/Llama-3.2-1B"),
        ("google/gemma-2-2b-it", "google/gemma-2-2b"),
        ("meta-llama/Llama-2-7b-chat-hf", "meta-llama/Llama-2-7b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mistralai/Mixtral-8x7B"),
        ("mistralai/Mistral-7B-Instruct-v0.1", "mistralai/Mistral-7B-v0.1"),
        ("PrimeIntellect/INTELLECT-3", "zai-org/GLM-4.5-Air"),
        ("moonshotai/Kimi-K2-Instruct", "moonshotai/Kimi-K2"),
    ],
)
def test_names(name: str, found: str) -> None:
    assert catalog.model(name).name == found


def test_aliases_and_every_id_resolve() -> None:
    for name in [*catalog.models(), *ALIASES]:
        assert catalog.model(name).source


@pytest.mark.parametrize("name", ["Qwen2.5-8B", "somebody/Qwen3-8B", "Llama-3.1", "mistral-7b", "", "qwen2.5-7b-math"])
def test_nothing_is_guessed(name: str) -> None:
    with pytest.raises(UserError, match="no model"):
        catalog.model(name)


def test_nearest_names_are_offered() -> None:
    with pytest.raises(UserError, match=r"Qwen/Qwen2\.5-7B") as caught:
        catalog.model("Qwen2.5-8B")
    assert caught.value.key == "model"


def test_a_bf16_copy_is_not_quantised() -> None:
    assert catalog.model("deepseek-ai/DeepSeek-V3").quantisation.startswith("fp8")
    assert catalog.model("unsloth/DeepSeek-V3-0324-BF16").quantisation == ""


def test_specs_pickle_and_hash() -> None:
    m = catalog.model("Qwen3-30B-A3B")
    _ = m.windows, m.moe_layers
    assert pickle.loads(pickle.dumps(m)) == m
    assert hash(m) == hash(catalog.model("qwen3-30b-a3b"))
