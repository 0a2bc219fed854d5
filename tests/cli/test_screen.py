from __future__ import annotations

import io
import logging
import re
import time
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from auber.cli import screen
from auber.cli.screen import (
    BarProgress,
    describe_result,
    listening,
    make_bars,
    print_line,
    print_table,
)
from tests.cli.run_folder import RESULT


def result(metric: str, score: float, **dev: Any) -> dict[str, Any]:
    dev = {"score": score, "one_class": False, "majority": None, **dev}
    return {**RESULT, "metric": metric, "dev": dev, "cost": {**RESULT["cost"]}}


def test_the_summary_of_a_result():
    found = result("entity_f1", 0.75)
    assert describe_result(found) == [
        "dev entity_f1 75.00, train 87.50, gap +12.50 points (protocol heldout, seed 7)",
        "2 of 12 heads removed",
        "20 rewards computed of 40 requested; 9 tuning steps; 61 s",
    ]
    found["cost"] |= {"scout_steps": 1252, "gate_steps": 285}
    steps = "; 9 tuning steps (and 1252 of fold models, 285 of gates); 61 s"
    assert steps in describe_result(found)[2]
    found["cost"]["rewards_asked"] = 0
    first, _, cost = describe_result(found)
    assert first.endswith(", gap +12.50 points (seed 7)"), "without rewards it has no protocol"
    assert cost.startswith("9 tuning steps")


def test_a_result_need_not_know_how_often_a_class_is_predicted():
    found = result("accuracy", 0.6)
    found["dev"] = {"score": 0.6}
    assert len(describe_result(found)) == 3


@pytest.mark.parametrize(
    ("metric", "score", "dev", "warnings"),
    [
        ("accuracy", 0.6, {"majority": 0.6}, ["most frequent class would score 60.00"]),
        ("accuracy", 0.7, {"majority": 0.6}, []),
        ("f1", 0.6, {"majority": 0.6}, []),
        ("f1", 0.0, {"one_class": True}, ["predicts the same for every row of dev"]),
    ],
)
def test_warnings_about_a_score(metric, score, dev, warnings):
    lines = describe_result(result(metric, score, **dev))[3:]
    assert len(lines) == len(warnings)
    for line, words in zip(lines, warnings, strict=True):
        assert words in line


def test_a_warning_is_printed_above_the_bars(monkeypatch, capsys):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", logging.WARNING)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with listening(quiet=False) as progress:
        progress.plan([1.0, 1.0])
        logging.getLogger("auber.data").warning("%d rows", 7)
    shown = capsys.readouterr().err
    assert "\x1b[2Kauber: warning: 7 rows" in shown, "the bar's line is cleared first"


def test_a_terminal_has_one_bar_with_the_step_below():
    console = Console(force_terminal=True, width=80, file=io.StringIO())
    bars = make_bars(console)
    progress = BarProgress(bars)
    progress.plan([1.0, 1.0])
    progress.begin("layer 1: searching", 40)
    progress.step(20, "best 0.5")
    with console.capture() as capture:
        console.print(bars.get_renderable())
    first, second = Text.from_ansi(capture.get()).plain.splitlines()
    assert re.fullmatch(r"whole run [━╺]+ +25% 0:00:00 +", first)
    assert second == "  layer 1: searching  20 of 40  best 0.5"


def test_a_log_says_every_half_minute_what_is_under_way(monkeypatch, capsys):
    monkeypatch.setattr(screen, "_TICK_SECONDS", 0.01)
    monkeypatch.setattr("auber.system.progress.LOG_INTERVAL", 0.02)
    with listening(quiet=False) as progress:
        progress.plan([1.0])
        progress.begin("evaluating", 0)
        time.sleep(0.5)
    lines = capsys.readouterr().err.splitlines()
    assert lines.count("evaluating: working (0 % of the run)") > 2
    assert re.fullmatch("took . s in all", lines[-1])


def test_only_cells_of_many_words_are_wrapped(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    rows = [["a run of some length", "1 of 144", "85.0 to 93.0"], ["b", "7 of 144", "words " * 9]]
    print_table(["run", "heads removed", "score"], rows)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0].split("  ")[0] == "run"
    assert "heads removed" in lines[0]
    assert lines[1].startswith("a run of some length       1 of 144")
    monkeypatch.delenv("COLUMNS")
    print_table(["run", "heads removed", "score"], rows)
    assert len(capsys.readouterr().out.splitlines()) == 3, "a file has a line for each row"


def test_a_long_line_with_a_command_is_not_broken(capsys):
    text = "auber prune --set first.epochs=3 " * 9
    print_line(Console(stderr=True, width=80, force_terminal=True), text)
    assert capsys.readouterr().err == f"{text}\n"
