from __future__ import annotations

import pytest

from auber.cli.live.drawing import ASCII, UNICODE, Sheet, bar, sparkline
from auber.cli.live.run import RunWatcher
from auber.cli.live.run_drawing import draw_run
from auber.cli.live.run_view import LayerView, RunState, RunView
from tests.cli.live.folders import NOW, RESULT, RunFolder


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.search_layer_1()
    return folder


def view_of(folder):
    return RunWatcher(folder.path, clock=lambda: NOW).look()


def drawn(view, sheet):
    return [line.plain for line in draw_run(view, sheet)]


def test_a_search_on_a_small_terminal(folder):
    lines = drawn(view_of(folder), Sheet(80, 24))
    assert (
        lines[0] == "auber prune  task rte  method auber  seed 7  protocol heldout  model bert-tiny"
    )
    assert lines[1].startswith("running for 2 min  process ")
    assert lines[2].rstrip() == "✓ first 12 s   · last   · evaluation"
    assert lines[3] == "layer 1: searching    ━━━━━───────────────  3/12  60 s left  best 0.9"
    assert lines[4] == "whole run             ━━━━━━━━────────────  41%  layers to come about 30 s"
    assert lines[5] == "rewards 12 asked, 4 computed, 0.4/s  best 0.8750, unpruned 0.7500 (+12.50)"
    assert lines[6] == "return +3 ▅▁█"
    assert lines[7:10] == ["✓  0 ■□■□  -2 +12.50", "▶  1 ▒▒▒▒", "·  2 ····"]
    assert lines[-1].endswith(" layer-00 done in 30 s, 2 heads removed")


def test_a_search_that_begins_from_a_plan_says_so(folder):
    folder.finish("prior", plan={"1": [0]}, seconds=1.0)
    assert drawn(view_of(folder), Sheet(80, 24))[5].endswith(
        "  best 0.8750, begun at 0.5000 (+37.50)"
    )


def test_every_mark_has_a_form_in_ascii(folder):
    text = "\n".join(drawn(view_of(folder), Sheet(80, 24, ASCII)))
    assert text.isascii()
    assert "+  0 #-#-  -2" in text
    assert ">  1 ????" in text


@pytest.mark.parametrize("height", [8, 12, 24, 60])
@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("num_layers", [3, 12, 24])
def test_no_terminal_is_too_small(folder, width, height, num_layers):
    view = view_of(folder)
    layers = tuple(
        LayerView(
            layer, "decided" if layer < 9 else "searching" if layer == 9 else "open", (0, 3), 0.01
        )
        for layer in range(num_layers)
    )
    view = RunView(**{**vars(view), "layers": layers, "num_heads": 16, "num_layers": num_layers})
    lines = drawn(view, Sheet(width, height))
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    if num_layers > 9 and height >= 12:
        assert any("▶  9" in line for line in lines), "the layer at work is always among them"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("KeyboardInterrupt: ", "stopped by Ctrl-C"),
        ("Terminated: ", "stopped by the system (SIGTERM)"),
        ("TuningError: loss nan", "TuningError: loss nan"),
    ],
)
def test_why_a_run_has_stopped_is_said_once(folder, error, words):
    folder.event("stopped", error=error)
    lines = drawn(view_of(folder), Sheet(80, 24))
    assert words in lines
    assert not [line for line in lines if "stopped: " in line]


def test_a_run_that_has_stopped_shows_the_whole_command(folder):
    command = "auber prune --model some-long-model-name --task rte --data glue --method auber --seed 7 --out runs/rte"
    folder.progress("layer 1: searching", 3, 12, started=1.0, command=command)
    folder.event("stopped", error="KeyboardInterrupt: ")
    lines = drawn(view_of(folder), Sheet(80, 24))
    assert f"nobody is at work; go on with: {command} --resume" in " ".join(lines)
    assert "stopped by Ctrl-C" in lines


def test_a_complete_run(folder):
    folder.write("result.json", RESULT)
    lines = drawn(view_of(folder), Sheet(400, None))
    assert lines[1] == f"complete  in {folder.path}", "of a folder of several, which one it is"
    assert (
        lines[2]
        == "dev accuracy 75.00, train 87.50, gap +12.50 points; 2 of 12 heads removed; 61 s"
    )


def test_nothing_there_yet(tmp_path):
    view = RunView(str(tmp_path), RunState.WAITING, {})
    assert drawn(view, Sheet(400, 24)) == [f"waiting for a run in {tmp_path}"]


def test_a_layer_that_is_searched_and_not_decided_counts_no_heads(folder):
    view = RunView(**{**vars(view_of(folder)), "layers": (LayerView(0, "searched", (), None),)})
    assert "✓  0 ▒▒▒▒" in drawn(view, Sheet(80, 24))


def test_a_tuning_shows_its_loss(folder):
    folder.event(
        "numbers",
        step=8,
        values={"layer-01/tuning/loss": 0.25, "layer-01/tuning/steps_per_second": 4.0},
    )
    folder.progress("layer 1: tuning", 8, 16)
    assert "loss 0.2500 at step 8, 4.0 steps a second" in drawn(view_of(folder), Sheet(80, 24))


@pytest.mark.parametrize(("share", "text"), [(-1, "----"), (0.5, "==--"), (2, "====")])
def test_a_bar(share, text):
    assert bar(share, 4, ASCII) == text


@pytest.mark.parametrize(
    ("values", "width", "text"),
    [
        ([], 5, ""),
        ([float("nan")], 5, ""),
        ([1.0, 1.0], 5, "▅▅"),
        ([0, 7, float("inf")], 5, "▁█"),
        ([0, 2, 6, 8], 2, "▁█"),
    ],
)
def test_a_curve(values, width, text):
    assert sparkline(values, width, UNICODE.heights) == text
