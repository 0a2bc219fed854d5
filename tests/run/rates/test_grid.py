from __future__ import annotations

import math

import pytest

from auber.errors import ConfigError
from auber.run.rates.grid import Grid, parse_rates, parse_seeds


def test_numbers_with_commas():
    assert parse_rates("1e-4, 2e-5") == (2e-5, 1e-4)
    assert parse_seeds("2, 0") == (2, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: parse_rates("1e-5;2"),
            "--rates must be numbers with commas between, such as 1e-5,2e-5, found '1e-5;2'",
        ),
        (
            lambda: parse_seeds("0,-1"),
            "--seeds must be whole numbers with commas between, such as 0,1,2, found '0,-1'",
        ),
        (
            lambda: Grid((), (0,)),
            "--rates must be different numbers above 0, such as 1e-5,2e-5,5e-5, found none",
        ),
        (
            lambda: Grid((1e-5, 1e-5), (0,)),
            "--rates must be different numbers above 0, .*, found 1e-05,1e-05",
        ),
        (
            lambda: Grid((0.0, 1e-5), (0,)),
            "--rates must be different numbers above 0, .*, found 0,1e-05",
        ),
        (
            lambda: Grid((math.inf,), (0,)),
            "--rates must be different numbers above 0, .*, found inf",
        ),
        (
            lambda: Grid((1e-5,), ()),
            "--seeds must be different whole numbers from 0, such as 0,1,2, found none",
        ),
        (
            lambda: Grid((1e-5,), (1, 1)),
            "--seeds must be different whole numbers from 0, such as 0,1,2, found 1,1",
        ),
        (
            lambda: Grid((1e-5,), (-1,)),
            "--seeds must be different whole numbers from 0, such as 0,1,2, found -1",
        ),
        (
            lambda: Grid((1e-5,), (0,), 1.0),
            "--held-out must be a share above 0 and below 1, found 1",
        ),
    ],
)
def test_a_grid_that_cannot_be(make, message):
    with pytest.raises(ConfigError, match=f"^{message}$"):
        make()
