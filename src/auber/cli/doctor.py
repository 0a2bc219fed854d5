"""`auber doctor`: what this installation can do here."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from auber.cli import options, screen


def command(
    online: Annotated[
        bool,
        typer.Option(
            "--online", help="Also ask the hub for an answer; waits five seconds at most."
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """Check versions, device, optional parts, hub, disk and environment, and say how to put right what is not.

    A token is looked for and never shown. Exit code 1: something that auber needs is broken.

    Example: auber doctor --online
    """
    from auber.cli.doctor_checks import State, examine

    findings = examine(online=online)
    broken = [finding for finding in findings if finding.state is State.BROKEN]
    if json:
        screen.print_json({"ok": not broken, "findings": [asdict(finding) for finding in findings]})
    else:
        section = ""
        for finding in findings:
            if finding.section != section:
                section = finding.section
                print(section)
            print(f"  {finding.state:<8}{finding.name:<24} {finding.found}")
            if finding.advice and finding.state is not State.OK:
                print(f"          {finding.advice}")
        print(f"{len(broken)} broken" if broken else "Nothing that auber needs is broken.")
    if broken:
        raise typer.Exit(1)
