"""The tensor list against the counts."""

from __future__ import annotations

from collections import Counter

import pytest

from rlsim import catalog
from rlsim.model import expert_parameters, layer_parameters, parameters, tensors


@pytest.mark.parametrize("name", catalog.models())
def test_sizes_sum_to_the_parameters(name: str) -> None:
    m = catalog.model(name)
    assert sum(t.size for t in tensors(m)) == parameters(m)


@pytest.mark.parametrize("name", ["Qwen3-30B-A3B", "GLM-4.5-Air", "gpt-oss-20b", "Mixtral-8x7B", "gemma-2-2b"])
def test_layers_sum_to_their_counts(name: str) -> None:
    m = catalog.model(name)
    dense: Counter[int] = Counter()
    experts: Counter[int] = Counter()
    for t in tensors(m):
        (experts if t.part == "expert" else dense)[t.layer] += t.size
    for i in range(m.num_layers):
        assert (dense[i], experts[i]) == layer_parameters(m, i)


def test_every_expert_has_its_own_tensors() -> None:
    m = catalog.model("gpt-oss-20b")
    sizes: Counter[tuple[int, int]] = Counter()
    for t in tensors(m):
        if t.part == "expert":
            sizes[t.layer, t.expert] += t.size
    assert set(sizes.values()) == {expert_parameters(m)}
    assert len(sizes) == 24 * 32


def test_names_are_unique_and_as_in_the_checkpoint() -> None:
    found = {t.name: t for t in tensors(catalog.model("DeepSeek-V3"))}
    # Table, norm, head; 61 layers of 5 projections and 4 norms; 3 dense MLPs; 58 routers of 2, 58·3 shared,
    # 58·256·3 expert matrices.
    assert len(found) == len(tensors(catalog.model("DeepSeek-V3"))) == 3 + 61 * 9 + 3 * 3 + 58 * (2 + 3 + 768)
    assert found["model.layers.3.mlp.experts.255.down_proj.weight"].shape == (7168, 2048)
    assert found["model.layers.0.self_attn.kv_a_proj_with_mqa.weight"].shape == (576, 7168)
    assert found["model.layers.0.mlp.gate_proj.weight"].part == "mlp"
    assert found["model.layers.3.mlp.gate.weight"].part == "router"
    assert found["lm_head.weight"].layer == -1


def test_tied_model_has_no_head() -> None:
    assert not any(t.part == "head" for t in tensors(catalog.model("Qwen3-0.6B")))
