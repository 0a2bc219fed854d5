from __future__ import annotations

import pytest

import auber
from tests.small import SETTINGS, small_start

SMALL = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A folder with a model without classifier, train.csv and dev.csv."""
    folder = tmp_path_factory.mktemp("files")
    model, tokenizer = small_start(bare=True)
    auber.save(model, tokenizer, folder / "model")
    words = [
        ("key", "is", "yes"),
        ("key", "are", "no"),
        ("keys", "are", "yes"),
        ("keys", "is", "no"),
    ]
    rows = [f"the {noun} {verb} red,{label}" for noun, verb, label in words]
    for name, times in (("train", 12), ("dev", 2)):
        (folder / f"{name}.csv").write_text("sentence,good\n" + "\n".join(rows * times) + "\n")
    return folder


@pytest.fixture
def dev_rows(files):
    return ["--dev", files / "dev.csv", "--text", "sentence", "--label", "good"]


@pytest.fixture
def own_rows(files, dev_rows):
    return ["--train", files / "train.csv", *dev_rows]
