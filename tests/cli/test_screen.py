from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress as Bars

from auber.cli.screen import (
    BarProgress,
    describe_result,
    fit_columns,
    listening,
    print_line,
    print_table,
    wrap,
)
from auber.cli.study import _RunBar


def result(
    metric: str, score: float, *, one_class: bool = False, majority: float | None = None
) -> dict[str, Any]:
    return {
        "metric": metric,
        "dev": {"score": score, "one_class": one_class, "majority": majority},
        "train": {"score": 0.75},
        "gap": 0.75 - score,
        "protocol": "seen",
        "seed": 3,
        "heads": {"removed": 2, "total": 12},
        "cost": {
            "rewards_computed": 5,
            "rewards_asked": 9,
            "tuning_steps": 40,
            "seconds": {"total": 12.3},
        },
    }


def test_scores_heads_and_cost():
    assert describe_result(result("entity_f1", 0.5)) == [
        "dev entity_f1 50.00, train 75.00, gap +25.00 points (protocol seen, seed 3)",
        "2 of 12 heads removed; 5 rewards computed for 9 asked; 40 tuning steps; 12 s",
    ]


@pytest.mark.parametrize("warn", [True, False])
def test_warnings_are_heard_or_not_while_listening_and_as_before_behind_it(warn):
    logger = logging.getLogger("auber")
    before = logger.level
    with listening(quiet=True, warn=warn):
        assert logger.isEnabledFor(logging.WARNING) == warn
    assert logger.level == before


def test_a_warning_stands_above_the_bars_not_in_their_lines(monkeypatch, capsys):
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
    assert "\x1b[2Kauber: careful: 7 rows" in shown, "the line of the bar is cleared first"


def shown_share(bars):
    return bars.tasks[0].percentage / 100


def test_the_bar_of_the_whole_run_counts_work_where_that_is_told():
    bars = Bars()
    progress = BarProgress(bars)
    progress.plan(4)
    progress.weigh([10.0, 60.0, 10.0, 20.0])
    progress.begin("first tuning", 5)
    progress.end()
    progress.begin("training gates", 4)
    progress.step(3)
    assert shown_share(bars) == pytest.approx(0.55), "three quarters of the longest stage"
    progress.end()
    progress.skip(1)
    assert shown_share(bars) == pytest.approx(70 / 90), "what comes next falls away"
    progress.begin("last tuning", 0)
    progress.end()
    assert shown_share(bars) == 1


def test_the_bar_of_the_whole_run_counts_stages_otherwise():
    bars = Bars()
    progress = BarProgress(bars)
    progress.plan(3)
    progress.begin("writing", 2)
    progress.step(1)
    assert shown_share(bars) == pytest.approx(0.5 / 3)
    progress.end()
    progress.skip(1)
    assert shown_share(bars) == 0.5


def test_the_bar_of_a_study_s_run_counts_work_and_goes_with_the_last_stage():
    bars = Bars()
    progress = _RunBar(bars, "rte seed 0 auber")
    progress.plan(3)
    progress.weigh([10.0, 70.0, 20.0])
    progress.begin("first tuning", 5)
    progress.end()
    progress.begin("layer 0: searching", 10)
    progress.step(5, "best 0.9")
    assert shown_share(bars) == pytest.approx(0.45)
    assert bars.tasks[0].fields["note"] == "layer 0: searching best 0.9"
    progress.end()
    progress.skip(1)
    progress.end()
    assert not bars.tasks[0].visible


def test_steps_that_a_search_made_to_decide_are_told_beside_the_others():
    found = result("f1", 0.5)
    found["cost"] |= {"scout_steps": 1252, "gate_steps": 285}
    assert "; 40 tuning steps (and 1252 of scouts, 285 of gates); 12 s" in describe_result(found)[1]


