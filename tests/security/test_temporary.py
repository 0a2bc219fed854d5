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
from auber.system.progress import Progress
from tests.security.models import save_whole

SOURCE = Path(auber.__file__).parent
PRIVATE = {"mkdtemp", "mkstemp", "TemporaryDirectory", "NamedTemporaryFile", "TemporaryFile"}


@pytest.fixture
def _open_umask():
    """Make files readable for all, unless they are made private."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_umask")
def test_models_and_exports_are_written_in_private_folders(tmp_path, monkeypatch):
    seen = []
    save_file = safetensors.torch.save_file

    def spy(tensors, path, **options):
        place = Path(path).parents[1]
        seen.append((stat.S_IMODE(place.stat().st_mode), place.is_relative_to(tmp_path)))
        save_file(tensors, path, **options)

    monkeypatch.setattr(safetensors.torch, "save_file", spy)
    save_whole(tmp_path / "model")
    export_model(tmp_path / "model", "dense", out=tmp_path / "dense", progress=Progress())
    assert seen == [(0o700, True)] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dense", "model"]


def test_only_private_functions_of_tempfile_are_used():
    """No names that can be guessed, and no shared folders."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path.name}, line {getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "tempfile":
                assert node.attr in PRIVATE, where
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not node.value.startswith(("/tmp", "/var/tmp")), where
