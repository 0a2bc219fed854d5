"""Every method under every preset gives the pinned plan, scores and weights, bit for bit."""

from __future__ import annotations

import json

import pytest

from tests.golden import runs

PINNED = json.loads(runs.RESULTS.read_text())
# A run of each kind in the quick tests, all others among the slow ones.
QUICK = {
    "paper/auber/0",
    "paper/exhaustive/0",
    "paper/voita/0",
    "reference/auber/1",
    "reference/michel/0",
    "default/auber/0",
    "default/greedy/1",
    "default/confidence/0",
    "default/random/1",
    "default/original+tuning/0",
}


def test_every_run_is_pinned():
    assert sorted(PINNED["runs"]) == sorted(runs.names())
    assert set(runs.names()) >= QUICK


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in runs.names()],
)
def test_a_run_gives_the_pinned_result(name, tmp_path, run_auber):
    code, _, errors = run_auber(*runs.words(name, tmp_path / "run"))
    assert code == 0, errors
    found, pinned = runs.describe(tmp_path / "run"), PINNED["runs"][name]
    machine = PINNED["machine"]
    assert runs.comparable(found, machine) == runs.comparable(pinned, machine)
