"""The experiments run from end to end on a small encoder and write what they promise."""

from __future__ import annotations

import json
import sys

import pytest

from experiments import rewards, search, summary
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


def test_rewards(place, monkeypatch):
    found = run(rewards, place, monkeypatch, "--layers", "0,1", "--masks", "8")
    assert found["rows"] == {"tuned": 45, "develop": 15}
    for layer in found["layers"]:
        assert layer["masks"][0] == []
        assert len(layer["scores"]) == len(layer["masks"]) == 8
        assert layer["scores"][0][found["sets"].index("develop")] == pytest.approx([*found["unpruned"], 0], abs=0.01)
        assert layer["tuned"]["none"]["removed"] == []
        best = max(range(8), key=lambda mask: layer["scores"][mask][2][1])  # the crossed rows' soft metric
        assert layer["tuned"]["crossed soft"]["removed"] == layer["masks"][best]


def test_search(place, monkeypatch):
    words = [
        "--variants",
        "default,crossed-soft-confirm,crossed-bound-frozen-twice,crossed-calibrated-20-rewound,default-rewound",
        "--rankings",
        "michel",
        "--set",
        "agent.episodes=4",
    ]
    found = run(search, place, monkeypatch, *words)
    assert set(found["runs"]) == {
        "original+tuning", "default", "michel like default", "crossed-soft-confirm", "michel like crossed-soft-confirm",
        "crossed-bound-frozen-twice", "michel like crossed-bound-frozen-twice",
        "crossed-calibrated-20-rewound", "michel like crossed-calibrated-20-rewound",
        "default-rewound", "michel like default-rewound",
    }  # fmt: skip
    assert found["runs"]["original+tuning"]["num_removed"] == 0
    for name in ("default", "crossed-soft-confirm", "crossed-calibrated-20-rewound"):
        assert found["runs"][name]["num_removed"] == found["runs"][f"michel like {name}"]["num_removed"]
        assert len(found["runs"][name]["develop"]) == 4
    assert found["runs"]["default-rewound"]["removed"] == found["runs"]["default"]["removed"]


def test_the_summary_of_both(place, monkeypatch, capsys):
    for name, program, words in (
        ("rewards", rewards, ["--layers", "1", "--masks", "8"]),
        ("search", search, ["--variants", "default,soft", "--set", "agent.episodes=4"]),
    ):
        for seed in ("0", "1"):
            run(program, place, monkeypatch, *words, "--seed", seed)
            (place / "out.json").rename(place / f"{name}-{seed}.json")
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["summary", *map(str, sorted(place.glob("*-[01].json")))])
    summary.main()
    said = capsys.readouterr().out
    assert "encoder, rewards, 2 (task, seed) pairs" in said
    assert said.count("\n| soft | 2 |") == 2  # against the control and against default
    assert said.count("| crossed, likelihood |") == 1
    # no reward can do better on the development rows than they themselves say
    rows = {line.split(" | ")[0]: line.split(" | ")[2] for line in said.splitlines() if line.startswith("| ")}
    best = float(rows["| develop, metric"].split()[0])
    assert all(float(rows[f"| {name}"].split()[0]) <= best for name in ("seen, metric", "crossed, soft"))