# of these, only accuracy is then the share of a class
@pytest.mark.parametrize("metric", ["accuracy", "entity_f1", "f1", "matthews", "token_accuracy"])
def test_one_answer_to_everything_is_told_in_words_that_hold_for_every_metric(metric):
    assert describe_result(result(metric, 0.0, one_class=True))[2:] == [
        "careful: the model gives everything in dev the same answer, so its score says nothing of the rows"
    ]


@pytest.mark.parametrize(
    ("metric", "score", "told"),
    [("accuracy", 0.6, True), ("accuracy", 0.7, False), ("f1", 0.6, False)],
)
def test_a_score_that_the_most_frequent_class_has_too(metric, score, told):
    lines = describe_result(result(metric, score, majority=0.6))[2:]
    assert lines == (
        ["careful: always answering the most frequent class would score 60.00"] if told else []
    )


@pytest.mark.parametrize(
    ("width", "widths"),
    [
        (80, [9, 17, 7]),  # as wide as their cells
        (30, [9, 10, 7]),  # the widest gives way first
        (29, [9, 9, 7]),
        (24, [9, 7, 4]),  # down to the longest word of each
        (23, None),
    ],
)
def test_columns_fit_without_tearing_a_word(width, widths):
    columns = ["task", "what it is", "no more"]
    rows = [["agreement", "subject with verb", "1"], ["cola", "is it so", ""]]
    assert fit_columns(columns, rows, width) == widths


def printed(monkeypatch, capsys, width, *table, **options):
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(*table, **options)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_table_whose_words_have_no_room_is_a_block_a_row(monkeypatch, capsys):
    table = (
        ["run", "parameters", "onnxruntime, batch 1"],
        [["a run", "131 k of 146 k", "1.03"], ["b", "", "0.98"]],
    )
    assert printed(monkeypatch, capsys, 80, *table, title="Sizes") == [
        "Sizes",
        "run        parameters  onnxruntime, batch 1",
        "a run  131 k of 146 k                  1.03",
        "b                                      0.98",
    ]
    assert printed(monkeypatch, capsys, 24, *table, title="Sizes") == [
        "Sizes",
        "a run",
        "  parameters            131 k of 146 k",
        "  onnxruntime, batch 1  1.03",
        "b",
        "  onnxruntime, batch 1  0.98",
    ]


def test_a_title_may_be_wider_than_its_table(monkeypatch, capsys):
    assert printed(
        monkeypatch, capsys, 80, ["a"], [["1"]], title="What a single number is about"
    ) == [
        "What a single number is about",
        "a",
        "1",
    ]


@pytest.mark.parametrize(
    ("on_terminal", "lines"),
    [(True, ["[1/7] films seed", "0: 2 min left"]), (False, ["[1/7] films seed 0: 2 min left"])],
)
def test_a_line_is_torn_within_no_word_on_a_terminal_and_nowhere_in_a_log_file(on_terminal, lines):
    written = io.StringIO()
    print_line(
        Console(file=written, force_terminal=on_terminal, width=18),
        "[1/7] films seed 0: 2 min left",
    )
    assert [line.rstrip() for line in written.getvalue().splitlines()] == lines


def test_a_text_is_wrapped_between_words(monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    assert (
        wrap("prune the original+tuning model", first="- ", later="  ")
        == "- prune the\n  original+tuning model"
    )


def test_the_hub_is_heard_once_and_not_at_all_if_quiet(monkeypatch):
    hub = logging.getLogger("huggingface_hub")
    monkeypatch.setattr(hub, "propagate", True)
    monkeypatch.setattr(hub, "handlers", [logging.NullHandler()])
    monkeypatch.setattr(hub, "level", logging.WARNING)
    with listening(quiet=False):
        assert (hub.propagate, hub.level) == (False, logging.WARNING)
    with listening(quiet=True):
        assert hub.level == logging.ERROR


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_an_encoding_without_a_sign_costs_the_sign_alone(encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "100"}
    command = [sys.executable, "-m", "auber", "watch", "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Follow a search" in done.stdout
