from __future__ import annotations

import pytest

from auber.report.repeating import render_repeating
from auber.report.results_file import read_results_file, save_results
from tests.report.results import make_result, write_plan, write_run


def text_of(folder, methods=("auber",), seeds=(0, 1), **changes):
    """What is said of a study of which the first seed is recorded: 2.5 s of the agent and 10 s on the device."""
    write_plan(folder / "s", ["rte"], list(methods), list(seeds))
    write_run(
        folder / "s", "start", make_result("rte", "original", 0, 0.6, kind="finetune", **changes)
    )
    write_run(folder / "s", "auber", make_result("rte", "auber", 0, 0.6, **changes))
    save_results(folder / "s", folder / "s.json")
    return render_repeating([read_results_file(folder / "s.json")])


def test_a_whole_study_is_estimated_from_what_is_recorded(tmp_path):
    times = {"cost.seconds": {"agent": 600.0, "total": 4200.0}}
    text = text_of(tmp_path, **times)
    assert "    auber study studies/table2.toml --model bert-base-cased --out runs/table2\n" in text
    assert "Estimated from the 2 runs and starts on NVIDIA H200" in text
    assert "4 of 4 runs, one after the other" in text
    # Two seeds of a start and a run: 4 x 600 s of the agent, and 4 x 3600 s that grow with the ratio of the rates.
    assert "| H200 (recorded here) | 989 | 4.7 h |\n" in text
    assert f"| A100 | 312 | {(2400 + 14400 * 989 / 312) / 3600:.1f} h |\n" in text
    assert "GPU memory: not recorded.\n" in text


def test_methods_that_are_not_recorded_are_not_guessed(tmp_path):
    text = text_of(tmp_path, methods=["auber", "greedy"])
    assert "4 of 6 runs" in text
    assert "2 runs are of a method that is not recorded and are not in it." in text
    assert "| H200 (recorded here) | 989 | 50 s |\n" in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"provenance.device": "cpu"}, "On cpu: 50 s. Other devices are not estimated from it."),
        (
            {"provenance.device": "NVIDIA A10G"},
            "On NVIDIA A10G: 50 s. Other devices are not estimated from it.",
        ),
        ({"provenance.device": "NVIDIA A100-SXM4-80GB"}, "| A100 (recorded here) | 312 | 50 s |"),
        (
            {"cost.peak_gpu_bytes": 3 * 2**30},
            "GPU memory: the largest of 2 recorded runs held 3.0 GiB at its peak.",
        ),
        (
            {"command": None},
            "    auber study STUDY.TOML --model bert-base-cased --out runs/STUDY\n",
        ),
    ],
)
def test_what_cannot_be_said_is_not_said(tmp_path, changes, words):
    assert words in text_of(tmp_path, **changes)


def test_a_study_of_a_smaller_model_is_repeated_with_its_own(tmp_path):
    text = text_of(tmp_path, **{"heads.layers": 6})
    assert "    auber study studies/table2.toml --out runs/table2\n" in text
    assert (
        "one after the other. With the study's own model: it has 6 layers of 12 heads, and its settings were chosen"
        in text
    )
    assert "| H200 (recorded here) | 989 | 50 s |\n" in text
    assert "tokenizer" not in text


def test_times_of_different_devices_are_not_mixed(tmp_path):
    folder = tmp_path / "s"
    for seed in (1, 2, 3):
        slow = {"provenance.device": "NVIDIA L4", "cost.seconds": {"agent": 0.0, "total": 3600.0}}
        write_run(folder, f"l4-{seed}", make_result("rte", "auber", seed, 0.6, **slow))
    text = text_of(tmp_path)
    assert "Estimated from the 3 runs and starts on NVIDIA L4" in text
    assert "| L4 (recorded here) | 121 | 2.0 h |" in text, (
        "two runs of auber; the start was not made there"
    )


def test_rows_of_your_own_are_not_fetched(tmp_path):
    text = text_of(tmp_path)
    assert "not fetched" not in text
    write_plan(tmp_path / "own", {"films": {"rows": "9f86"}}, ["auber"], [0])
    write_run(tmp_path / "own", "auber", {**make_result("rte", "auber", 0, 0.6), "task": "films"})
    save_results(tmp_path / "own", tmp_path / "own.json")
    text = render_repeating([read_results_file(tmp_path / "own.json")])
    assert " The rows of films are not fetched: the study's file names their files." in text
