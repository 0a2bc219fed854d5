"""Fuzzing finds planted bugs, readers survive a few inputs, and what was found once is refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from random import Random

import pytest

from auber.errors import PlanError
from benchmarks.fuzz import __main__ as fuzz
from benchmarks.fuzz import trial as trials
from benchmarks.fuzz.readers import READERS
from benchmarks.fuzz.trial import FORMS, Reader, Trial

FOUND = Path(__file__).parent / "found"
DIGITS = "9" * 400
ENDLESS = "0x" + "f" * 5000  # Python reads it and does not write it


def planted(read, tmp_path):
    """A trial of a reader of `a.json`."""
    return Trial(Reader("planted", {"a.json": "{}"}, read), tmp_path / "trial")


def content(folder):
    return (folder / "a.json").read_bytes()


def refuse(folder):
    if content(folder) != b"{}":
        raise PlanError("a.json: must be empty")


def escape(folder):
    if content(folder) != b"{}":
        (folder / ".." / ".." / "x").write_text("x")


def tidy(folder):
    """Removes a folder of its own, which Python does by paths relative to it."""
    if content(folder) != b"{}":
        (folder / "inner").mkdir()
        (folder / "inner" / "x").write_text("x")
        shutil.rmtree(folder / "inner")


def hang(folder):
    data = content(folder)
    while data != b"{}":
        try:
            sum(range(1000))
        except Exception:
            continue


@pytest.mark.parametrize(
    ("read", "verdict", "details"),
    [
        (lambda folder: json.loads(content(folder)), "crash", "JSONDecodeError"),
        (lambda folder: content(folder), "taken", ""),
        (refuse, "refused", "a.json: must be empty"),
        (hang, "timeout", "more than 0.2 s"),
        (escape, "escape", "x"),
        (tidy, "taken", ""),
        (lambda folder: (folder / "new").write_text("x"), "taken", ""),
    ],
)
def test_planted_bugs_are_found(read, verdict, details, tmp_path, monkeypatch):
    monkeypatch.setattr(trials, "SECONDS", 0.2)
    outcome = planted(read, tmp_path).run("a.json", b"nonsense")
    assert outcome.verdict == verdict
    assert details in outcome.details
    assert outcome.is_finding == (verdict not in ("taken", "refused"))


def test_the_program_counts_all_inputs(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz, "_be_quiet", lambda: None)
    words = ["--inputs", "60", "--reader", "plan", "--reader", "ledger", "--kept", str(tmp_path)]
    fuzz.main([*words, "--out", str(tmp_path / "counts.json")])
    found = json.loads((tmp_path / "counts.json").read_text())
    assert (found["inputs"], found["findings"]) == (60, 0)
    assert sum(found["readers"]["plan"].values()) == 30


@pytest.fixture(params=sorted(READERS), scope="module")
def trial(request, tmp_path_factory):
    return Trial(READERS[request.param], tmp_path_factory.mktemp("fuzz") / "trial")


def test_every_reader_takes_or_refuses(trial):
    few = trial.reader.share < 1
    target, random = trial.reader.targets[0], Random(0)
    for form in FORMS[:2] if few else FORMS:
        outcome = trial.run_form(target, form)
        assert not outcome.is_finding, f"{target}: {form}: {outcome.details}"
    for _ in range(int(trial.reader.share * 20) if few else 100):
        name, data = trial.draw(random)
        outcome = trial.run(name, data)
        assert not outcome.is_finding, f"{name} = {data[:500]!r}: {outcome.details}"


def changed(**entries):
    """Replace entries of the example's object."""
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


def first_of(key, value):
    return lambda example: re.sub(rf'("{key}": \[?)[^,]*', rf"\g<1>{value}", example, count=1)


