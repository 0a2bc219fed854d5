"""The experiments run from end to end on a small encoder and write what they promise."""

from __future__ import annotations

import json
import sys

import pytest

from experiments import cost, page, search, summary
from tests.docs.standins import make_encoder, make_glue


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiment")
    make_encoder(folder / "encoder")
    make_glue(folder / "glue")
    return folder


SHORT = [word for stage in ("first", "layer", "last") for word in ("--set", f"{stage}.epochs=1")]


def run(program, place, monkeypatch, *words):
    out = place / "out.json"
    common = ["--model", place / "encoder", "--task", "mrpc", "--data", place / "glue", "--out", out, *SHORT]
    monkeypatch.setattr(sys, "argv", ["experiment", *map(str, common), *words])
    program.main()
    text = out.read_text()
    assert str(place) not in text
    return json.loads(text)


def test_search(place, monkeypatch):
    words = [
        "--variants",
        "default,crossed-calibrated-20-rewound",
        "--rankings",
        "michel",
        "--set",
        "agent.episodes=4",
    ]
    found = run(search, place, monkeypatch, *words)
    assert set(found["runs"]) == {
        "original+tuning", "default", "michel like default",
        "crossed-calibrated-20-rewound", "michel like crossed-calibrated-20-rewound",
    }  # fmt: skip
    assert found["runs"]["original+tuning"]["num_removed"] == 0
    for name in ("default", "crossed-calibrated-20-rewound"):
        assert found["runs"][name]["num_removed"] == found["runs"][f"michel like {name}"]["num_removed"]
        assert len(found["runs"][name]["develop"]) == 4


def test_the_page_of_it(place, monkeypatch):
    for seed in ("0", "1"):
        run(search, place, monkeypatch, "--variants", "default", "--set", "agent.episodes=4", "--seed", seed)
        (place / "out.json").rename(place / f"search-{seed}.json")
    out = place / "page.md"
    monkeypatch.setattr(sys, "argv", ["page", *map(str, sorted(place.glob("search-[01].json"))), "--out", str(out)])
    page.main()
    assert "| default | 2 | " in out.read_text()


def test_cost(place, monkeypatch):
    found = run(cost, place, monkeypatch, "--set", "agent.episodes=3", "--set", "reward.folds=2")
    assert list(found["runs"]) == ["paper", "default"]
    for name, protocol in (("paper", "seen"), ("default", "crossfit")):
        spent = found["runs"][name]["cost"]["seconds"]
        assert found["runs"][name]["protocol"] == protocol
        assert found["runs"][name]["seconds"] >= spent["total"] > 0
    assert "scouts" not in found["runs"]["paper"]["cost"]["seconds"]
    assert "dev" not in json.dumps(found["runs"])
    columns, rows = summary.cost_table([found])
    ratio = found["runs"]["default"]["seconds"] / found["runs"]["paper"]["seconds"]
    assert [row[columns.index("times the first's")] for row in rows] == ["1.00", f"{ratio:.2f}"]
    other = run(
        cost, place, monkeypatch, "--presets", "default", "--set", "agent.episodes=3", "--set", "reward.folds=2"
    )
    assert list(other["runs"]) == ["default"]
    text = page.render([found])
    assert "## What it costs\n" in text
    assert f"    {found['command']}    # commit " in text
