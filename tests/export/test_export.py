"""What all targets of `auber export` share."""

from __future__ import annotations

import pytest

from tests.export.models import save_pruned


@pytest.mark.parametrize(
    ("inside", "given", "printed"),
    [("", "runs/mine", "runs/mine-dense"), ("runs/mine/model", "..", "../../mine-dense")],
)
def test_the_default_place_is_beside_the_run(
    run_auber, tmp_path, monkeypatch, inside, given, printed
):
    save_pruned(tmp_path / "runs" / "mine")
    (tmp_path / "runs" / "mine" / "model").mkdir()
    monkeypatch.chdir(tmp_path / inside)
    code, out, _ = run_auber("export", given, "--to", "dense", "--quiet")
    assert code == 0
    assert out.startswith(f"dense: {printed} (")
    assert (tmp_path / "runs" / "mine-dense" / "config.json").is_file()


def test_mistakes_are_one_line(run_auber, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for options, message in (
        (
            ("onx",),
            "Unknown export target 'onx'. Did you mean 'onnx'? Known: dense, hub, int8, onnx",
        ),
        (("dense",), "none: a model folder is needed, found nothing"),
        (
            ("dense", "--push", "a"),
            "--push goes with --to hub, found --to dense; choose one of them",
        ),
    ):
        code, _, err = run_auber("export", "none", "--quiet", "--to", *options)
        assert (code, err) == (2, f"auber: {message}\n")
    assert not list(tmp_path.iterdir())
