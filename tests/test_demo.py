"""The demo: its results, what it prints, and how it is resumed."""

from __future__ import annotations

import time

import pytest

from auber import demo
from auber.cli import app
from auber.run.files import read_result
from tests.short_demo import SHORT


@pytest.mark.timeout(600)
def test_the_demonstration(tmp_path, capsys):
    began = time.process_time()
    app(["demo", "--out", str(tmp_path / "demo")], standalone_mode=False)
    took = time.process_time() - began  # its own, whatever else the machine does meanwhile
    printed = capsys.readouterr().out
    results = {name: read_result(tmp_path / "demo" / name) for name in ("start", *demo.METHODS)}

    start = results["start"]
    assert 0.75 <= start["dev"]["score"] <= 0.97
    assert start["gap"] >= 0.03, "something is left to regularise"

    pruned = results["auber"]
    assert pruned["heads"]["removed"] > 0
    assert results["random"]["heads"]["removed"] == pruned["heads"]["removed"]
    assert results["original+tuning"]["heads"]["removed"] == 0
    for name in ("random", "original+tuning"):
        assert results[name]["tuned_layers"] == pruned["tuned_layers"]
        assert results[name]["start"] == pruned["start"] == start["start"]
    for name in demo.METHODS:
        assert name in printed
        assert f"{100 * results[name]['dev']['score']:.1f}" in printed
    assert str(tmp_path / "demo" / "auber" / "model") in printed
    assert took < 180, "it is said to take under three minutes"


def test_it_is_resumed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "SETTINGS", demo.SETTINGS | SHORT)
    for arguments in ([], ["--resume"]):
        app(
            ["demo", "--out", str(tmp_path / "demo"), "--seed", "3", "--json", *arguments],
            standalone_mode=False,
        )
    assert capsys.readouterr().err.count("is complete: nothing to do") == 4
    assert {read_result(tmp_path / "demo" / name)["seed"] for name in ("start", *demo.METHODS)} == {
        3
    }
