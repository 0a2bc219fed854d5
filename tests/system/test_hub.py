from __future__ import annotations

import socket
import time

import pytest
from huggingface_hub import constants, hf_hub_download
from huggingface_hub.errors import LocalEntryNotFoundError

from auber.system import hub


@pytest.fixture(autouse=True)
def _online(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    hub._can_connect.cache_clear()
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def closed_port():
    """Return a port without a listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.mark.parametrize(
    ("place", "proxy", "is_offline"),
    [
        ("http://127.0.0.1:{}", {}, True),
        ("https://127.0.0.1:{}/mirror", {}, True),
        ("https://nowhere.invalid", {}, True),
        ("http://127.0.0.1:{}", {"no_proxy": "localhost"}, True),
        ("http://127.0.0.1:{}", {"http_proxy": "http://127.0.0.1:9"}, False),
        ("http://127.0.0.1:{}", {"all_proxy": "http://127.0.0.1:9"}, False),
    ],
)
def test_offline_mode_if_the_hub_cannot_be_reached(monkeypatch, place, proxy, is_offline):
    monkeypatch.setattr(constants, "ENDPOINT", place.format(closed_port()))
    for name, value in proxy.items():
        monkeypatch.setenv(name, value)
    with hub.reading_hub("nobody/nothing"):
        assert constants.HF_HUB_OFFLINE is is_offline
    assert not constants.HF_HUB_OFFLINE


def test_a_missing_model_is_reported_at_once(monkeypatch):
    """The client alone would retry five times, with seconds in between."""
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{closed_port()}")
    began = time.monotonic()
    with pytest.raises(LocalEntryNotFoundError), hub.reading_hub("nobody/nothing"):
        hf_hub_download("nobody/nothing", "config.json")
    assert time.monotonic() - began < 5


def test_offline_mode_of_the_user_stays(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub, "_can_connect", lambda *_: pytest.fail("no connection"))
    with hub.reading_hub("nobody/nothing"):
        assert constants.HF_HUB_OFFLINE
    assert constants.HF_HUB_OFFLINE
