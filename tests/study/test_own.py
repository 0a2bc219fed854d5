"""Rows of your own as tasks of a study."""

from __future__ import annotations

import csv
import re

import pytest

from auber.cli.live.study import StudyWatcher
from auber.config import settings
from auber.data import make_task
from auber.errors import ConfigError, RunError, TaskError
from auber.report import FOLDER
from auber.report.collect import collect
from auber.report.results_file import save_results
from auber.study import State, StudyFolder, make_study, read_study, run_study
from auber.study.own import _REPORT, KEYS
from auber.study.plan import Block
from tests.kinds import write_kind_files
from tests.small import small_task
from tests.study.tiny import Notes, results_of, tiny_study

BLOCK = Block("films", "seen", 0)
SMALLEST = {"model": "some-bert", "methods": ["auber"], "seeds": [0]}
DIGEST = "9f" * 32

pytestmark = pytest.mark.usefixtures("young_garbage")  # a study collects after each run


def write_rows(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("said", "y"), *zip(rows.first, rows.labels, strict=True)])


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the files of rows, which relative paths are read from."""
    task = small_task()
    write_rows(tmp_path / "a.csv", task.train)
    write_rows(tmp_path / "b.csv", task.dev)
    monkeypatch.chdir(tmp_path)
    return tmp_path


FILMS = {"train": "a.csv", "dev": "b.csv", "text": "said", "label": "y"}


def films_study(model, films=None, **changes):
    tables = {"tasks": {"films": films or FILMS}, "methods": ["original"]}
    return tiny_study(model, **{**tables, **changes})


def digest_of(folder):
    return read_study(folder / "study.toml").own["films"].rows


def test_the_command_does_a_study_and_goes_on_with_it(run_auber, model, place):
    lines = films_study(model).to_toml().replace('"tiny"', f'"{model}"')
    (place / "films.toml").write_text(lines)
    code, out, _ = run_auber("study", "films.toml", "--out", "o", "--dry-run")
    assert code == 0
    assert "2 open runs: not measured yet; at most 0 rewards and 1 tuning steps" in out
    code, out, err = run_auber("study", "films.toml", "--out", "o", "--jobs", "1")
    assert (code, out) == (0, "2 runs: 2 complete.   Next: auber report o\n")
    assert "[1/2] films seen seed 0 start: dev accuracy " in err

    (place / "films.toml").write_text(
        lines.replace('["original"]', '["original", "auber", "original+tuning"]')
    )
    code, out, err = run_auber("study", "films.toml", "--out", "o", "--jobs", "1")
    assert (code, out) == (0, "4 runs: 4 complete.   Next: auber report o\n")
    assert "[1/2] films seen seed 0 auber: dev accuracy " in err

    record = read_study(place / "o" / "study.toml")
    task = make_task("a.csv", "b.csv", text="said", label="y")
    assert (record.own["films"].files, record.own["films"].rows) == (None, task.content_hash)
    assert "csv" not in (place / "o" / "study.toml").read_text(), (
        "where rows lie is no part of a study"
    )

    found = collect(place / "o")
    assert {(run.task, run.data, run.majority) for run in found.runs} == {
        ("films", task.content_hash, task.majority_share)
    }
    assert {key[2] for key in found.wanted} == {"films"}
    assert [
        (block.task, len(block.cells)) for block in StudyWatcher(place / "o").look().blocks
    ] == [("films", 4)]
    code, out, _ = run_auber("report", "o")
    assert code == 0
    assert "films" in out


def test_the_numbers_are_those_of_a_known_task_with_the_same_rows(model, place, monkeypatch):
    """A name is no part of what is computed."""
    monkeypatch.setattr(
        "auber.study.plan.load_task",
        lambda *_, **__: make_task("a.csv", "b.csv", text="said", label="y"),
    )
    known, own = tiny_study(model, methods=["auber"]), films_study(model, methods=["auber"])
    for name, study in (("known", known), ("own", own)):
        run_study(study, StudyFolder(place / name), Notes())
    assert list(results_of(known, place / "known").values()) == list(
        results_of(own, place / "own").values()
    )


def test_what_is_doubtful_about_rows_is_said_once(model, place):
    notes = Notes()
    study = films_study(model, {**FILMS, "dev": "a.csv"}, seeds=[0, 1])
    run_study(study, StudyFolder(place / "o"), notes)
    (words,) = [said for said in notes.said if "also in train" in said]
    assert (
        words
        == "films: careful: 60 of 60 dev rows are also in train, so their scores say little about new rows"
    )


@pytest.mark.parametrize("kind", ["tokens", "spans"])
def test_every_kind_of_rows(model, tmp_path, kind):
    train, dev = write_kind_files(kind, tmp_path)
    study = films_study(model, {"train": str(train), "dev": str(dev), "kind": kind})
    outcomes = run_study(study, StudyFolder(tmp_path / "o"), Notes())
    assert {outcome.state for outcome in outcomes} == {State.COMPLETE}


@pytest.fixture
def begun(model, place):
    """The folder of a study whose start has a result."""
    run_study(films_study(model), StudyFolder(place / "o"), Notes())
    return StudyFolder(place / "o")


def test_other_rows_under_the_same_name_are_refused(model, place, begun):
    digest = digest_of(begun.path)
    write_rows(place / "b.csv", small_task().dev.select(range(12)))
    message = "^.*o: holds another study: task films has other rows than it had; use what it had or another --out$"
    for seeds in (
        [0, 1],
        [0],
    ):  # also where nothing is left to be computed: that is of the rows before
        with pytest.raises(RunError, match=message):
            run_study(films_study(model, seeds=seeds), begun, Notes())
    assert (digest_of(begun.path), read_study(begun.path / "study.toml").seeds) == (digest, (0,))
    write_rows(place / "b.csv", small_task().dev)
    with pytest.raises(
        RunError, match="task films has other rows"
    ):  # another metric makes other scores of them
        run_study(films_study(model, {**FILMS, "metric": "f1"}, seeds=[0, 1]), begun, Notes())


def test_the_same_rows_elsewhere_go_on(model, place, begun):
    (place / "moved").mkdir()
    for name in ("a.csv", "b.csv"):
        (place / name).rename(place / "moved" / name)
    where = re.escape("tasks.films: a.csv: there is no such file; correct the path")
    with pytest.raises(TaskError, match=f"^{where}$"):
        run_study(films_study(model, seeds=[0, 1]), begun, Notes())
    assert {outcome.state for outcome in run_study(films_study(model), begun, Notes())} == {
        State.COMPLETE
    }, "no need"
    films = {**FILMS, "train": str(place / "moved" / "a.csv"), "dev": "moved/b.csv"}
    outcomes = run_study(films_study(model, films, seeds=[0, 1]), begun, Notes())
    assert {outcome.state for outcome in outcomes} == {State.COMPLETE}


def test_a_link_is_read_by_its_own_name(model, place):
    (place / "a.csv").rename(place / "blob")
    (place / "a.csv").symlink_to("blob")
    outcomes = run_study(films_study(model), StudyFolder(place / "o"), Notes())
    assert {outcome.state for outcome in outcomes} == {State.COMPLETE}


def test_a_record_is_no_place_to_read_rows_from(model, place, begun):
    recorded = read_study(begun.path / "study.toml")
    study = films_study(model, {"rows": recorded.own["films"].rows}, seeds=[0, 1])
    message = (
        "^tasks.films: its rows are known by their digest alone; name their files as train and dev$"
    )
    with pytest.raises(TaskError, match=message):
        run_study(study, begun, Notes())


def test_rows_that_a_study_file_names(model, place):
    message = (
        f"^tasks.films: rows must be those of its files, found {DIGEST} and in a.csv and b.csv [0-9a-f]{{64}}; give the files that were "
        "meant, or leave rows out$"
    )
    with pytest.raises(TaskError, match=message):
        run_study(films_study(model, {**FILMS, "rows": DIGEST}), StudyFolder(place / "o"), Notes())
    assert not (place / "o").exists()


def test_rows_that_change_while_a_study_goes_on_are_in_no_run(model, place, monkeypatch):
    from auber import api

    finetune = api.finetune

    def change_rows(*arguments, **options):
        write_rows(place / "b.csv", small_task().dev.select(range(12)))
        return finetune(*arguments, **options)

    monkeypatch.setattr(api, "finetune", change_rows)
    outcomes = run_study(films_study(model, seeds=[0, 1]), StudyFolder(place / "o"), Notes())
    assert [outcome.state for outcome in outcomes] == [
        State.COMPLETE,
        State.COMPLETE,
        State.FAILED,
        State.SKIPPED,
    ]
    assert outcomes[2].error.startswith(
        "TaskError: tasks.films: rows must be those of its files, found "
    )


def test_all_rows_are_known_by_the_record_also_those_of_a_later_call(model, place):
    from auber.study import select_runs

    study = films_study(model, tasks={"films": FILMS, "books": {**FILMS, "dev": "a.csv"}})
    run_study(
        study, StudyFolder(place / "o"), Notes(), selection=select_runs(study, ["task=films"])
    )
    record = read_study(place / "o" / "study.toml")
    assert (
        record.own["books"].rows == make_task("a.csv", "a.csv", text="said", label="y").content_hash
    )
    assert [block.task for block in record.blocks()] == ["films", "books"]


def test_a_results_file_has_them_too(model, place, begun):
    save_results(begun.path, place / "films.json")
    (found,) = {key[2] for key in collect(place / "films.json").wanted}
    assert found == "films"
    other = films_study(model, {**FILMS, "dev": "a.csv"})
    run_study(other, StudyFolder(place / "other"), Notes())
    message = "^.*films.json: holds another study than .*other: task films has other rows than it had; save it into another file"
    with pytest.raises(RunError, match=message):
        save_results(place / "other", place / "films.json")


@pytest.mark.parametrize(
    ("films", "message"),
    [
        ({"train": "none.csv"}, "tasks.films: none.csv: there is no such file; correct the path"),
        (
            {"text": "sad"},
            "tasks.films: a.csv: Unknown column 'sad'. Did you mean 'said'? Known: said, y",
        ),
        (
            {"label": None},
            "tasks.films: a.csv: Unknown column 'label'. Known: said, y; name it with label",
        ),
        (
            {"metric": "acuracy"},
            "tasks.films: Unknown metric 'acuracy'. Did you mean 'accuracy'? Known: ",
        ),
        ({"kind": "words"}, "tasks.films: Unknown kind 'words'. Known: sequence, spans, tokens"),
        (
            {"labels": "0"},
            "tasks.films: a.csv, line 2: label '1' is not one of the known labels (0); correct it",
        ),
    ],
)
def test_what_is_wrong_with_rows_is_said_before_anything_is_made(
    run_auber, model, place, films, message
):
    given = {key: value for key, value in {**FILMS, **films}.items() if value is not None}
    lines = films_study(model, given).to_toml().replace('"tiny"', f'"{model}"')
    (place / "films.toml").write_text(lines)
    code, out, err = run_auber("study", "films.toml", "--out", "o")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"auber: {message}")
    assert not (place / "o").exists()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"films": {"train": "a.csv"}},
            "study: tasks.films: train and dev go together, found train alone; add dev FILE",
        ),
        (
            {"films": {"dev": "a.csv"}},
            "study: tasks.films: train and dev go together, found dev alone; add train FILE",
        ),
        (
            {"films": {"metric": "f1"}},
            "study: tasks.films: your own rows need train FILE and dev FILE, found neither; add both",
        ),
        ({"films": {}}, "study: Unknown task 'films'. Known: agreement, cola, mrpc, rte, wnli"),
        (
            {"rte": {"train": "a.csv", "dev": "b.csv"}},
            "study: tasks.rte: train is for rows of your own, rte is a known task; give yours another name",
        ),
        (
            {"rte": {"metric": "f1"}},
            "study: tasks.rte: metric is for rows of your own, rte is a known task; give",
        ),
        (
            {"report": FILMS},
            "study: tasks.report: that folder of a study is for what 'auber report' writes; choose another",
        ),
        (
            {"films": {**FILMS, "lable": "y"}},
            "study: tasks.films: Unknown key 'lable'. Did you mean 'label'? Known: agent, dev, device, ",
        ),
        (
            {"films": {"train": 3, "dev": "b.csv"}},
            "study: tasks.films: train must be text, found 3",
        ),
        (
            {"films": {**FILMS, "labels": [0, 1]}},
            "study: tasks.films: labels must be text or a list of it, found [0, 1]",
        ),
        (
            {"films": {**FILMS, "first": {"epoch": 2}}},
            "study: settings: Unknown setting 'first.epoch'. Did you mean",
        ),
        (
            {"my films": FILMS},
            "study: tasks.my films: your own rows have a folder by their name, which must be 1 to 100 of a-z, A-Z, 0-9, _ and -, "
            "the first no -; choose another",
        ),
    ],
)
def test_a_mistake_is_named(table, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        make_study({**SMALLEST, "tasks": table})


def test_a_glue_folder_is_for_known_tasks():
    message = (
        "^study: data is the folder of known tasks, found your own rows alone; leave data out$"
    )
    with pytest.raises(ConfigError, match=message):
        make_study({**SMALLEST, "tasks": {"films": FILMS}, "data": "glue"})
    make_study({**SMALLEST, "tasks": {"films": FILMS, "rte": {}}, "data": "glue"})


def test_a_study_survives_its_file(tmp_path):
    table = {
        **FILMS,
        "text": ["q1", "q2"],
        "labels": "no, yes",
        "kind": "sequence",
        "metric": "f1",
        "first": {"epochs": 2},
    }
    study = make_study({**SMALLEST, "tasks": {"films": table, "rte": {}}})
    assert (study.own["films"].files.text, study.own["films"].files.labels) == (
        ("q1", "q2"),
        ("no", "yes"),
    )
    assert study.task_settings["films"] == {"first.epochs": 2}
    (tmp_path / "study.toml").write_text(study.to_toml())
    assert read_study(tmp_path / "study.toml") == study
    known = make_study({**SMALLEST, "tasks": {"films": {**table, "rows": DIGEST}, "rte": {}}})
    (tmp_path / "study.toml").write_text(known.to_toml())
    assert read_study(tmp_path / "study.toml").own["films"].rows == DIGEST
    assert read_study(tmp_path / "study.toml").to_toml() == known.to_toml()


def test_the_name_of_no_task_is_the_folder_of_a_report():
    assert _REPORT == FOLDER


def test_no_setting_is_taken_for_a_word_about_rows():
    assert {setting.key.partition(".")[0] for setting in settings()}.isdisjoint(KEYS)
