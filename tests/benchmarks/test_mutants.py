"""Mistakes are made in every kind of code, and noticed or recorded as survivors."""

from __future__ import annotations

import ast
import json

import pytest

from auber.errors import RunError
from benchmarks.mutants import __main__ as mutants
from benchmarks.mutants.changes import list_changes

SOURCE = '''
"""A docstring with 1 number."""
LIMIT: Literal[3] = 4

def choose(rows: Annotated[list, 5], share=0.5, *, strict=True):
    logger.info("%d rows", len(rows) + 6)
    if not rows and strict:
        raise ValueError(f"must be {7}")
    assert share < 1
    rows.sort(key=len, reverse=True)
    return max(rows[0], 2) - pick(rows, share) if len(rows) > 8 else None
'''

EXPECTED = {
    ("constant", "4", "5"),
    ("constant", "0.5", "1.0"),
    ("constant", "True", "False"),
    ("operator", "not rows and strict", "(not rows or strict)"),
    ("dropped term", "not rows and strict", "(not rows)"),
    ("dropped not", "not rows", "rows"),
    ("dropped call", "rows.sort(key=len, reverse=True)", "pass"),
    ("dropped argument", "rows.sort(key=len, reverse=True)", "rows.sort(key=len)"),
    ("dropped argument", "rows.sort(key=len, reverse=True)", "rows.sort(reverse=True)"),
    ("opposite", "max", "min"),
    ("operator", "max(rows[0], 2) - pick(rows, share)", "(max(rows[0], 2) + pick(rows, share))"),
    ("dropped term", "max(rows[0], 2) - pick(rows, share)", "max(rows[0], 2)"),
    ("swapped arguments", "pick(rows, share)", "pick(share, rows)"),
    ("comparison", "len(rows) > 8", "(len(rows) >= 8)"),
    ("constant", "0", "1"),
    ("constant", "2", "3"),
    ("constant", "8", "9"),
}


def test_every_kind_of_mistake_and_nothing_that_no_test_should_notice():
    found = list_changes(SOURCE, "a.py", 0)
    assert {(each.kind, each.before, each.after) for each in found} == EXPECTED
    for change in found:
        mutant = change.apply(SOURCE)
        assert ast.dump(ast.parse(mutant)) != ast.dump(ast.parse(SOURCE))


def test_the_draw_does_not_depend_on_other_lines():
    ranks = {each.rank for each in list_changes(SOURCE, "a.py", 0)}
    later = {each.rank for each in list_changes("OTHER = 9\n" + SOURCE, "a.py", 0)}
    assert len(later - ranks) == 1
    assert ranks < later
    assert ranks.isdisjoint(each.rank for each in list_changes(SOURCE, "a.py", 1))


MODULE = "def is_small(number):\n    return number < 3\n"
TEST = """from auber.metrics.small import is_small

def test_is_small():
    assert is_small(2)
    assert not is_small(9)
"""
STRICTER = TEST + "    assert not is_small(3)\n"


def write_tree(test):
    def write(tree):
        for name, text in {
            "pyproject.toml": "",
            "src/auber/__init__.py": "",
            "src/auber/metrics/__init__.py": "",
            "src/auber/metrics/small.py": MODULE,
            "tests/metrics/test_small.py": test,
        }.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)

    return write


@pytest.fixture
def run_program(tmp_path, monkeypatch):
    """Run the program on a tree of one module with these tests; return the mutants."""

    def run(test, *words):
        monkeypatch.setattr(mutants, "import_libraries", lambda: None)
        monkeypatch.setattr(mutants, "copy_tree", write_tree(test))
        out = tmp_path / "mutants.json"
        mutants.main(["--out", str(out), "--mutants", "9", *words])
        return out, json.loads(out.read_text())["mutants"]

    return run


def test_survivors_are_recorded_and_tried_again(run_program, capfd):
    out, found = run_program(TEST)
    assert {each["change"]: each["verdict"] for each in found} == {
        "number < 3 -> (number <= 3)": "survived",
        "3 -> 4": "survived",
    }
    content = json.loads(out.read_text())
    content["mutants"][0]["reason"] = "a reason"
    out.write_text(json.dumps(content))
    seconds = [each["seconds"] for each in found]
    _, found = run_program(STRICTER)
    assert [each["seconds"] for each in found] == seconds, "known mutants were tried again"
    assert "a reason" in capfd.readouterr().out
    _, found = run_program(STRICTER, "--survivors")
    test = "tests/metrics/test_small.py::test_is_small"
    assert [(each["verdict"], each["by"]) for each in found] == [("killed", test)] * 2


def test_tests_that_fail_without_a_mistake(run_program):
    with pytest.raises(RunError, match=r"test_small.py: must pass before mistakes are made, found"):
        run_program("def test_nothing():\n    assert False\n")


def test_another_seed(run_program):
    run_program(STRICTER)
    with pytest.raises(RunError, match="--seed was 0, found 1; choose another --out"):
        run_program(STRICTER, "--seed", "1")
