"""Tokens and the environment are neither written nor printed."""

from __future__ import annotations

import logging

import pytest

import auber
from auber.export import export_model
from auber.report.results_file import save_results
from auber.run import provenance
from auber.system.progress import Progress
from tests.security.models import save_whole
from tests.small import small_config, small_task

TOKEN = "hf_ThisIsTheMarkerOfAToken0123456789"
SECRET = "marker-of-some-other-secret"


@pytest.fixture
def _secrets(monkeypatch):
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.setenv(name, TOKEN)
    monkeypatch.setenv("DATABASE_PASSWORD", SECRET)


def found_in(text: str) -> list[str]:
    return [secret for secret in (TOKEN, SECRET) if secret in text]


@pytest.mark.usefixtures("_secrets")
def test_a_run_an_export_and_a_report(tmp_path, capsys, caplog, run_auber):
    caplog.set_level(logging.DEBUG)
    config = small_config(agent__episodes=2, agent__stop_value=-1000.0)  # removes heads
    folder = save_whole(tmp_path / "start")
    with provenance.recording(provenance.typed_command()):
        auber.prune(folder, task=small_task(), config=config, out=tmp_path / "run")
    export_model(tmp_path / "run", "hub", out=tmp_path / "hub", progress=Progress())
    save_results(tmp_path / "run", tmp_path / "kept.json")
    code, out, err = run_auber("report", tmp_path / "run")
    assert code == 0, err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"result.json", "run.json", "events.jsonl", "README.md", "kept.json"} <= {
        path.name for path in files
    }
    for path in files:
        data = path.read_bytes()
        assert TOKEN.encode() not in data, path
        assert SECRET.encode() not in data, path
    _, examined, complaints = run_auber("doctor")  # reports whether there is a token
    assert "token" in examined
    captured = capsys.readouterr()
    assert not found_in(
        examined + complaints + out + err + captured.out + captured.err + caplog.text
    )
