"""The trial itself finds what it is there to find, in readers that are flawed on purpose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from auber.errors import PlanError
from tests.fuzz import trial as trials
from tests.fuzz.readers import READERS, Reader
from tests.fuzz.trial import Trial

ROOT = Path(__file__).parents[2]


def prepare(folder):
    (folder / "a.json").write_text("{}")


def trial_of(read, tmp_path, **options):
    return Trial(Reader("flawed", ("a.json",), prepare, read, **options), tmp_path / "trial")


def content(folder):
    return (folder / "a.json").read_bytes()


def test_a_good_reader(tmp_path):
    trial = trial_of(lambda folder: json.loads(content(folder) or b"1"), tmp_path)
    assert trial.run("a.json", b"[]").verdict == "taken"


def test_a_refusal(tmp_path):
    def read(folder):
        if content(folder) != b"{}":
            raise PlanError("a.json: must be empty")

    outcome = trial_of(read, tmp_path).run("a.json", b"[]")
    assert (outcome.verdict, outcome.details, outcome.is_finding) == (
        "refused",
        "a.json: must be empty",
        False,
    )


def test_a_refusal_in_two_lines(tmp_path):
    class TwoLinesError(PlanError):
        def __str__(self):
            return "a.json:\nbad"

    def read(folder):
        if content(folder) != b"{}":
            raise TwoLinesError

    assert trial_of(read, tmp_path).run("a.json", b"[]").verdict == "untidy"


def test_another_exception(tmp_path):
    outcome = trial_of(lambda folder: json.loads(content(folder)), tmp_path).run(
        "a.json", b"nonsense"
    )
    assert outcome.verdict == "crash"
    assert "JSONDecodeError" in outcome.details
    assert outcome.is_finding


def test_a_reader_that_hangs_even_if_it_catches_everything(tmp_path, monkeypatch):
    monkeypatch.setattr(trials, "SECONDS", 0.2)

    def read(folder):
        data = content(folder)
        while data == b"forever":
            try:
                sum(range(1000))
            except Exception:  # as careless readers do
                continue

    assert trial_of(read, tmp_path).run("a.json", b"forever").verdict == "timeout"


@pytest.mark.parametrize("way", ["open", "mkdir", "rename", "link"])
def test_a_change_elsewhere(tmp_path, way):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def read(folder):
        if content(folder) == b"{}":
            return
        if way == "open":
            (folder / "../../elsewhere/x").write_text("x")
        elif way == "mkdir":
            (elsewhere / "x").mkdir()
        elif way == "rename":
            (folder / "a.json").rename(elsewhere / "x")
        else:
            (folder / "link").symlink_to(elsewhere)
            (folder / "link" / "x").write_text("x")

    outcome = trial_of(read, tmp_path, writes=True).run("a.json", b"[]")
    assert outcome.verdict == "escape"
    assert str(elsewhere) in outcome.details


@pytest.mark.parametrize(("flags", "verdict"), [(0, "escape"), (os.O_NOFOLLOW, "crash")])
def test_a_link_that_is_not_followed_leads_nowhere(tmp_path, flags, verdict):
    (tmp_path / "elsewhere").write_text("x")

    def read(folder):
        if content(folder) != b"{}":
            (folder / "link").symlink_to(tmp_path / "elsewhere")
            os.close(os.open(folder / "link", os.O_RDWR | flags))

    assert trial_of(read, tmp_path, writes=True).run("a.json", b"[]").verdict == verdict


def test_changes_inside_are_nobodys_business(tmp_path):
    trial = trial_of(lambda folder: (folder / "new").write_text("x"), tmp_path, writes=True)
    assert trial.run("a.json", b"[]").verdict == "taken"


def test_an_example_must_be_good(tmp_path):
    with pytest.raises(ZeroDivisionError):
        trial_of(lambda folder: 1 / 0, tmp_path)


def test_the_drill_counts_all_inputs(tmp_path):
    out = tmp_path / "figures.json"
    command = [
        sys.executable,
        "-m",
        "tests.fuzz.drill",
        "--inputs",
        "60",
        "--reader",
        "plan",
        "--reader",
        "ledger",
    ]
    done = subprocess.run(
        [*command, "--out", out, "--kept", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(out.read_text())
    assert (figures["inputs"], figures["findings"]) == (60, 0)
    assert set(figures["readers"]) == {"plan", "ledger"}
    assert sum(figures["readers"]["plan"].values()) == 30


def test_names_of_readers_are_their_keys():
    assert all(name == reader.name for name, reader in READERS.items())
