"""`auber doctor`: versions, device, optional parts and the hub, and how to fix what is wrong."""

from __future__ import annotations

import platform
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib import metadata
from typing import Annotated, NamedTuple

import typer
from packaging.requirements import Requirement

from auber.cli import options, screen

_EXTRAS = {
    "ray": "studies and rewards on a Ray cluster",
    "onnx": "auber export --to onnx",
    "track": "--track tensorboard, --track mlflow",
}


class Finding(NamedTuple):
    """One thing that was checked: `ok`, `note`, `missing` (an optional part) or `broken`."""

    section: str
    name: str
    state: str
    found: str
    advice: str = ""


def command(
    online: Annotated[
        bool, typer.Option("--online", help="Also contact the hub, for about five seconds.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Check versions, device, optional parts and the hub, and print how to fix what is wrong.

    Exit code 1: something that auber needs is broken. A token is never printed.

    Example: auber doctor --online
    """
    findings = [*check_packages(), *check_device(), *check_hub(online=online)]
    broken = sum(finding.state == "broken" for finding in findings)
    if json:
        rows = [finding._asdict() for finding in findings]
        screen.print_json({"ok": not broken, "findings": rows})
    else:
        for section in dict.fromkeys(finding.section for finding in findings):
            print(section)
            for _, name, state, found, advice in (f for f in findings if f.section == section):
                print(f"  {state:<8}{name:<24} {found}")
                if advice:
                    print(f"          {advice}")
        print(f"{broken} broken" if broken else "Nothing that auber needs is broken.")
    if broken:
        raise typer.Exit(1)


def check_packages() -> Iterator[Finding]:
    """Check the packages that auber's metadata requires, and those of its extras."""
    yield Finding("versions", "python", "ok", platform.python_version())
    try:
        requirements = sorted(map(Requirement, metadata.requires("auber") or ()), key=str)
    except metadata.PackageNotFoundError:
        advice = "pip install . to have its requirements checked"
        yield Finding("versions", "auber", "note", "runs from its source, not installed", advice)
        return
    yield Finding("versions", "auber", "ok", metadata.version("auber"))
    for each in requirements:
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            version, state = _version(each.name), "ok"
            found, advice = version or "not installed", ""
            if version is None or not each.specifier.contains(version, prereleases=True):
                state, advice = "broken", f"pip install '{each.name}{each.specifier}'"
                found = f"{found}, {each.specifier or 'any version'} is needed"
            yield Finding("versions", each.name, state, found, advice)
    for extra, purpose in _EXTRAS.items():
        names = [each.name for each in requirements if f'extra == "{extra}"' in str(each.marker)]
        versions = {name: _version(name) or "not installed" for name in names}
        found = ", ".join(f"{name} {version}" for name, version in versions.items())
        if "not installed" in versions.values():
            advice = f"pip install 'auber[{extra}]' for {purpose}"
            yield Finding("optional", extra, "missing", found, advice)
        elif versions:
            yield Finding("optional", extra, "ok", found)


def check_device() -> Iterator[Finding]:
    """Check that torch and transformers can be imported, and what torch computes on."""
    try:
        import torch
        import transformers  # noqa: F401

        from auber.config import make_config
        from auber.training.devices import resolve_hardware

        hardware = resolve_hardware(make_config())
    except Exception as error:  # anything that a broken installation raises
        found = (str(error).splitlines() or [type(error).__name__])[0]
        advice = "pip install --force-reinstall torch transformers"
        yield Finding("device", "torch, transformers", "broken", found, advice)
        return
    found = f"{hardware.name} in {hardware.precision}, {hardware.threads} CPU threads"
    yield Finding("device", "computes on", "ok", found)
    if hardware.device.type == "cuda":
        free, total = (size / 1e9 for size in torch.cuda.mem_get_info(hardware.device))
        yield Finding("device", "GPU memory", "ok", f"{free:.1f} of {total:.1f} GB free")
    elif shutil.which("nvidia-smi"):
        advice = "install a CUDA build of torch, or check CUDA_VISIBLE_DEVICES"
        yield Finding("device", "GPU", "note", "torch sees none, but nvidia-smi is here", advice)


def check_hub(*, online: bool) -> Iterator[Finding]:
    """Check for a token, without printing it, and whether the hub answers."""
    from huggingface_hub import constants, get_token

    advice = "" if get_token() else "'hf auth login' for private models and --push"
    yield Finding("hub", "token", "ok", "none" if advice else "found", advice)
    if constants.HF_HUB_OFFLINE:
        yield Finding("hub", "HF_HUB_OFFLINE", "note", "set", "unset it to download models")
    if online:
        state, found, advice = "ok", constants.ENDPOINT, ""
        try:
            request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
            urllib.request.urlopen(request, timeout=5).close()  # nosec B310 # the user's setting
        except urllib.error.HTTPError:
            pass  # it answers
        except (OSError, ValueError) as error:
            state, found = "note", f"{found}: {getattr(error, 'reason', error)}"
            advice = "models and tasks can be given as folders: --model DIR --data DIR"
        yield Finding("hub", "reachable", state, found, advice)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
