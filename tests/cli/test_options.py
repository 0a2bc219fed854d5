"""What several commands share of their options."""

from __future__ import annotations

import os

import pytest

from auber.cli.options import make_room
from auber.errors import ConfigError


def test_room_is_made_where_a_link_leads(tmp_path):
    (tmp_path / "out.json").symlink_to(tmp_path / "disk" / "kept.json")
    make_room(tmp_path / "out.json")
    assert (tmp_path / "disk").is_dir()
    (tmp_path / "folder.json").symlink_to(tmp_path / "disk")
    with pytest.raises(
        ConfigError,
        match="folder.json: must be a file in a folder that can be written to; choose another",
    ):
        make_room(tmp_path / "folder.json")


def test_what_is_no_file_is_not_replaced_by_one(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        ConfigError,
        match=f"^{tmp_path}/pipe: must be a file or a name for a new one, found a device or a pipe; choose another --save$",
    ):
        make_room(tmp_path / "pipe", "--save")
