from __future__ import annotations

import json

import pytest

from auber.errors import RunError
from auber.regret.files import compact_json, write_kept


def test_numbers_stand_on_one_line_and_stay_what_they_are():
    data = {
        "a": [0.1 + 0.2, -1e-300, 3, 1e22],
        "b": [],
        "c": ["[1,\n 2]", "5"],
        "d": [[1, 2], [3]],
        "e": [None, 1],
    }
    text = compact_json(data)
    assert json.loads(text) == data
    assert '"a": [0.30000000000000004, -1e-300, 3, 1e+22]' in text
    assert "[1, 2]" in text
    assert text.endswith("}\n")


@pytest.mark.parametrize(
    "text", ["--out 'runs [ 1,  2 ]'", "[ 1 ]", "[\t1,\n2 ]", "[\u20281,\u20282\u2028]"]
)
def test_texts_stay_what_they_are(text):
    data = {"command": text, text: [text, 1]}
    assert json.loads(compact_json(data)) == data


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(
        RunError, match="x.json: cannot be written .No such file or directory.; choose another file"
    ):
        write_kept(tmp_path / "none" / "x.json", "")
