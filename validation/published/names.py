"""Names as sources write them, as names of the catalog: models and GPUs. What has none is skipped with why."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from rlsim import catalog
from validation.published.records import SkipError

HERE = Path(__file__).parent / "models"
GPUS = (
    ("GB300", "gb300"),
    ("GB200", "gb200"),
    ("GH200", "gh200"),
    ("B200", "b200"),
    ("H200", "h200"),
    ("H100", "h100-sxm"),
    ("H800", "h800"),
    ("H20", "h20"),
    ("SM100", "b200"),
    ("SM90", "h800"),
    ("A100", "a100-80g"),
    ("A800", "a800-80g"),
    ("L40S", "l40s"),
    ("L20", "l20"),
    ("A6000", "a6000"),
    ("MI300X", "mi300x"),
    ("V100", "v100-32g"),
    ("C550", "c550"),
    ("Ascend", "ascend-910b"),
    ("910B", "ascend-910b"),
    ("NPU", "ascend-910b"),
)
"""(as written, catalog), the more special first."""
SAME = {
    "r1-distill-qwen-1.5b": "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
    "deepseek-r1-distill-qwen-7b": "Qwen/Qwen2.5-Math-7B",
    "r1-distill-qwen-7b": "Qwen/Qwen2.5-Math-7B",
    "deepseek-r1-distill-qwen-32b": "Qwen/Qwen2.5-32B",
    "deepseek-r1-distill-llama-8b": "meta-llama/Llama-3.1-8B",
    "qwen2.5-vl-7b": "Qwen/Qwen2.5-7B",
    "qwen2.5-vl-3b": "Qwen/Qwen2.5-3B",
    "qwen2.5-vl-32b": "Qwen/Qwen2.5-32B",
    "qwen3-vl-8b": "Qwen/Qwen3-8B",
    "qwen3-vl-30b-a3b": "Qwen/Qwen3-30B-A3B",
    "intellect-3": "zai-org/GLM-4.5-Air",
    "llama-3-70b-instruct": "meta-llama/Meta-Llama-3-70B",
    "llama-3-8b": "meta-llama/Meta-Llama-3-8B",
    "llama-3-70b": "meta-llama/Meta-Llama-3-70B",
    "llama-3.3-70b": "meta-llama/Llama-3.1-70B",
    "deepseek-v3.1": "deepseek-ai/DeepSeek-V3",
    "deepseek-v3/r1": "deepseek-ai/DeepSeek-V3",
    "deepseek-r1-0528": "deepseek-ai/DeepSeek-R1",
    "deepseek-v3-0324": "deepseek-ai/DeepSeek-V3",
    "deepseek-v3-671b-a37b": "deepseek-ai/DeepSeek-V3",
    "kimi-k2-instruct": "moonshotai/Kimi-K2",
}
"""Models of the same shape as one in the catalog: fine-tuned, distilled, or the language part of a vision model."""
SUFFIXES = r"-(instruct|base|chat|it|thinking|hf|bf16|fp8|sft|actor|2507)(?=-|$)"


@cache
def _known() -> dict[str, str]:
    known = {_bare(name): name for name in reversed(catalog.models())}
    return known | {_bare(f.stem): str(f) for f in HERE.glob("*.json")}


def _bare(name: str) -> str:
    """ "Qwen/Qwen2.5-7B-Instruct (actor, ref)" -> "qwen2.5-7b"."""
    text = re.sub(r"\(.*?\)", "", name).strip().lower().replace("--", "/").rsplit("/", 1)[-1]
    text = text.split(" actor")[0].split(" sft")[0].strip()
    text = re.sub(r"[\s_]+", "-", text)
    text = re.sub(r"^llama-?([23])", r"llama-\1", text).replace("meta-llama", "llama")
    text = re.sub(r"^gpt-?oss", "gpt-oss", text)
    text = re.sub(r"^glm(?=\d)", "glm-", text)
    for _ in range(3):
        text = re.sub(SUFFIXES, "", text)
    return text


def model(name: object) -> str:
    """The catalog's model (or a config.json of ours) of that name."""
    if not name:
        raise SkipError("the model is not stated")
    bare = _bare(str(name))
    if bare in SAME:
        return SAME[bare]
    if bare in _known():
        return _known()[bare]
    raise SkipError(f"{str(name).split(' (')[0]} is not in the catalog")


def gpu(name: object) -> str:
    """The catalog's GPU of that name."""
    if not name:
        raise SkipError("the GPU is not stated")
    text = str(name)
    if re.search(r"PCIe|40\s?G", text, re.I) and re.search("A100|H100", text):
        raise SkipError(f"no {text} in the catalog")
    for written, found in GPUS:
        if re.search(rf"(?<![A-Z0-9]){written}(?![0-9])", text, re.I):
            return found
    raise SkipError(f"no {text.split(' (')[0]} in the catalog")


def thinks(name: object) -> bool:
    """Whether the model writes long chains of thought: distilled from R1, or a thinking model."""
    return bool(re.search(r"distill|r1|thinking|qwq|qwen3(?!-coder)", str(name), re.I))


def plain(written: str, found: str) -> bool:
    """Whether the written GPU is the catalog's itself, and not a relative (A40 of an A100, MI350X of an MI300X)."""
    return written.lower() in (found, found.split("-")[0])
