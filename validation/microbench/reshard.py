"""Weight syncs by every strategy of `rlsim.reshard.distributed` between processes of one host, bytes compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlsim.reshard.distributed import STRATEGIES, transfer
from rlsim.reshard.plan import plan_between
from rlsim.reshard.state import shard
from validation import sync_models
from validation.microbench.setting import Setting


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    """Seconds until the last engine has its weights; half of the ranks, at most two, train."""
    if setting.world < 2:
        return
    trainers = min(2, setting.world // 2)
    receivers = setting.world - trainers
    for size in setting.sizes((12e6,), (12e6, 48e6, 192e6), (256e6, 4e9)):
        m = sync_models.model_of(size)
        source, target = sync_models.layouts(m, trainers, receivers)
        plan = plan_between(m, source, target)
        whole = sync_models.checkpoint(m)
        held = shard(whole, m, source, setting.rank) if setting.rank < trainers else {}
        held = {name: tensor.to(setting.device) for name, tensor in held.items()}
        wanted = {} if setting.rank < trainers else shard(whole, m, target, 0)
        for strategy in STRATEGIES:
            for bucket in setting.choose((1 << 20,), (1 << 22, 1 << 25), (1 << 28, 1 << 30)):
                found = transfer(plan, held, strategy, bucket)
                if bad := sync_models.wrong(found, wanted):
                    raise RuntimeError(f"{strategy} delivers wrong bytes: {', '.join(bad[:3])}")
                seconds = setting.timed(
                    lambda p=plan, h=held, s=strategy, b=bucket: transfer(p, h, s, b), together=True
                )
                yield from setting.rows(
                    "reshard", f"reshard-{strategy}-{size:.0f}-k{bucket}-w{setting.world}", seconds,
                    strategy=strategy, receivers=receivers, bucket=bucket, bytes=plan.model_bytes,
                )  # fmt: skip
