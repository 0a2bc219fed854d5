"""Inputs that once found something, or would have: each is refused, with words that say what is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.fuzz.readers import READERS
from tests.fuzz.trial import Trial

FILES = Path(__file__).parent / "found"

DIGITS = "9" * 400
ENDLESS = "0x" + "f" * 5000  # Python reads it and does not write it


def changed(**entries):
    """The example with some entries of its object replaced."""
    return lambda example: json.dumps({**json.loads(example), **entries})


def text(content):
    return lambda example: content


def added(content):
    return lambda example: f"{content}\n{example}"


def replaced(old, new):
    def change(example):
        assert old in example
        return example.replace(old, new, 1)

    return change


FOUND = [
    # a number beyond all floats, or too long to be written out
    ("config", text(f"agent.epsilon_decay = {DIGITS}"), "agent.epsilon_decay must be a number from 1e-09, found 999"),
    ("config", text(f"seed = {ENDLESS}"), "seed must be at most 9223372036854775807, found a number of thousands of digits$"),
    ("config", text(f"agent.gamma = {ENDLESS}"), "agent.gamma must be .* found a number of thousands of digits$"),
    ("config", text(f"seed = {'9' * 5000}"), "cannot be read as TOML"),
    ("study", replaced("[0, 1]", f"[{ENDLESS}]"), "study.toml: must be JSON .Exceeds the limit"),
    ("ledger", text(f'{{"key": "k", "layer": 0, "removed": [], "score": {DIGITS}}}\n'), "line 1: not a score"),
    ("score tables", replaced('"reward_rows": 40', f'"reward_rows": {DIGITS}.5'), "reward_rows must be of type int"),
    ("score tables", lambda example: re.sub(r'"scores": \[[^,]*', f'"scores": [{DIGITS}', example, count=1), "7 finite numbers"),
    ("bench", lambda example: re.sub(r'"teraflops": [^,]*', f'"teraflops": {DIGITS}', example), "teraflops: float is needed"),
    ("plan", text(json.dumps({"9" * 5000: [0]})), "a layer must be a whole number from 0, found '999"),
    # nested without end; a key of which a parser makes hours
    ("config", text(".".join(["a"] * 300) + " = 1"), "tables are nested more than 32 deep"),
    ("config", text(".".join(["a"] * 50_000) + " = 1"), "a key is longer than 1000 characters"),
    ("study", text(f"[{'.'.join(['a'] * 50_000)}]"), "a key is longer than 1000 characters"),
    ("study", added("settings." + ".".join(["a"] * 40) + " = 1"), "nested more than 32 deep|cannot be read"),
    # more work than anybody means
    ("study", replaced("draws = 2", "draws = 1000000000"), "'draws' must be at most 1000, found 1000000000$"),
    # names that no system takes
    ("study", replaced("bert-base-cased", "x" * 5000), "'model' must be at most 1000 entries long, found 'xxx"),
    ("study", replaced('"glue"', '"a\\u0000b"'), r"'data' must be a printable path, found 'a\\x00b'$"),
    ("study", added('"a\\nb" = 1'), r"unknown key ''a\\nb''"),
    # values of another kind than the reader had thought of
    ("ledger", text("[]\n"), "line 1: not a score .an object is needed, found list"),
    ("ledger", text('{"key": "k", "layer": true, "removed": [], "score": 1}\n'), "line 1: not a score"),
    ("ledger", text('{"key": "k", "layer": 0, "removed": "01", "score": 1}\n'), "removed must be a list of heads"),
    ("score tables", replaced('"heads": [', '"heads": [1, 1, '), "each head may be named once|finite numbers"),
    ("exhaustive run", text("[]"), "result.json: must be a JSON object, found list; it is damaged: put a copy of it back$"),
    ("exhaustive run", changed(method="a\nb"), r"method must be printable text, found 'a\\nb'"),
    ("exhaustive run", changed(seed=None), "seed must be of type int, found None"),
    ("bench", changed(**{"a\nb": 1}), r"found 'a\\nb', command"),
    ("result", changed(train={"score": 10**400}), "'train.score' must be a finite number"),
    ("result", changed(command="auber 'prune"), "the command .* cannot be taken apart .No closing quotation"),
    ("pruned model", changed(architectures={"0": 1}), "is no valid bert configuration"),
    ("pruned model", changed(num_hidden_layers=10**6), "has 1000000 layers, its weights hold"),
    ("pruned model", changed(quantization_config={"quant_method": "gptq"}), "the model is quantised"),
    # runs that are watched: numbers where objects are meant, and the like
    ("watched run", replaced('"id":', '"id": null, "was":'), r"progress.json: 'process.id' must be a whole number"),
    ("watched run", changed(time="now"), r"progress.json: 'time' must be a finite number, found 'now'; it is damaged"),
    ("watched run", changed(share=1.5), r"progress.json: 'share' must be"),
    ("watched run", replaced('"note": "best 0.9"', '"note": {}'), r"progress.json: 'stage.note' must be"),
    ("watched run", replaced('"command": null', '"command": "\\u001b[2J"'), r"progress.json: 'process.command' must be"),
    ("ended run", changed(gap=None), r"result.json: 'gap' must be"),
    ("ended run", changed(plan={"0": 1}), r"result.json: 'plan.0' must be"),
    ("ended run", changed(cost=DIGITS), r"result.json: 'cost' must be"),
    # whole numbers that no table can divide, and names of heads that no picture has
    ("speeds", changed(seconds=None), "speed.json: 'seconds' must be a finite number, found None"),
    ("speeds", changed(runs=[]), "speed.json: must hold at least one run and one pair of times for each"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "message"),
    FOUND,
    ids=[f"{name}-{at}" for at, (name, _, _) in enumerate(FOUND)],
)
def test_is_refused(name, change, message, tmp_path):
    trial = Trial(READERS[name], tmp_path / "trial")
    target = trial.reader.targets[0]
    outcome = trial.run(target, change(trial.examples[target].decode()).encode())
    assert outcome.verdict == "refused", outcome.details
    assert re.search(message, outcome.details), outcome.details


def test_columns_of_different_lengths(tmp_path):
    trial = Trial(READERS["parquet"], tmp_path / "trial")
    outcome = trial.run("train.parquet", (FILES / "uneven-columns.parquet").read_bytes())
    assert outcome.verdict == "refused", outcome.details
    assert (
        "train.parquet: cannot be read as parquet (its columns are not equally long)"
        in outcome.details
    )


@pytest.mark.parametrize(
    "data", [b"{}", b"[]", b'{"error": 3, "skipped": false}', b'{"error": "x", "skipped": 0}']
)
def test_a_failure_that_says_nothing(tmp_path, data):
    trial = Trial(READERS["study folder"], tmp_path / "trial")
    outcome = trial.run("mrpc/seen/seed-0/original.failed.json", data)
    assert outcome.verdict == "refused", outcome.details
    assert "it is damaged or of another version: delete it to try the run again" in outcome.details


def test_a_ledger_that_is_a_folder(tmp_path):
    trial = Trial(READERS["ledger"], tmp_path / "trial")
    for form in ("folder", "loop", "dangling"):
        outcome = trial.run_form("scores.jsonl", form)
        assert outcome.verdict == "refused"
        assert "scores.jsonl: cannot be read" in outcome.details


@pytest.mark.parametrize(
    ("name", "target", "change", "message"),
    [
        (
            "watched run",
            "run/run.json",
            changed(task={}),
            r"run.json: 'task' must be text",
        ),
        (
            "watched run",
            "run/stages/layer-00.json",
            changed(search=3),
            r"layer-00.json: 'search' must be",
        ),
        (
            "watched run",
            "run/stages/layer-00.json",
            replaced("0.625", "[]"),
            r"layer-00.json: 'search.best_score' must",
        ),
        (
            "watched run",
            "run/stages/layer-00.json",
            changed(removed=3),
            r"layer-00.json: 'removed' must be",
        ),
        (
            "watched study",
            "mrpc/seen/seed-0/auber/result.json",
            text("{}"),
            r"result.json: lacks 'format'",
        ),
        (
            "page of a study",
            "mrpc/seen/seed-0/auber/result.json",
            changed(rows={"train": int(DIGITS), "dev": 4}),
            "'rows.train' must be a whole number, found 999",
        ),
        (
            "page of runs",
            "michel/stages/plan.json",
            changed(importance={"0": {"9" * 5000: 0.5}}),
            "plan.json: layers and heads must be whole numbers from 0, found '999",
        ),
    ],
)
def test_what_is_shown_is_refused(name, target, change, message, tmp_path):
    trial = Trial(READERS[name], tmp_path / "trial")
    outcome = trial.run(target, change(trial.examples[target].decode()).encode())
    assert outcome.verdict == "refused", outcome.details
    assert re.search(message, outcome.details), outcome.details


@pytest.mark.parametrize(
    "line",
    [
        '{"time": "now", "event": "started"}',
        '{"time": 1e308, "event": "started"}',
        '{"time": 1.0, "event": "planned", "stages": [], "layers": 1000000000, "heads_per_layer": 12}',
        '{"time": 1.0, "event": "planned", "stages": [3], "layers": 1, "heads_per_layer": 12}',
        '{"time": 1.0, "event": "planned", "layers": 1}',
        '{"time": 1.0, "event": "numbers", "step": 1, "values": {"layer-x/search/return": 1.0}}',
        '{"time": 1.0, "event": "numbers", "step": 1, "values": {"a": "b"}}',
        '{"time": 1.0, "event": "numbers", "step": 0, "values": {"layer-01/search/return": 1.0}}',
        '{"time": 1.0, "event": "stage", "stage": "a", "seconds": "long"}',
        '{"time": 1.0, "event": "dev_evaluation", "score": null, "rows": 1}',
        '{"time": 1.0, "event": "said", "text": "\\u001b[2J\\n"}',
        '{"time": 1.0, "event": {}}',
    ],
)
def test_events_of_no_use_are_passed_over(line, tmp_path):
    trial = Trial(READERS["watched run"], tmp_path / "trial")
    target = "run/events.jsonl"
    for data in (
        line + "\n" + trial.examples[target].decode(),
        trial.examples[target].decode() + line + "\n",
    ):
        outcome = trial.run(target, data.encode())
        assert outcome.verdict == "taken", outcome.details


def test_a_lock_that_leads_out_of_its_folder(tmp_path):
    outcome = Trial(READERS["lock"], tmp_path / "trial").run_form(".lock", "link to a folder")
    assert outcome.verdict == "refused", outcome.details
    assert ".lock: cannot be written (Too many levels of symbolic links)" in outcome.details
