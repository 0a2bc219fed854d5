"""The contest of selectors at given numbers of heads."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from experiments import selectors, summary
from tests.experiments.test_path import tiny_subject


def contest(tmp_path, monkeypatch, *words):
    made = tiny_subject(tmp_path)
    monkeypatch.setattr(selectors, "make_subject", lambda *_: made)
    out = tmp_path / "selectors.json"
    common = "--model tiny --task agreement --folds 2 --out"
    monkeypatch.setattr(sys, "argv", ["selectors", *common.split(), str(out), *words])
    selectors.main()
    return json.loads(out.read_text())


def test_the_program(tmp_path, monkeypatch):
    names = "random,voita,voita-unwound,corrected,corrected-unwound,searched-unwound"
    found = contest(tmp_path, monkeypatch, "--heads", "4", "--selectors", names)
    assert list(found["runs"]) == ["original+tuning", *names.split(",")]
    for name in ("random", "voita", "voita-unwound"):
        assert found["runs"][name]["num_removed"] == 4
    for name in ("voita", "corrected"):
        assert found["runs"][name]["removed"] == found["runs"][f"{name}-unwound"]["removed"]
        assert found["runs"][name]["develop"] != found["runs"][f"{name}-unwound"]["develop"]
    for name in ("corrected 4 search", "searched 4 search"):
        assert found[name]["rewards"] > 3
        assert all(price <= 0 for price in found[name]["prices"].values())
        assert any(price < 0 for price in found[name]["prices"].values())
    assert found["searched 4 search"]["changed"] == found["runs"]["searched-unwound"]["num_removed"]
    assert np.isfinite(found["scouts"]["out_of_fold"]).all()
    assert f"--heads 4 --selectors {names}" in found["command"]


def test_several_numbers(tmp_path, monkeypatch):
    found = contest(tmp_path, monkeypatch, "--heads", "2,5", "--selectors", "voita-unwound,corrected-unwound")
    assert list(found["runs"]) == [
        "original+tuning", "voita-unwound, 2", "corrected-unwound, 2", "voita-unwound, 5", "corrected-unwound, 5",
    ]  # fmt: skip
    assert [found["runs"][f"voita-unwound, {size}"]["num_removed"] for size in (2, 5)] == [2, 5]
    columns, rows = summary.selectors_table([found])
    ahead = dict(
        zip(
            [row[0] for row in rows],
            [row[columns.index("develop metric against the gates")] for row in rows],
            strict=True,
        )
    )
    assert ahead["voita-unwound, 2"] == ""
    for size in (2, 5):
        mine, gates = (found["runs"][f"{name}-unwound, {size}"]["develop"][0] for name in ("corrected", "voita"))
        assert float(ahead[f"corrected-unwound, {size}"]) == pytest.approx(mine - gates, abs=0.006)
