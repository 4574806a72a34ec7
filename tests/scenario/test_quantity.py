from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsim.scenario.quantity import BYTES, PRICE, RATE, SECONDS, Dimension, MistakeError, parse, render


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("50 GB/s", RATE, 50e9),
        ("400 Gb/s", RATE, 50e9),  # bits: 400/8
        ("400 Gbps", RATE, 50e9),
        ("141 GB", BYTES, 141e9),
        ("80 GiB", BYTES, 80 * 2**30),
        ("1 TiB", BYTES, 2**40),
        ("3 ms", SECONDS, 0.003),
        ("3 µs", SECONDS, 3e-6),
        ("5 min", SECONDS, 300.0),
        ("1.5 h", SECONDS, 5400.0),
        ("2.5 $/h", PRICE, 2.5),
        ("2.5 $", PRICE, 2.5),
    ],
)
def test_units(text: str, dimension: Dimension, value: float) -> None:
    assert parse(text, dimension) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "dimension", "says"),
    [
        ("50 GB", RATE, "is a size, but a bandwidth is needed"),
        ("50", RATE, "has no unit"),
        (50, BYTES, "has no unit"),
        ("50 mB/s", RATE, "prefix 'm'"),
        ("2 ks", SECONDS, "prefix 'k'"),
        ("-1 GB", BYTES, "not a possible size"),
        ("inf s", SECONDS, "not a possible time"),
        ("nan s", SECONDS, "not a possible time"),
        ("fast", RATE, "not a bandwidth"),
        ("3 parsec", SECONDS, "unknown unit"),
        (True, BYTES, "not a size"),
        ([1], BYTES, "not a size"),
    ],
)
def test_mistakes_say_what_would_be_right(text: object, dimension: Dimension, says: str) -> None:
    with pytest.raises(MistakeError) as caught:
        parse(text, dimension)
    assert says in caught.value.message
    assert dimension.example in str(caught.value.fix)


@settings(deadline=None)
@given(
    amount=st.floats(min_value=1e-9, max_value=1e18),
    dimension=st.sampled_from([BYTES, RATE, SECONDS, PRICE]),
)
def test_render_is_read_back_exactly(amount: float, dimension: Dimension) -> None:
    assert parse(render(amount, dimension), dimension) == amount


def test_render_is_short() -> None:
    assert render(50e9, RATE) == "50 GB/s"
    assert render(2.0**30, BYTES) == "1 GiB"
    assert render(0.003, SECONDS) == "3 ms"
