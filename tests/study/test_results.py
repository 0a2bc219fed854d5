"""A real study's folder and the results file made from it say the same."""

from __future__ import annotations

import json

from auber.report.analysis import analyse
from auber.report.paper_tables import all_tables
from auber.report.results_file import collect, save_results
from auber.report.tables import WRITERS
from benchmarks.results_page import render_page


def texts_of(place):
    tables = all_tables(analyse(collect(place)))
    return {
        f"{table.name}.{suffix}": render(table)
        for table in tables
        for suffix, render in WRITERS.items()
    }


def test_tables_from_the_file_are_those_from_the_folder(unbroken, tmp_path):
    _, folder, _ = unbroken
    file = tmp_path / "study.json"
    saved = save_results(folder, file)
    assert (saved.added, saved.present, saved.total, saved.left_out) == (10, 0, 10, ())
    assert collect(file) == collect(folder)
    assert texts_of(file) == texts_of(folder)
    assert "incomplete" not in texts_of(file)["table2.md"]


def test_the_file_is_small_and_names_no_place(unbroken, tmp_path):
    _, folder, _ = unbroken
    file = tmp_path / "study.json"
    save_results(folder, file, model="small-bert")
    text = file.read_text()
    assert str(folder.parent.parent) not in text
    assert len(text) < 10 * 2000
    content = json.loads(text)
    assert (
        {run["model"] for run in content["runs"]} == {content["study"]["model"]} == {"small-bert"}
    )
    assert {run["origin"]["command"] for run in content["runs"]} == {"auber study tiny.toml"}
    assert {key for run in content["runs"] for key in run["settings"]} == {"seed", "first.when"}
    assert render_page([file]).count("## small-bert, protocol seen\n") == 1
