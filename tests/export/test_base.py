from __future__ import annotations

from types import SimpleNamespace

import pytest

from auber.errors import CheckpointError
from auber.export.base import write_checked
from auber.export.source import Source
from auber.system.progress import Progress
from tests.tiny_models import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def source():
    return Source("mine", tiny_model("bert", pad_token_id=0), tiny_tokenizer())


def export(source, place, shift=0.0):
    """A target that writes one file and computes the model's logits, or others."""

    def write(source, folder):
        (folder / "weights").write_text("1234")

    def compute(source, folder):
        assert (folder / "weights").read_text() == "1234"
        return lambda batch: SimpleNamespace(logits=source.model(**batch).logits + shift)

    return write_checked("nothing", source, place, write, compute, Progress())


def test_what_is_right_is_put_in_its_place(source, tmp_path):
    (tmp_path / "new" / "here").mkdir(parents=True)  # an empty folder may be there
    exported = export(source, tmp_path / "new" / "here", shift=0.0009)
    assert exported.files == {"weights": 4}
    assert exported.largest_difference == pytest.approx(0.0009, rel=1e-3)
    assert [path.name for path in tmp_path.rglob("*")] == ["new", "here", "weights"]


@pytest.mark.parametrize(("shift", "found"), [(0.0011, "0.0011"), (float("nan"), "nan")])
def test_what_computes_something_else_is_not_kept(source, tmp_path, shift, found):
    message = f"here: the logits must be the model's own to 0.001, found a difference of {found}; nothing was kept"
    with pytest.raises(CheckpointError, match=message):
        export(source, tmp_path / "here", shift)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_nothing_is_overwritten(source, tmp_path, kind):
    place = tmp_path / "here"
    if kind == "file":
        place.write_text("mine")
    else:
        place.mkdir()
        (place / "something").touch()
    with pytest.raises(
        CheckpointError, match="here: must be a new or an empty folder; choose another --out$"
    ):
        export(source, place)


def test_a_place_that_cannot_be_made_is_one_line(source, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="there: cannot be written .*; choose another --out$"):
        export(source, tmp_path / "file" / "there")
