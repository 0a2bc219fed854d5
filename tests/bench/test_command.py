from __future__ import annotations

import json
from dataclasses import asdict

import pytest

import auber
from auber.bench.record import Bench, read_bench
from tests.tiny_models import tiny_model, tiny_tokenizer

TINY = [
    "bench",
    "--size",
    "tiny",
    "--rows",
    "cola",
    "--count",
    "24",
    "--set",
    "threads=1",
    "--set",
    "device=cpu",
]


def test_everything_at_once(run_auber, tmp_path):
    quick = ["--repeats", "2", "--steps", "1", "--growth", "--set", "last.epochs=1"]
    quick += ["--set", "agent.episodes=2", "--set", "agent.learning_starts=4"]
    code, out, err = run_auber(*TINY, *quick, "--json", "--out", tmp_path / "new" / "result.json")
    assert code == 0
    data = json.loads(out)
    assert (data["format"], data["kind"]) == (1, "bench")
    assert data["command"].startswith("auber bench --size tiny")
    assert data["command"].endswith("--out result.json")
    bench = Bench.from_json(data)
    assert bench == read_bench(tmp_path / "new" / "result.json")
    assert str(tmp_path) not in out
    assert (bench.subject.layers, bench.subject.heads, bench.subject.rows) == (2, 4, 24)
    assert bench.subject.attention == "sdpa"
    assert [layer.layer for layer in bench.rewards.layers] == [0, 1]
    seconds = bench.search.seconds
    assert bench.search.preset == "paper"
    assert bench.search.rewards_computed > 0
    parts = seconds.rewards + seconds.agent + seconds.tuning + seconds.evaluation + seconds.rest
    assert parts == pytest.approx(seconds.total, rel=1e-3)
    assert min(seconds.rewards, seconds.agent, seconds.tuning, seconds.rest) > 0
    assert [series.axis for series in bench.growth] == ["rows", "layers", "heads"]
    for stage in (
        "plain float32",
        "layer 1: rewards",
        "plain Trainer",
        "layer 0: searching",
        "growth: 8 heads",
    ):
        assert stage in err

    code, out, _ = run_auber(
        "bench", "--page", tmp_path / "page.md", tmp_path / "new" / "result.json"
    )
    assert (code, out) == (0, f"page: {tmp_path / 'page.md'}\n")
    assert "BERT tiny, random weights" in (tmp_path / "page.md").read_text()
    assert (tmp_path / "growth.svg").is_file()


def test_a_whole_run_with_scouts(run_auber):
    quick = [
        "--no-rewards",
        "--no-tuning",
        "--preset",
        "default",
        "--set",
        "agent.episodes=2",
        "--set",
        "last.epochs=1",
    ]
    code, out, err = run_auber(
        *TINY, *quick, "--set", "reward.folds=2", "--set", "reward.latency=1", "--json"
    )
    assert code == 0, err
    search = Bench.from_json(json.loads(out)).search
    assert (search.preset, search.protocol) == ("default", "crossfit")
    assert search.seconds.tuning > search.seconds.rewards > 0
    seconds = asdict(search.seconds)
    assert min(seconds["choosing"], seconds["timing"]) > 0, (
        "the gates and the timing of heads are told apart from the rest"
    )
    assert sum(seconds[name] for name in seconds if name != "total") == pytest.approx(
        seconds["total"], rel=1e-3
    )
    assert "scout 2 of 2: last tuning" in err


def test_a_saved_model_in_words(run_auber, tmp_path):
    model = tiny_model("distilbert", max_position_embeddings=128, pad_token_id=0)
    auber.save(model, tiny_tokenizer(), tmp_path / "mine")
    arguments = [
        "--rows",
        "cola",
        "--count",
        "12",
        "--set",
        "threads=1",
        "--set",
        "device=cpu",
        "--repeats",
        "1",
    ]
    code, out, err = run_auber(
        "bench",
        "--model",
        tmp_path / "mine",
        *arguments,
        "--layers",
        "2",
        "--no-search",
        "--no-tuning",
        "--quiet",
    )
    assert (code, err) == (0, "")
    assert out.startswith(
        "mine, cola-like rows, cpu, 1 thread\n3 layers of 4 heads, hidden size 32,"
    )
    assert "searched layer 2" in out
    assert "this scorer" in out
    assert "A whole run" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--size", "bse"],
            "auber: Unknown size 'bse'. Did you mean 'base'? Known: base, small, tiny",
        ),
        (["--rows", "rtte"], "auber: Unknown rows 'rtte'. Did you mean 'rte'? Known: cola, rte"),
        (
            ["--layers", "0;1"],
            "auber: --layers must be different numbers with commas between, such as 0,5,11, found",
        ),
        (["--size", "tiny", "--layers", "0,2"], "auber: --layers must be from 0 to 1, found 2"),
        (
            ["--model", "x", "--size", "tiny"],
            "auber: --model and --size exclude each other; give one",
        ),
        (
            ["--model", "x", "--task", "rte", "--rows", "rte"],
            "auber: --task and --rows exclude each other; give one",
        ),
        (
            ["--model", "x", "--task", "rte", "--count", "9"],
            "auber: --task and --count exclude each other; give one",
        ),
        (
            ["--task", "rte"],
            "auber: --task needs --model: a model made on the spot cannot read real text",
        ),
        (
            ["--data", "glue"],
            "auber: --data is the folder of a --task, found none; name it, or leave --data out",
        ),
        (["--set", "agent.episode=1"], "auber: settings: Unknown setting 'agent.episode'."),
        (["kept.json"], "auber: kept results go with --page PAGE, found kept.json without it"),
        (["--page", "x.md"], "auber: --page needs the results to show, found none"),
        (
            ["--page", "x.md", "none.json", "--size", "tiny"],
            "auber: --page measures nothing, found --size beside it; leave",
        ),
        (
            ["--page", "x.md", "none.json", "--json"],
            "auber: --page measures nothing, found --json beside it; leave one",
        ),
        (
            ["--repeats", "30", "--page", "x.md", "none.json"],
            "auber: --page measures nothing, found --repeats beside it",
        ),
        (["--page", "x.md", "none.json"], "auber: none.json: no such file; give one made by"),
        (
            ["--size", "tiny", "--set", "search.heads=2"],
            "auber: search.heads must be 0 under protocol seen, which tunes",
        ),
        (
            ["--out", "."],
            "auber: .: must be a file in a folder that can be written to; choose another --out",
        ),
        (
            ["--out", "/dev/null"],
            "auber: /dev/null: must be a file or a name for a new one, found a device or a pipe",
        ),
        (
            ["--out", "/dev/null/x/y.json"],
            "auber: /dev/null/x/y.json: its folder cannot be made (Not a directory)",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(run_auber, arguments, message):
    code, out, err = run_auber("bench", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_a_task_is_read_with_its_own_model(run_auber, tmp_path):
    auber.save(
        tiny_model("bert", max_position_embeddings=128, pad_token_id=0),
        tiny_tokenizer(),
        tmp_path / "mine",
    )
    arguments = [
        "--task",
        "agreement",
        "--set",
        "threads=1",
        "--set",
        "device=cpu",
        "--set",
        "reward.max_rows=20",
    ]
    code, out, _ = run_auber(
        "bench",
        "--model",
        tmp_path / "mine",
        *arguments,
        "--repeats",
        "1",
        "--no-search",
        "--no-tuning",
        "--json",
    )
    assert code == 0
    subject = json.loads(out)["subject"]
    assert (subject["task"], subject["rows"], subject["model"]) == ("agreement", 20, "mine")