# Inputs that once found something: the reader, the change and what the message names.
REFUSED = [
    ("settings", text(f"agent.epsilon_decay = {DIGITS}"), "agent.epsilon_decay"),
    ("settings", text(f"seed = {ENDLESS}"), "thousands of digits"),
    ("settings", text(f"agent.gamma = {ENDLESS}"), "agent.gamma"),
    ("settings", text(f"first.learning_rate = {DIGITS}"), "first.learning_rate"),
    ("sizes-plan", text(f"x = {'[' * 20_000}"), "TOML"),
    ("settings", text(f"seed = {'9' * 5000}"), "TOML"),
    ("settings", text(".".join(["a"] * 300) + " = 1"), "nested"),
    ("settings", text(".".join(["a"] * 50_000) + " = 1"), "key"),
    ("study", text(f"[{'.'.join(['a'] * 50_000)}]"), "key"),
    ("study", replaced("[0, 1]", f"[{ENDLESS}]"), "seeds|digits"),
    ("study", added("settings." + ".".join(["a"] * 40) + " = 1"), "nested|cannot be read"),
    ("study", replaced("draws = 2", "draws = 1000000000"), "draws"),
    ("study", replaced("bert-base-cased", "x" * 5000), "model"),
    ("study", replaced('"glue"', '"a\\u0000b"'), "data"),
    ("study", added('"a\\nb" = 1'), r"a\\nb"),
    ("plan", text(json.dumps({"9" * 5000: [0]})), "layer"),
    ("ledger", text(f'{{"key": "k", "layer": 0, "removed": [], "score": {DIGITS}}}\n'), "line 1"),
    ("ledger", text("[]\n"), "line 1"),
    ("ledger", text('{"key": "k", "layer": true, "removed": [], "score": 1}\n'), "line 1"),
    ("ledger", text('{"key": "k", "layer": 0, "removed": "01", "score": 1}\n'), "line 1"),
    ("tables", first_of("reward_rows", f"{DIGITS}.5"), "reward_rows"),
    ("tables", first_of("scores", DIGITS), "scores"),
    ("tables", first_of("heads", "1, 1, 2"), "heads|scores"),
    ("scorer", first_of("teraflops", DIGITS), "teraflops"),
    ("scorer", changed(**{"a\nb": 1}), r"a\\nb"),
    ("report", changed(train={"score": 10**400}), "train.score"),
    ("watch-ended", changed(gap=None), "gap"),
    ("watch-ended", changed(plan={"0": 1}), "plan"),
    ("report-speed", changed(seconds=None), "seconds"),
    ("report-speed", changed(runs=[]), "run"),
    ("model", changed(architectures={"0": 1}), "bert"),
    ("model", changed(num_hidden_layers=10**6), "1000000"),
    ("model", changed(quantization_config={"quant_method": "gptq"}), "quantised"),
]


@pytest.mark.parametrize(
    ("name", "change", "words"), REFUSED, ids=[f"{each[0]}-{at}" for at, each in enumerate(REFUSED)]
)
def test_what_was_found_is_refused(name, change, words, tmp_path):
    trial = Trial(READERS[name], tmp_path / "trial")
    target = trial.reader.targets[0]
    outcome = trial.run(target, change(trial.examples[target].decode()).encode())
    assert outcome.verdict == "refused", outcome.details
    assert re.search(words, outcome.details), outcome.details


def test_columns_of_different_lengths(tmp_path):
    trial = Trial(READERS["parquet"], tmp_path / "trial")
    outcome = trial.run("train.parquet", (FOUND / "uneven-columns.parquet").read_bytes())
    assert outcome.verdict == "refused", outcome.details
    assert "train.parquet" in outcome.details


@pytest.mark.parametrize(
    "line",
    [
        '{"time": "now", "event": "started"}',
        '{"time": 1e308, "event": "started"}',
        '{"time": 1.0, "event": "planned", "stages": [], "layers": 1000000000}',
        '{"time": 1.0, "event": "numbers", "step": 1, "values": {"layer-x/search/return": 1.0}}',
        '{"time": 1.0, "event": "stage", "stage": "a", "seconds": "long"}',
        '{"time": 1.0, "event": "said", "text": "\\u001b[2J\\n"}',
        '{"time": 1.0, "event": {}}',
    ],
)
def test_a_useless_event_is_skipped(line, tmp_path):
    trial = Trial(READERS["watch"], tmp_path / "trial")
    target = "interrupted/events.jsonl"
    example = trial.examples[target].decode()
    for data in (f"{line}\n{example}", f"{example}{line}\n"):
        outcome = trial.run(target, data.encode())
        assert outcome.verdict == "taken", outcome.details


def test_a_lock_that_leads_out_of_its_folder(tmp_path):
    outcome = Trial(READERS["lock"], tmp_path / "trial").run_form(".lock", "link to a folder")
    assert outcome.verdict == "refused", outcome.details
    assert ".lock" in outcome.details
