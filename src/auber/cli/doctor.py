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

_EXTRAS = ("ray", "onnx", "track")


class Finding(NamedTuple):
    """One thing that was checked; its state is ok, note, missing (an extra) or broken."""

    name: str
    state: str
    found: str
    advice: str = ""


def command(json: options.Json = False) -> None:
    """Check the installation and print how to fix it.

    Exit code 1: something that auber needs is broken.

    Example: auber doctor --json
    """
    python = Finding("python", "ok", platform.python_version())
    findings = [python, *check_packages(), check_device()]
    broken = sum(finding.state == "broken" for finding in findings)
    if json:
        rows = [finding._asdict() for finding in findings]
        screen.print_json({"ok": not broken, "findings": rows})
    else:
        for name, state, found, advice in findings:
            print(f"{state:<9}{name:<20} {found}{advice and f'; {advice}'}")
        print(f"{broken} broken" if broken else "auber is ready to use.")
    if broken:
        raise typer.Exit(1)


def check_packages() -> Iterator[Finding]:
    """Check the packages that auber requires, and those of its extras for users."""
    try:
        yield Finding("auber", "ok", metadata.version("auber"))
    except metadata.PackageNotFoundError:
        yield Finding("auber", "note", "not installed, runs from its source", "pip install .")
        return
    for each in map(Requirement, metadata.requires("auber") or ()):
        is_wanted = each.marker.evaluate if each.marker else lambda _: True
        extra = next((extra for extra in ("", *_EXTRAS) if is_wanted({"extra": extra})), None)
        if extra is None:  # for developers
            continue
        try:
            found = metadata.version(each.name)
            is_right = each.specifier.contains(found, prereleases=True)
        except metadata.PackageNotFoundError:
            found, is_right = "not installed", False
        if is_right:
            yield Finding(each.name, "ok", found)
        else:
            package = f"auber[{extra}]" if extra else f"{each.name}{each.specifier}"
            needed = f"{found}, {each.specifier or 'any version'} is needed"
            state = "missing" if extra else "broken"
            yield Finding(each.name, state, needed, f"pip install '{package}'")


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
        return Finding("torch, transformers", "broken", found, advice)
    found = f"{hardware.name} in {hardware.precision}, {hardware.threads} CPU threads"
    if hardware.device.type != "cuda" and shutil.which("nvidia-smi"):
        advice = "install a CUDA build of torch, or check CUDA_VISIBLE_DEVICES"
        return Finding("computes on", "note", f"{found}; the GPU is not used", advice)
    return Finding("computes on", "ok", found)
