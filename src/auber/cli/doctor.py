"""`auber doctor`: the versions, the device and the extras of this installation."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator
from importlib import metadata
from typing import NamedTuple

import typer
from packaging.requirements import Requirement

from auber.cli import options, screen

_EXTRAS = {
    "ray": "studies and rewards on a Ray cluster",
    "onnx": "auber export --to onnx",
    "track": "--track tensorboard, --track mlflow",
}


class Finding(NamedTuple):
    """One thing that was checked: `ok`, `note`, `missing` (an extra) or `broken`."""

    section: str
    name: str
    state: str
    found: str
    advice: str = ""


def command(json: options.Json = False) -> None:
    """Print versions, device and extras, and how to install what is missing.

    Exit code 1: something that auber needs is broken.

    Example: auber doctor --json
    """
    findings = [*check_packages(), check_device()]
    broken = sum(finding.state == "broken" for finding in findings)
    if json:
        rows = [finding._asdict() for finding in findings]
        screen.print_json({"ok": not broken, "findings": rows})
    else:
        for section in dict.fromkeys(finding.section for finding in findings):
            print(section)
            for _, name, state, found, advice in (f for f in findings if f.section == section):
                indent = " " * 34
                print(screen.wrap(found, first=f"  {state:<8}{name:<23} ", later=indent))
                if advice:
                    print(f"{indent}{advice}")
        print(f"{broken} broken" if broken else "auber is ready to use.")
    if broken:
        raise typer.Exit(1)


def check_packages() -> Iterator[Finding]:
    """Check the packages that auber's metadata requires, and those of its extras."""
    yield Finding("versions", "python", "ok", platform.python_version())
    version = _version("auber")
    if version is None:
        advice = "pip install . to have its requirements checked"
        yield Finding("versions", "auber", "note", "runs from its source, not installed", advice)
        return
    yield Finding("versions", "auber", "ok", version)
    requirements = sorted(map(Requirement, metadata.requires("auber") or ()), key=str)
    for each in requirements:
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            found, state, advice = _version(each.name) or "not installed", "ok", ""
            if found == "not installed" or not each.specifier.contains(found, prereleases=True):
                state, advice = "broken", f"pip install '{each.name}{each.specifier}'"
                found = f"{found}, {each.specifier or 'any version'} is needed"
            yield Finding("versions", each.name, state, found, advice)
    for extra, purpose in _EXTRAS.items():
        names = [each.name for each in requirements if f'extra == "{extra}"' in str(each.marker)]
        versions = {name: _version(name) or "not installed" for name in names}
        found = ", ".join(f"{name} {version}" for name, version in versions.items())
        is_missing = "not installed" in versions.values()
        advice = f"pip install 'auber[{extra}]' for {purpose}" if is_missing else ""
        yield Finding("extras", extra, "missing" if is_missing else "ok", found, advice)


def check_device() -> Finding:
    """Check that torch and transformers can be imported, and what torch computes on."""
    try:
        import transformers  # noqa: F401

        from auber.config import make_config
        from auber.training.devices import resolve_hardware

        hardware = resolve_hardware(make_config())
    except Exception as error:  # anything that a broken installation raises
        found = (str(error).splitlines() or [type(error).__name__])[0]
        advice = "pip install --force-reinstall torch transformers"
        return Finding("device", "torch, transformers", "broken", found, advice)
    found = f"{hardware.name} in {hardware.precision}, {hardware.threads} CPU threads"
    if hardware.device.type != "cuda" and shutil.which("nvidia-smi"):
        advice = "install a CUDA build of torch, or check CUDA_VISIBLE_DEVICES"
        return Finding("device", "computes on", "note", f"{found}; the GPU is not used", advice)
    return Finding("device", "computes on", "ok", found)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
