"""What the memory check answers: bytes by role at the peak moment, KV capacity, and what does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

GIB = 2**30


@dataclass(frozen=True)
class Breakdown:
    """Bytes by role on the busiest GPU (or node), at the moment of the step when they are most.

    parts   role -> bytes, in a fixed order
    moment  "train", "logprob", "reference", "critic values", "critic update", "reward", "rollout", "weight sync"
    cause   one phrase: what makes the peak
    """

    parts: Mapping[str, float]
    moment: str
    cause: str = ""

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    @property
    def largest(self) -> list[str]:
        """Roles by size, largest first."""
        return sorted(self.parts, key=lambda role: -self.parts[role])

    def consumers(self, count: int = 3) -> str:
        """The largest roles with their sizes: "optimizer states 31.5 GiB, activations 20.1 GiB"."""
        return ", ".join(f"{role} {self.parts[role] / GIB:.1f} GiB" for role in self.largest[:count])


@dataclass(frozen=True)
class Problem:
    """What does not fit: bytes needed and there, by what, and the nearest change that fits."""

    role: str
    need: float
    have: float
    by: str
    fix: str


@dataclass(frozen=True)
class EngineMemory:
    """One kind of engine on its tightest GPU.

    budget, fixed    bytes that the engine may use for weights, KV cache and what else its rule counts, and the part
                     of them that is not KV cache
    kv_bytes         KV cache of one GPU
    kv_tokens_per_rank, kv_tokens_per_engine   tokens of one attention-DP rank, and of all ranks of an engine
    average_sequences, longest_sequences       whole sequences (prompt and response) that fit in one engine
    longest_tokens, longest_bytes              KV cache of one longest sequence, in whole blocks
    """

    breakdown: Breakdown
    budget: float
    fixed: float
    kv_bytes: float
    kv_tokens_per_rank: int
    kv_tokens_per_engine: int
    average_sequences: int
    longest_sequences: int
    longest_tokens: int
    longest_bytes: float


@dataclass(frozen=True)
class MemoryReport:
    """Bytes of all roles before anything is simulated.

    trainer, rollout: the busiest GPU of each side at its peak; host: the fullest node. moments: every moment looked
    at. roles: models on GPUs of their own. KV figures are those of the tightest kind of engine.
    """

    trainer: Breakdown
    rollout: Breakdown
    host: Breakdown
    problems: tuple[Problem, ...]
    engines: tuple[EngineMemory, ...]
    moments: Mapping[str, Breakdown] = field(default_factory=dict)
    roles: Mapping[str, Breakdown] = field(default_factory=dict)

    @property
    def tightest(self) -> EngineMemory:
        return min(self.engines, key=lambda engine: engine.kv_tokens_per_rank)

    @property
    def kv_tokens_per_rank(self) -> int:
        return self.tightest.kv_tokens_per_rank

    @property
    def kv_tokens_per_engine(self) -> int:
        return self.tightest.kv_tokens_per_engine

    @property
    def fits_average_sequences(self) -> int:
        return self.tightest.average_sequences

    @property
    def fits_longest_sequences(self) -> int:
        return self.tightest.longest_sequences
