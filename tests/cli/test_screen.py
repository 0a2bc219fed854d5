from __future__ import annotations

import io
import logging
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress as Bars

from auber.cli.screen import BarProgress, describe_result, listening, print_line, print_table, wrap
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


@pytest.mark.parametrize("warn", [True, False])
def test_warnings_are_shown_while_listening(warn):
    logger = logging.getLogger("auber")
    before = logger.level
    with listening(quiet=True, warn=warn):
        assert logger.isEnabledFor(logging.WARNING) == warn
    assert logger.level == before


def test_a_warning_is_printed_above_the_bars(monkeypatch, capsys):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", logging.WARNING)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with listening(quiet=False) as progress:
        progress.plan(2)
        logging.getLogger("auber.data").warning("careful: %d rows", 7)
    shown = capsys.readouterr().err
    assert "\x1b[2Kauber: careful: 7 rows" in shown, "the bar's line is cleared first"


def test_the_bar_of_the_whole_run_counts_work():
    bars = Bars()
    progress = BarProgress(bars)
    progress.plan(3)
    progress.weigh([10.0, 60.0, 30.0])
    progress.begin("first tuning", 5)
    progress.end()
    progress.begin("training gates", 4)
    progress.step(3)
    assert bars.tasks[0].percentage == pytest.approx(55)
    progress.end()
    progress.skip(1)
    assert bars.tasks[0].percentage == 100


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            80,
            [
                "Sizes of the models",
                "run        parameters  onnxruntime, batch 1",
                "a run  131 k of 146 k                  1.03",
                "b                                      0.98",
            ],
        ),
        (
            34,
            [
                "Sizes of the models",
                "                      onnxruntime,",
                "run      parameters        batch 1",
                "a run  131 k of 146           1.03",
                "                  k",
                "b                             0.98",
            ],
        ),
    ],
)
def test_a_table_breaks_lines_between_words(monkeypatch, capsys, width, lines):
    columns = ["run", "parameters", "onnxruntime, batch 1"]
    rows = [["a run", "131 k of 146 k", "1.03"], ["b", "", "0.98"]]
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(columns, rows, title="Sizes of the models")
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == lines


def test_a_table_that_is_too_wide_is_not_cut(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    print_table(["run", "parameters", "onnxruntime"], [["a long name", "131", "1.03"]])
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["run", "parameters", "onnxruntime"]
    assert row.split() == ["a", "long", "name", "131", "1.03"]


@pytest.mark.parametrize(
    ("is_terminal", "lines"),
    [(True, ["[1/7] films seed", "0: 2 min left"]), (False, ["[1/7] films seed 0: 2 min left"])],
)
def test_lines_are_wrapped_on_terminals_only(is_terminal, lines):
    written = io.StringIO()
    console = Console(file=written, force_terminal=is_terminal, width=18)
    print_line(console, "[1/7] films seed 0: 2 min left")
    assert [line.rstrip() for line in written.getvalue().splitlines()] == lines


def test_wrap(monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    text = "prune the original+tuning model"
    assert wrap(text, first="- ", later="  ") == "- prune the\n  original+tuning model"


def test_messages_of_the_hub_are_printed_once_and_not_if_quiet(monkeypatch):
    hub = logging.getLogger("huggingface_hub")
    monkeypatch.setattr(hub, "propagate", True)
    monkeypatch.setattr(hub, "handlers", [logging.NullHandler()])
    monkeypatch.setattr(hub, "level", logging.WARNING)
    with listening(quiet=False):
        assert (hub.propagate, hub.level) == (False, logging.WARNING)
    with listening(quiet=True):
        assert hub.level == logging.ERROR
