"""Tokens and the environment are neither written nor printed."""

from __future__ import annotations

import ast
import logging
from pathlib import Path

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
SOURCE = Path(auber.__file__).parent


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


def nodes():
    """Yield the file and each node of the package's code."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield path, node


def test_no_module_reads_the_whole_environment():
    """Variables are read one by one; a copy of all of them could end up anywhere."""
    for path, node in nodes():
        for child in ast.iter_child_nodes(node):
            if not (isinstance(child, ast.Attribute) and child.attr == "environ"):
                continue
            is_lookup = isinstance(node, ast.Subscript) or (
                isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn))
            )
            if isinstance(node, ast.Attribute):
                is_lookup = node.attr in ("get", "setdefault", "pop", "update")
            assert is_lookup, f"{path.name}, line {child.lineno}: hands on os.environ"


def test_no_module_asks_for_a_token():
    names = ("token", "use_auth_token", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "get_token")
    for path, node in nodes():
        found = None
        if isinstance(node, ast.keyword) and node.arg in names[:2]:
            found = node.arg
        elif isinstance(node, ast.Constant) and node.value in names[2:4]:
            found = node.value
        elif isinstance(node, ast.alias) and node.name == names[4]:
            found = node.name
        # doctor reports whether there is one; tested above
        assert found is None or path.name == "doctor.py", f"{path.name}: {found}"
