from __future__ import annotations

from rlsim.scenario import docs
from rlsim.scenario.attributes import attribute, attributes, label, unit


def test_the_page_is_what_the_schema_says() -> None:
    assert docs.FILE.read_text(encoding="utf-8") == docs.text(), "run `python -m rlsim.scenario.docs`"


def test_labels_and_units() -> None:
    assert label("trainer.tp") == "tensor parallel size (TP)"
    assert label("rollout[0].max_num_seqs") == "running sequences at most, per attention-DP rank"
    assert unit("cluster.nic") == "B/s"
    assert unit("workload.response_tokens.p99") == "tokens"
    assert unit("costs.gpu_hour") == "$/h"
    assert attribute("trainer.micro_batch_tokens").default == ""
    assert attribute("rollout.block_size").default == "16"
    assert attribute("async.policy").type.startswith("areal, verl")


def test_every_key_is_described() -> None:
    for row in attributes():
        assert row.description, row.key
        assert row.label, row.key
        assert row.type, row.key
    keys = [row.key for row in attributes()]
    assert len(keys) == len(set(keys))
