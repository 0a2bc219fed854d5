from __future__ import annotations

import runpy

import pytest

import auber
from auber.errors import (
    AuberError,
    ConfigError,
    TaskError,
    name_arguments,
    show_name,
    show_value,
    unknown_name,
)
from auber.models.remote_code import MODELING_FILE
from tests.small import small_start, small_task


def test_unknown_name():
    message = unknown_name("task", "mprc", ["mrpc", "cola", "wnli", "rte"])
    assert message == "Unknown task 'mprc'. Did you mean 'mrpc'? Known: cola, mrpc, rte, wnli"
    assert unknown_name("task", "zzzz", ["mrpc"]) == "Unknown task 'zzzz'. Known: mrpc"
    assert (
        unknown_name("task", "z", ["a", "b", "c"], most=2) == "Unknown task 'z'. Known: a, b, ..."
    )


def test_a_message_is_one_line_without_control_characters():
    assert str(AuberError("a\nb\x1b[31m")) == r"a\nb\x1b[31m"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("choose another folder for --out", "choose another folder for out"),
        (
            "give --keep SHARE, --heads P or --heads-from RUN",
            "give keep SHARE, heads P or heads RUN",
        ),
        ("continue it with --resume", "continue it with resume=True"),
        ("add --allow-upgrade to go on", "add resume='upgrade' to go on"),
        ("try --set precision=float32", "try precision=float32"),
        ("name it with --text", "name it with text"),
        ("'auber prune --text' takes", "'auber prune --text' takes"),
    ],
)
def test_python_has_arguments_where_the_command_line_has_options(message, expected):
    assert name_arguments(message) == expected


def test_an_error_of_python_names_arguments(run_auber, tmp_path):
    """So does the command line name options."""
    rows = [{"q": "a", "label": label} for label in "ab"]
    with pytest.raises(TaskError, match="Known: label, q; name the column with text, or"):
        auber.make_task(rows, rows)
    with pytest.raises(ConfigError, match="^keep must be a share .*; give one such as 0.5$"):
        auber.prune(*small_start(), task=small_task(), keep=2)
    (tmp_path / "rows.csv").write_text("q,label\na,0\nb,1\n")
    given = ("--train", tmp_path / "rows.csv", "--out", tmp_path / "run")
    code, _, err = run_auber("prune", "--model", "somewhere", *given)
    assert code == 2
    assert "name the column with --text" in err


def test_shown_values_are_short_and_on_one_line():
    assert show_value("a\n") == r"'a\n'"
    assert show_value(10**5000) == "a number of thousands of digits"
    assert len(show_value("x" * 1000)) == 80
    assert show_name("name") == "name"
    assert show_name("a\nb") == r"'a\nb'"


def test_the_modeling_file_names_the_transformers_that_it_needs(monkeypatch):
    monkeypatch.setattr("transformers.__version__", "4.57.6")
    message = "^modeling_auber.py needs transformers 5, found 4.57.6; pip install --upgrade tran"
    with pytest.raises(ImportError, match=message):
        runpy.run_path(str(MODELING_FILE))
