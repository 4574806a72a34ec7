"""The GPUs: complete, dense, in SI, with sources."""

from __future__ import annotations

import pickle

import pytest

from rlsim import catalog
from rlsim.catalog.hardware import FIGURES
from rlsim.errors import UserError

WANTED = ["A100-80G", "H100-SXM", "H200", "H800", "H20", "B200", "GB200", "GB300", "L40S", "MI300X"]


@pytest.mark.parametrize("name", WANTED)
def test_every_figure_has_a_value_and_a_source(name: str) -> None:
    gpu = catalog.gpu(name)
    assert all(getattr(gpu, key) > 0 and gpu.sources[key] for key in FIGURES)
    assert all(gpu.sources[f"peak_flops.{dtype}"] for dtype in gpu.peak_flops)
    assert (gpu.kernel_system is None) == (gpu.scaled_from is not None)
    if gpu.scaled_from:
        assert catalog.gpu(gpu.scaled_from).kernel_system


def test_the_catalog_is_what_was_wanted() -> None:
    others = ["a800-80g", "gh200", "l20", "a6000", "v100-32g", "ascend-910b", "c550"]
    assert [*(name.lower() for name in WANTED), "cpu", *others] == list(catalog.gpus())


@pytest.mark.parametrize(
    ("name", "bf16", "fp8"),
    # dense: half of the datasheets' sparse figures
    [
        ("h100", 989e12, 1979e12),
        ("b200", 2250e12, 4500e12),
        ("h20", 148e12, 296e12),
        ("mi300x", 1307.4e12, 2614.9e12),
    ],
)
def test_peaks_are_dense(name: str, bf16: float, fp8: float) -> None:
    gpu = catalog.gpu(name)
    assert (gpu.peak_flops["bf16"], gpu.peak_flops["fp8"]) == (bf16, fp8)


def test_a100_has_no_fp8() -> None:
    assert "fp8" not in catalog.gpu("a100").peak_flops


def test_h800_is_an_h100_with_a_slower_nvlink() -> None:
    h100, h800 = catalog.gpu("h100"), catalog.gpu("h800")
    assert (h800.peak_flops, h800.hbm_bytes, h800.hbm_bandwidth) == (
        h100.peak_flops,
        h100.hbm_bytes,
        h100.hbm_bandwidth,
    )
    assert h800.nvlink_bandwidth < h100.nvlink_bandwidth == 450e9  # 900 GB/s counts both directions


def test_domains() -> None:
    assert {name: catalog.gpu(name).nvlink_domain for name in ("h100", "gb200", "gb300")} == {
        "h100": 8,
        "gb200": 72,
        "gb300": 72,
    }


@pytest.mark.parametrize("name", ["H100", "h100_sxm", "H100-80GB", "NVIDIA H100 SXM", " h100-sxm "])
def test_aliases(name: str) -> None:
    assert catalog.gpu(name).name == "h100-sxm"


def test_unknown_gpu_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"H1000.*h100") as caught:
        catalog.gpu("H1000")
    assert caught.value.key == "cluster.gpu"


def test_specs_pickle_and_hash() -> None:
    gpu = catalog.gpu("h200")
    assert pickle.loads(pickle.dumps(gpu)) == gpu
    assert hash(gpu) == hash(catalog.gpu("H200"))
