"""What this installation can do here: packages, device, optional parts, hub, disk, and settings that surprise people.

`examine` returns findings and never raises for what it finds. `broken` is what keeps auber from working; `missing` is an
optional part; `note` is worth knowing. What auber needs is read from its own metadata, so it is declared in one place. A
token is looked for and never read out; the network is touched only when asked for, and waited for some seconds at most.
"""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import subprocess  # nosec B404 # for nvidia-smi alone
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

_IMPORTED = (
    "torch",
    "transformers",
    "tokenizers",
    "accelerate",
    "safetensors",
)  # tried, not only looked up
_EXTRAS = {
    "ray": "studies and rewards on a Ray cluster",
    "onnx": "auber export --to onnx",
    "report": "the figures of auber report as PDF",
    "track": "--track tensorboard, --track mlflow",
}
_TELEMETRY = {
    "onnxruntime": ("ORT_DISABLE_TELEMETRY", "1"),
    "mlflow": ("MLFLOW_DISABLE_TELEMETRY", "true"),
    "ray": ("RAY_USAGE_STATS_ENABLED", "0"),
}
_LITTLE_SPACE = 5e9  # bytes: a base-size model, the weights of two stages and a result
_PATIENCE = 5.0  # seconds for whatever answers from outside


class State(StrEnum):
    """What a finding means."""

    OK = "ok"
    NOTE = "note"
    MISSING = "missing"  # an optional part
    BROKEN = "broken"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    section: str
    name: str
    state: State
    found: str
    advice: str = ""


def examine(*, online: bool = False) -> list[Finding]:
    """Look at everything; `online` asks the hub for an answer too."""
    return [
        *_packages(),
        *_imports(),
        *_device(),
        *_optional_parts(),
        *_hub(online=online),
        *_disk(),
        *_environment(),
    ]


def _packages() -> Iterator[Finding]:
    yield Finding("versions", "python", State.OK, platform.python_version())
    requirements = _requirements()
    if requirements is None:
        yield Finding(
            "versions",
            "auber",
            State.NOTE,
            "run from its source tree",
            "pip install . lets its needs be checked",
        )
        return
    yield Finding("versions", "auber", State.OK, metadata.version("auber"))
    for requirement in sorted(requirements, key=lambda requirement: requirement.name):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield _check_package(requirement)


def _requirements() -> list[Requirement] | None:
    """What auber declares; None where it is not installed."""
    try:
        return [Requirement(line) for line in metadata.requires("auber") or ()]
    except metadata.PackageNotFoundError:
        return None


def _check_package(requirement: Requirement) -> Finding:
    version = _version(requirement.name)
    advice = f"pip install '{requirement.name}{requirement.specifier}'"
    if version is None:
        return Finding("versions", requirement.name, State.BROKEN, "not installed", advice)
    if not requirement.specifier.contains(version, prereleases=True):
        return Finding(
            "versions",
            requirement.name,
            State.BROKEN,
            f"{version}, {requirement.specifier} is needed",
            advice,
        )
    return Finding("versions", requirement.name, State.OK, version)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _imports() -> Iterator[Finding]:
    """Packages that are there and cannot be imported: builds that do not fit each other."""
    for name in _IMPORTED:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever a broken build raises
            if _version(name) is not None:
                advice = f"pip install --force-reinstall {name}"
                yield Finding("versions", f"import {name}", State.BROKEN, _line(error), advice)


def _device() -> Iterator[Finding]:
    try:
        import torch

        from auber.config import make_config
        from auber.training.devices import resolve_hardware
    except Exception:  # said above
        return
    hardware = resolve_hardware(make_config())
    kind = hardware.device.type
    yield Finding("device", "computes on", State.OK, f"{hardware.name} in {hardware.precision}")
    cores = os.cpu_count() or 1
    yield Finding(
        "device",
        "CPU threads",
        State.NOTE if hardware.threads > cores else State.OK,
        f"{hardware.threads} of {cores} cores",
        "--set threads=1 pins them: another number changes the last bits of a CPU result",
    )
    driver = _gpu_driver()
    if kind == "cuda":
        free, total = torch.cuda.mem_get_info(hardware.device)
        yield Finding(
            "device", "GPU memory", State.OK, f"{free / 1e9:.1f} of {total / 1e9:.1f} GB free"
        )
        yield Finding(
            "device",
            "GPU driver",
            State.OK,
            f"{driver or 'unknown'}; torch is built for CUDA {torch.version.cuda}",
        )
        try:
            torch.ones(8, 8, device=hardware.device, dtype=hardware.dtype).mm(
                torch.ones(8, 8, device=hardware.device, dtype=hardware.dtype)
            ).sum().item()
        except RuntimeError as error:
            advice = (
                "install a torch that is built for this GPU and driver, or use --set device=cpu"
            )
            yield Finding("device", "GPU arithmetic", State.BROKEN, _line(error), advice)
    elif driver is not None:
        advice = "install a CUDA build of torch, or look at CUDA_VISIBLE_DEVICES"
        yield Finding(
            "device", "GPU driver", State.NOTE, f"{driver} is there, but torch sees no GPU", advice
        )


