from __future__ import annotations

import socket

import pytest
from huggingface_hub import constants

from auber.errors import CheckpointError
from auber.models import checkpoint
from auber.system import hub


@pytest.fixture(autouse=True)
def _online(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "_answers", {})
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def closed_port():
    """A port that nobody listens at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.mark.parametrize(
    "place", ["http://127.0.0.1:{}", "https://127.0.0.1:{}/mirror", "https://nowhere.invalid"]
)
def test_a_hub_out_of_reach_is_not_waited_for(monkeypatch, place):
    monkeypatch.setattr(constants, "ENDPOINT", place.format(closed_port()))
    with hub.reading_hub("nobody/nothing"):
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE


def test_its_cache_is_what_is_left(monkeypatch):
    """The client itself would ask five times, with seconds between, of which the log tells."""
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{closed_port()}")
    with pytest.raises(
        CheckpointError,
        match=r"^'nobody/nothing' is no folder and cannot be read from the hub \(We couldn't connect",
    ):
        checkpoint.load_start("nobody/nothing", num_labels=2)
    assert not constants.HF_HUB_OFFLINE


def test_a_hub_that_answers_is_asked(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        with hub.reading_hub("nobody/nothing"):
            assert not constants.HF_HUB_OFFLINE


@pytest.mark.parametrize("name", ["http_proxy", "all_proxy"])
def test_a_proxy_may_reach_it(monkeypatch, name):
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{closed_port()}")
    with hub.reading_hub("nobody/nothing"):
        assert not constants.HF_HUB_OFFLINE


def test_what_is_reached_without_a_proxy_is_no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "localhost")
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{closed_port()}")
    with hub.reading_hub("nobody/nothing"):
        assert constants.HF_HUB_OFFLINE


def test_an_answer_holds_for_a_while(monkeypatch):
    now, asked = [0.0], []
    monkeypatch.setattr(hub.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        hub, "_answers_at", lambda endpoint: asked.append(endpoint) or len(asked) > 1
    )
    for moment, offline in ((0.0, True), (59.0, True), (61.0, False), (100.0, False)):
        now[0] = moment
        with hub.reading_hub("nobody/nothing"):
            assert constants.HF_HUB_OFFLINE is offline
    assert len(asked) == 2


def test_who_is_offline_by_choice_stays_so(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub, "_answers_at", lambda endpoint: pytest.fail("nobody is asked"))
    with hub.reading_hub("nobody/nothing"):
        assert constants.HF_HUB_OFFLINE
    assert constants.HF_HUB_OFFLINE
