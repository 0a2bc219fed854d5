"""The contest of selectors at one number of heads."""

from __future__ import annotations

import json
import sys

import numpy as np

from experiments import selectors
from tests.experiments.test_path import tiny_subject


def test_the_program(tmp_path, monkeypatch):
    made = tiny_subject(tmp_path)
    monkeypatch.setattr(selectors, "make_subject", lambda *_: made)
    out = tmp_path / "selectors.json"
    words = "--model tiny --task agreement --folds 2 --heads 4 --selectors"
    names = "random,voita,voita-unwound,faithful-unwound,cautious,seen,alone,search,bound,corrected,corrected-unwound,searched-unwound,hardened"
    monkeypatch.setattr(sys, "argv", ["selectors", *words.split(), names, "--out", str(out)])
    selectors.main()
    found = json.loads(out.read_text())
    assert list(found["runs"]) == [
        "original+tuning", "random", "voita", "voita-unwound", "faithful-unwound", "cautious", "seen", "seen, own size", "alone", "search", "search, own size", "bound",
        "corrected", "corrected-unwound", "searched-unwound", "hardened",
    ]  # fmt: skip
    for name in ("random", "voita", "voita-unwound", "faithful-unwound", "cautious"):
        assert found["runs"][name]["num_removed"] == 4
    assert found["runs"]["voita"]["removed"] == found["runs"]["voita-unwound"]["removed"]
    assert found["runs"]["voita"]["develop"] != found["runs"]["voita-unwound"]["develop"]
    for name in ("seen", "alone", "search", "hardened"):
        assert found["runs"][name]["num_removed"] == 4
        assert found["runs"][name]["rewards"] > 3
    for name, title in (("seen", "seen, own size"), ("search", "search, own size"), ("bound", "bound")):
        assert found["runs"][title]["num_removed"] == found["runs"][name]["own_size"]
    assert all(price < 0 for price in found["runs"]["search"]["own_prices"].values())
    assert found["runs"]["corrected"]["removed"] == found["runs"]["corrected-unwound"]["removed"]
    for name in ("corrected search", "searched search"):
        assert found[name]["rewards"] > 3
        assert all(price <= 0 for price in found[name]["prices"].values())
        assert any(price < 0 for price in found[name]["prices"].values())
    for name in ("scouts", "hardened scouts"):
        assert np.isfinite(found[name]["out_of_fold"]).all()
    assert found["scouts"]["out_of_fold"] != found["hardened scouts"]["out_of_fold"]
    assert f"--selectors {names}" in found["command"]
