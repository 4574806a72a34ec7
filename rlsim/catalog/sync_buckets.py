"""How many bytes of weights each framework sends together when nobody says: read from its source.

verl 1dda039: update_weights_bucket_megabytes 2048; slime 624b824: update_weight_buffer_size 512 MiB; AReaL 4aef98d:
chunks of 1,024 MB; NeMo-RL 7ea279a: 2% of HBM a buffer, about 1.5 GiB of 80 GB. OpenRLHF and TRL send tensor by tensor:
theirs is room for the largest, and a prior.
"""

from __future__ import annotations

from collections.abc import Mapping

MIB = 2.0**20
GIB = 2.0**30

BUCKETS: Mapping[str, float] = {
    "generic": GIB,
    "verl": 2 * GIB,
    "slime": 512 * MIB,
    "openrlhf": GIB,
    "areal": GIB,
    "nemo-rl": 1.5 * GIB,
    "trl": GIB,
}


def bucket_of(framework: str) -> float:
    """Bytes of a framework's weight sync bucket; `generic` for one that has none of its own."""
    return BUCKETS.get(framework, BUCKETS["generic"])
