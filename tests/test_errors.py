from __future__ import annotations

import runpy

import pytest

from auber.errors import AuberError, show_name, show_value, unknown_name
from auber.models.remote_code import MODELING_FILE


def test_unknown_name():
    message = unknown_name("task", "mprc", ["mrpc", "cola", "wnli", "rte"])
    assert message == "Unknown task 'mprc'. Did you mean 'mrpc'? Known: cola, mrpc, rte, wnli"
    assert unknown_name("task", "zzzz", ["mrpc"]) == "Unknown task 'zzzz'. Known: mrpc"
    assert (
        unknown_name("task", "z", ["a", "b", "c"], most=2) == "Unknown task 'z'. Known: a, b, ..."
    )


def test_a_message_is_one_line_without_control_characters():
    assert str(AuberError("a\nb\x1b[31m")) == r"a\nb\x1b[31m"


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