def _gpu_driver() -> str | None:
    """The version of NVIDIA's driver; None where there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_PATIENCE
        )  # nosec B603 # fixed words
    except (OSError, subprocess.SubprocessError):
        return None
    words = done.stdout.split()
    return words[0] if words else None


def _optional_parts() -> Iterator[Finding]:
    requirements = _requirements() or []
    for extra, purpose in _EXTRAS.items():
        named = [
            requirement.name
            for requirement in requirements
            if requirement.marker is not None
            and requirement.marker.evaluate({"extra": extra})
            and not requirement.marker.evaluate({"extra": ""})
        ]
        versions = {name: _version(name) for name in named}
        absent = [name for name, version in versions.items() if version is None]
        if not named:
            continue
        if absent:
            found = f"{', '.join(absent)} not installed"
            yield Finding(
                "optional",
                extra,
                State.MISSING,
                found,
                f"pip install 'auber[{extra}]' for {purpose}",
            )
        else:
            yield Finding(
                "optional", extra, State.OK, ", ".join(f"{name} {versions[name]}" for name in named)
            )


def _hub(*, online: bool) -> Iterator[Finding]:
    try:
        from huggingface_hub import constants, get_token
    except ImportError:
        return
    has_token = get_token() is not None
    yield Finding(
        "hub",
        "token",
        State.OK,
        "there" if has_token else "none",
        "" if has_token else "'hf auth login' for private models and for --push",
    )
    if constants.HF_HUB_OFFLINE:
        yield Finding(
            "hub",
            "HF_HUB_OFFLINE",
            State.NOTE,
            "set: nothing is downloaded",
            "unset it to reach the hub",
        )
    if online:
        problem = _reach(constants.ENDPOINT)
        if problem is None:
            yield Finding("hub", "reachable", State.OK, constants.ENDPOINT)
        else:
            advice = "models and tasks can be given as folders: --model DIR --data DIR"
            yield Finding(
                "hub", "reachable", State.NOTE, f"{constants.ENDPOINT}: {problem}", advice
            )


def _reach(address: str, patience: float = _PATIENCE) -> str | None:
    """Why an address does not answer; None if it does. A name that is not resolved can hang, so it is asked aside."""
    if not address.startswith(("http://", "https://")):
        return "must be an http or https address; look at HF_ENDPOINT"
    answer: list[str | None] = []

    def ask() -> None:
        try:
            question = urllib.request.Request(address, method="HEAD")
            with urllib.request.urlopen(question, timeout=patience):  # nosec B310 # the scheme was looked at
                answer.append(None)
        except urllib.error.HTTPError:
            answer.append(None)  # it is there, whatever it thinks of the question
        except (OSError, ValueError) as error:
            answer.append(_line(getattr(error, "reason", error)))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(patience)
    return answer[0] if answer else f"no answer in {patience:g} s"


def _disk() -> Iterator[Finding]:
    try:
        from huggingface_hub.constants import HF_HUB_CACHE
    except ImportError:
        return
    for name, folder in (("here", Path.cwd()), ("cache", Path(HF_HUB_CACHE))):
        there = next((place for place in (folder, *folder.parents) if place.exists()), None)
        if there is None:
            continue
        free = shutil.disk_usage(there).free
        where = str(folder)
        if not os.access(there, os.W_OK):
            advice = (
                "set HF_HOME to a folder you may write to"
                if name == "cache"
                else "write runs elsewhere with --out"
            )
            state = State.BROKEN if name == "cache" else State.NOTE
            yield Finding("disk", name, state, f"{where} cannot be written", advice)
        elif free < _LITTLE_SPACE:
            yield Finding(
                "disk",
                name,
                State.NOTE,
                f"{free / 1e9:.1f} GB free at {where}",
                "a run of a base-size model needs some",
            )
        else:
            yield Finding("disk", name, State.OK, f"{free / 1e9:.0f} GB free at {where}")


def _environment() -> Iterator[Finding]:
    """Variables that surprise people."""
    threads = os.environ.get("OMP_NUM_THREADS")
    if threads is not None:
        advice = "torch takes no more unless --set threads=N says so; runs that are to repeat to the bit need the same number"
        yield Finding("environment", "OMP_NUM_THREADS", State.NOTE, threads, advice)
    if int(os.environ.get("WORLD_SIZE", "1") or 1) > 1:
        found = f"{os.environ['WORLD_SIZE']} processes"
        yield Finding(
            "environment",
            "WORLD_SIZE",
            State.NOTE,
            found,
            "this is one of a torchrun group: only its first writes",
        )
    for package, (variable, value) in _TELEMETRY.items():
        if _version(package) is not None and variable not in os.environ:
            found = f"{package} may report its use to its makers"
            yield Finding(
                "environment",
                variable,
                State.NOTE,
                found,
                f"export {variable}={value} switches that off",
            )


def _line(error: object) -> str:
    """The first line of an error."""
    text = str(error).splitlines()
    return text[0] if text else type(error).__name__
