"""Tokens and the environment are neither written nor printed."""

from __future__ import annotations

import ast
import json
import logging
from pathlib import Path

import pytest

import auber
from auber.errors import CheckpointError
from auber.export import export_model
from auber.export.hub import push
from auber.report.results_file import save_results
from auber.run import provenance
from auber.system.progress import Progress
from tests.security.models import save_whole
from tests.small import cpu, small_config, small_task

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


@pytest.mark.usefixtures("_secrets")
def test_provenance_holds_no_environment(monkeypatch):
    monkeypatch.delenv("AUBER_COMMIT", raising=False)
    described = provenance.describe(cpu())
    assert set(described) == {"versions", "commit", "device", "precision", "processes", "threads"}
    assert not found_in(json.dumps(described))


@pytest.mark.usefixtures("_secrets")
def test_a_failed_push_does_not_show_the_token(tmp_path):
    class Hub:
        def create_repo(self, name, **options):
            raise RuntimeError(f"401: Authorization: Bearer {TOKEN}\nheaders: {TOKEN}")

    save_pruned = small_pruned(tmp_path)
    with pytest.raises(
        CheckpointError,
        match=r"cannot be pushed \(401: Authorization: Bearer hf_\.\.\. headers: hf_\.\.\.\)",
    ) as caught:
        push(save_pruned, "me/mine", api=Hub())
    assert not found_in(str(caught.value))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def small_pruned(tmp_path):
    from auber.models import checkpoint
    from auber.models.surgery import remove_heads
    from tests.small import small_start

    model, tokenizer = small_start()
    remove_heads(model, {0: [1]})
    checkpoint.save(model, tokenizer, tmp_path / "pruned")
    return export_model(tmp_path / "pruned", "hub", out=tmp_path / "hub", progress=Progress())


def test_no_module_reads_the_whole_environment():
    """Variables are read one by one; a copy of all of them could end up anywhere."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.Attribute) and child.attr == "environ":
                    is_lookup = isinstance(node, (ast.Attribute, ast.Subscript)) or (
                        isinstance(node, ast.Compare)
                        and isinstance(node.ops[0], (ast.In, ast.NotIn))
                    )
                    assert is_lookup, f"{path.name}, line {child.lineno}: hands on os.environ"
                    if isinstance(node, ast.Attribute):
                        allowed = ("get", "setdefault", "pop", "update")
                        assert node.attr in allowed, (
                            f"{path.name}, line {child.lineno}: os.environ.{node.attr}"
                        )


def test_no_module_asks_for_a_token():
    allowed = {"doctor.py"}  # reports whether there is one; tested above
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found = None
            if isinstance(node, ast.keyword) and node.arg in ("token", "use_auth_token"):
                found = node.arg
            elif isinstance(node, ast.Constant) and node.value in (
                "HF_TOKEN",
                "HUGGING_FACE_HUB_TOKEN",
            ):
                found = node.value
            elif isinstance(node, ast.alias) and node.name == "get_token":
                found = node.name
            assert found is None or path.name in allowed, f"{path.name}: {found}"
