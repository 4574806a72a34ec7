"""`rlsim reshard`: the JSON contract, one tensor, the detector on files, and mistakes of the user."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import rlsim
from rlsim.cli import app
from tests.reshard.small_models import DENSE, checkpoint

SCENARIOS = Path(__file__).parents[1] / "scenarios"
SYNC = SCENARIOS / "70b_weight_sync.yaml"
QKV = "model.layers.0.self_attn.qkv_proj.weight"
run = CliRunner()


def test_json_contract() -> None:
    """70B: 141.1 GB to each of eight engines, 17.6 GB into each GPU, 0.353 s at 50 GB/s."""
    answer = json.loads(run.invoke(app, ["reshard", str(SYNC), "--json"]).stdout)
    assert set(answer) == {
        "bytes_total", "messages", "bytes_max_in", "bytes_max_out", "floor_seconds", "amplification_full_broadcast",
        "strategies",
    }  # fmt: skip
    assert answer["bytes_max_in"] == pytest.approx(17.64e9, rel=1e-3)
    assert answer["floor_seconds"] == pytest.approx(0.353, abs=0.001)
    assert answer["amplification_full_broadcast"] == pytest.approx(8.0, rel=0.01)
    assert all(s["seconds"] >= answer["floor_seconds"] for s in answer["strategies"])
    assert {"p2p", "broadcast"} <= {s["name"] for s in answer["strategies"]}


def test_runs_of_one_tensor_by_any_name() -> None:
    answer = rlsim.reshard_plan(rlsim.load_scenario(SYNC).variants[0])
    by_target = answer.as_dict(QKV)["runs"]
    assert [r["dst_rank"] for r in by_target] == sorted(r["dst_rank"] for r in by_target)
    first = by_target[0]
    assert first == {
        "src_rank": 0, "src_tensor": "decoder.layers.0.self_attention.linear_qkv.weight", "src_start": [0, 0],
        "dst_rank": 0, "dst_tensor": QKV, "dst_start": [0, 0], "shape": [1280, 8192],
    }  # fmt: skip
    assert sum(r["shape"][0] * r["shape"][1] for r in by_target) == 64 * 1280 * 8192
    only_k = answer.runs("model.layers.0.self_attn.k_proj.weight")
    assert {r.shape for r in only_k} == {(128, 8192)}
    assert all(r.dst_start == (1024, 0) for r in only_k)
    trainer_name = answer.runs("decoder.layers.0.self_attention.linear_qkv.weight")
    assert {r.dst_tensor.split(".")[2] for r in trainer_name} == {"0", "10", "20", "30", "40", "50", "60", "70"} or (
        QKV in {r.dst_tensor for r in trainer_name}
    )


def test_unknown_tensor_names_near_ones() -> None:
    result = run.invoke(app, ["reshard", str(SYNC), "--tensor", QKV.replace("qkv_proj", "qkv_prj")])
    assert result.exit_code != 0
    assert isinstance(result.exception, rlsim.errors.UserError)
    assert QKV in str(result.exception)


def test_off_the_grid_is_the_users_mistake() -> None:
    """Experts of width 768 at TP 8 are 96 rows: no whole block of 128."""
    wide = ["model=Qwen/Qwen3-30B-A3B", "rollout={tp: 8, dtype: fp8}", "trainer={backend: fsdp2}"]
    file = rlsim.load_scenario(SCENARIOS / "7b_64gpu.yaml", wide)
    with pytest.raises(rlsim.errors.UserError, match="cuts the expert width 768"):
        rlsim.reshard_plan(file.variants[0])


def test_html_map(tmp_path: Path) -> None:
    page = tmp_path / "map.html"
    assert run.invoke(app, ["reshard", str(SYNC), "--html", str(page)]).exit_code == 0
    text = page.read_text()
    assert "Bytes from trainer ranks to engine ranks" in text
    assert "http://" not in text.split("<body>")[1]


def test_verify_two_checkpoints(tmp_path: Path) -> None:
    """A scenario of a small model, a right and a swapped copy: exit code 2 and the mistake by name."""
    hf = {name: x.float() for name, x in checkpoint(DENSE).items()}
    gate, up = "model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight"
    save_file(hf, tmp_path / "a.safetensors")
    torch.save(hf | {gate: hf[up], up: hf[gate]}, tmp_path / "b.pt")
    arguments = ["reshard", str(SYNC), "--verify", str(tmp_path / "a.safetensors")]
    assert run.invoke(app, [*arguments, str(tmp_path / "a.safetensors")]).exit_code == 0
    wrong = run.invoke(app, [*arguments, str(tmp_path / "b.pt"), "--json"])
    assert wrong.exit_code == 2
    assert json.loads(wrong.stdout)["findings"] == [
        {"tensors": [gate, up], "mistake": "gate and up swapped", "right": False}
    ]
    (tmp_path / "c.safetensors").write_bytes(b"no tensors")
    broken = run.invoke(app, [*arguments, str(tmp_path / "c.safetensors")])
    assert "not a safetensors file" in str(broken.exception)
