"""Temporary files are private to their user until they are moved to their place."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import safetensors.torch

from auber.export import export_model
from auber.system.progress import Progress
from tests.security.models import save_whole


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
