from __future__ import annotations

import pytest

from auber.errors import RunError
from auber.run.files import read_json


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("run.json", "put a copy of it back"),
        ("result.json", "put a copy of it back; the model in {}/model can be used without it"),
        ("first.json", "put it back, or delete it"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, remedy):
    """And nobody is told to delete what cannot be made again."""
    (tmp_path / name).write_text("{")
    if name == "result.json":
        (tmp_path / "model").mkdir()
    with pytest.raises(
        RunError, match=rf"{name}: cannot be read .*; it is damaged: {remedy.format(tmp_path)}$"
    ):
        read_json(tmp_path / name)
