from __future__ import annotations

import pytest

from auber.bench.catalogue import ROWS, Limits, Request, parse_layers
from auber.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "total", "longest"), [("rte", 110_000, 128), ("cola", 64_000, 48)]
)
def test_lengths_are_those_of_the_task(name, total, longest):
    shape = ROWS[name]
    lengths = shape.lengths(shape.count)
    assert sum(lengths) == pytest.approx(total, rel=0.01)
    assert lengths == sorted(lengths)
    assert min(lengths) <= 12
    assert max(lengths) <= longest
    # A long tail to the right, as texts have it.
    assert sum(lengths) / len(lengths) > lengths[len(lengths) // 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": "bse"}, "Unknown size 'bse'. Did you mean 'base'\\? Known: base, small, tiny"),
        ({"rows": "colla"}, "Unknown rows 'colla'. Did you mean 'cola'\\? Known: cola, rte"),
        ({"count": 7}, "--count must be at least 8, found 7"),
        ({"limits": Limits(repeats=0)}, "--repeats must be at least 1, found 0"),
        ({"limits": Limits(seconds=0)}, "--seconds must be above 0, found 0"),
        ({"limits": Limits(seconds=float("nan"))}, "--seconds must be above 0, found nan"),
        ({"steps": 0}, "--steps must be at least 1, found 0"),
        (
            {"growth": True, "model": "x"},
            "--growth makes models of several sizes itself; give --size in place of --model",
        ),
        (
            {"rewards": False, "tuning": False, "search": False},
            "nothing is left to measure; leave out one of",
        ),
    ],
)
def test_a_wrong_request_says_what_is_wrong(options, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        Request(**options)


def test_layers_are_read_and_checked():
    assert parse_layers("11, 0,5") == (0, 5, 11)
    assert Request(layers=(0, 1)).check_layers(2) == (0, 1)
    assert Request().check_layers(3) == (0, 1, 2)
    with pytest.raises(ConfigError, match="^--layers must be from 0 to 1, found 2$"):
        Request(layers=(0, 2)).check_layers(2)


@pytest.mark.parametrize("text", ["", "0,,1", "0-3", "-1", "0,0", "²"])
def test_layers_that_are_none(text):
    message = (
        f"^--layers must be different numbers with commas between, such as 0,5,11, found '{text}'$"
    )
    with pytest.raises(ConfigError, match=message):
        parse_layers(text)
