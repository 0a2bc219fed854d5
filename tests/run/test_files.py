from __future__ import annotations

import pytest

from auber.errors import RunError
from auber.run.files import read_json, read_result


def test_a_foreign_folder_is_not_a_run(tmp_path):
    with pytest.raises(RunError, match=r"not a run's folder \(it has no run.json\)"):
        read_result(tmp_path)


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
