"""The built distributions are reproducible, complete and run where they are installed."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.short_demo import SHORT

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Run the installed program with a short demo.
SHORT_DEMO = f"""
import runpy, sys
from auber import demo
demo.SETTINGS |= {SHORT}
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@dataclass(frozen=True)
class Built:
    """A wheel and a source distribution."""

    wheel: Path
    sdist: Path


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    """Return the output of a program that does not see this checkout."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def build(source: Path, out: Path) -> Built:
    """Build the wheel and source distribution of a tree like `make dist`."""
    words = ["-m", "build", "--no-isolation", "--sdist", "--wheel", "--outdir"]
    run(sys.executable, *words, out, source, folder=out.parent, SOURCE_DATE_EPOCH="1700000000")
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Built(wheel, sdist)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(ROOT, tmp_path_factory.mktemp("built") / "dist")


def test_builds_are_reproducible(built: Built, tmp_path: Path):
    again = build(ROOT, tmp_path / "dist")
    assert (digest(again.wheel), digest(again.sdist)) == (digest(built.wheel), digest(built.sdist))


def test_the_wheel_contains_exactly_the_package(built: Built):
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in (source / "auber").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"auber-{PROJECT['version']}.dist-info/METADATA").decode()
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert "auber/py.typed" in names
    assert f"auber-{PROJECT['version']}.dist-info/licenses/LICENSE" in names
    assert set(re.findall(r"^Provides-Extra: (.+)$", metadata, flags=re.MULTILINE)) == set(
        PROJECT["optional-dependencies"]
    )


def test_the_source_distribution_is_complete(built: Built):
    with tarfile.open(built.sdist) as archive:
        names = {Path(*Path(name).parts[1:]).as_posix() for name in archive.getnames()}
    kept = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert {name for name in kept if not name.startswith(".")} <= names, (
        "all but files that only the repository needs"
    )
    assert [name for name in names if name.startswith(("site", "runs", "."))] == [".gitignore"]


def test_the_wheel_runs_in_an_empty_environment(built: Built, tmp_path: Path):
    """Install the tested versions with pip and run them outside this checkout."""
    venv.create(tmp_path / "empty", with_pip=True)
    programs = tmp_path / "empty" / "bin"
    # Most modules of torch are never imported.
    install = [programs / "python", "-m", "pip", "install", "--quiet", "--no-compile"]
    install += ["--constraint", ROOT / "constraints.txt"]
    # torch first, as in the Makefile
    run(*install, "torch", folder=tmp_path)
    run(*install, built.wheel, folder=tmp_path)
    place = tmp_path / "elsewhere"
    place.mkdir()
    auber = programs / "auber"
    offline = {"HF_HUB_OFFLINE": "1", "HOME": str(tmp_path), "COLUMNS": "160"}
    assert run(auber, "--version", folder=place) == f"auber {PROJECT['version']}\n"
    where = run(programs / "python", "-c", "import auber; print(auber.__file__)", folder=place)
    assert Path(where).is_relative_to(tmp_path / "empty")
    run(auber, "doctor", folder=place, **offline)
    demo = [programs / "python", "-c", SHORT_DEMO, auber, *["demo", "--out", "demo", "--quiet"]]
    table = run(*demo, folder=place, **offline)
    assert "default (fisher)" in table
    assert (place / "demo" / "default" / "model" / "config.json").is_file()
