"""Temporary files are private to their user until they are moved to their place."""

from __future__ import annotations

import ast
import os
import stat
from pathlib import Path

import pytest
import safetensors.torch

import auber
from auber.export import export_model
from auber.models import checkpoint
from auber.system.progress import Progress
from tests.security.models import save_whole
from tests.small import small_start

SOURCE = Path(auber.__file__).parent
PRIVATE = {
    "mkdtemp",
    "mkstemp",
    "TemporaryDirectory",
    "NamedTemporaryFile",
    "TemporaryFile",
    "gettempdir",
}


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


@pytest.fixture
def _open_umask():
    """Make files readable for all, unless they are made private."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_umask")
def test_a_model_is_written_in_a_private_folder(tmp_path, monkeypatch):
    seen = []
    save_file = safetensors.torch.save_file

    def spy(tensors, path, **options):
        seen.append(mode(Path(path).parents[1]))
        save_file(tensors, path, **options)

    monkeypatch.setattr(safetensors.torch, "save_file", spy)
    save_whole(tmp_path / "model")
    assert seen == [0o700]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.usefixtures("_open_umask")
def test_an_export_is_written_in_a_private_folder(tmp_path, monkeypatch):
    checkpoint.save(*small_start(), tmp_path / "model")
    seen = []
    save = checkpoint.save

    def spy(model, tokenizer, folder):
        seen.append(mode(Path(folder).parent))
        save(model, tokenizer, folder)

    monkeypatch.setattr(checkpoint, "save", spy)
    export_model(tmp_path / "model", "dense", out=tmp_path / "dense", progress=Progress())
    assert seen == [0o700]


def test_only_private_functions_of_tempfile_are_used():
    """No names that can be guessed, and no shared folders."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "tempfile"
            ):
                assert node.attr in PRIVATE, (
                    f"{path.name}, line {node.lineno}: tempfile.{node.attr}"
                )
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not node.value.startswith(("/tmp", "/var/tmp")), (
                    f"{path.name}, line {node.lineno}"
                )
