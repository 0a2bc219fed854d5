"""The table in docs/rates.md is the file it names."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev

import pytest

from auber.config import load_toml
from auber.run.rates.choice import choose_rate
from auber.run.rates.record import read_record

ROOT = Path(__file__).parents[3]
RECORD = read_record(ROOT / "results/rates/minilm-l6.json")
PAGE = (ROOT / "docs/rates.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("task", ["rte", "mrpc", "cola", "wnli"])
def test_a_row_of_the_page_is_that_of_the_file(task):
    cells = []
    for rate in RECORD.asked_rates:
        points = [
            100 * trial.score for trial in RECORD.trials if (trial.task, trial.rate) == (task, rate)
        ]
        assert len(points) == 3
        cells.append(f"{mean(points):.2f} ± {stdev(points):.2f}")
    (line,) = [line for line in PAGE.splitlines() if line.lower().startswith(f"| {task}")]
    assert line.endswith(f"| {' | '.join(cells)} |")


def test_the_study_has_the_rate_that_was_found():
    study = load_toml(ROOT / "studies/minilm.toml")
    rate = choose_rate(RECORD).best
    assert study["settings"]["first"]["learning_rate"] == rate == 1e-4
    assert study["settings"]["layer"]["learning_rate"] == pytest.approx(rate / 10)
    assert study["settings"]["last"]["learning_rate"] == pytest.approx(rate / 10)
