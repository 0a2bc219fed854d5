"""The stand-in for the hub answers the real client, and refuses what the hub or a reader would not have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError

from tests.docs.hub_server import TOKEN, HubServer, serve_hub


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with serve_hub() as running:
        yield running


@pytest.fixture
def folder(tmp_path):
    for name in ("README.md", "config.json", "model.safetensors", "modeling_auber.py"):
        (tmp_path / name).write_text(f"this is {name}\n")
    return tmp_path


def test_a_folder_arrives(server, folder):
    api = HfApi(server.address, token=TOKEN)
    assert api.create_repo("mine", private=True).repo_id == "me/mine"
    done = api.upload_folder(repo_id="me/mine", folder_path=folder, commit_message="first")
    assert str(done.repo_url) == f"{server.address}/me/mine"
    assert server.models == {"me/mine": {path.name: path.read_bytes() for path in folder.iterdir()}}


def test_another_token(server):
    with pytest.raises(HfHubHTTPError, match="401"):
        HfApi(server.address, token="hf_another").create_repo("mine", private=True)
    assert server.models == {}


def test_a_public_model(server):
    with pytest.raises(HfHubHTTPError, match="a new model must be private"):
        HfApi(server.address, token=TOKEN).create_repo("mine")


def test_a_folder_that_does_not_load(server, folder):
    api = HfApi(server.address, token=TOKEN)
    api.create_repo("mine", private=True)
    (folder / "modeling_auber.py").unlink()
    with pytest.raises(
        HfHubHTTPError, match="found \\['README.md', 'config.json', 'model.safetensors'\\]"
    ):
        api.upload_folder(repo_id="me/mine", folder_path=folder, commit_message="first")
    assert server.models == {"me/mine": {}}
