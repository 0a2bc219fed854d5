"""`auber demo`: fine-tune, prune and compare on a small generated task."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from auber.cli import options, screen
from auber.errors import ConfigError


def command(
    out: Annotated[
        Path | None,
        typer.Option(help="The folder to write the runs to. [default: a new one in runs/]"),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of every random draw.")] = 0,
    resume: options.Resume = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fine-tune, prune and compare on a small generated task.

    It takes three minutes and downloads nothing. The task: does the verb agree with its subject,
    whatever nouns stand between? The model: a small BERT, trained from scratch. The pruned model
    is compared with the unpruned one and with random pruning, all with the same fine-tuning.

    Example: auber demo --out runs/demo
    """
    from auber import demo
    from auber.run import provenance

    typed = provenance.typed_command()
    if resume and out is None:
        raise ConfigError("--resume continues the demo in a folder, found no --out; add it")
    if out is None:  # the command that resumes it has to name its folder
        out = Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
        typed = f"{typed} --out {shlex.quote(str(out))}"
    folder = shlex.quote(str(out))
    with screen.listening(quiet=quiet) as progress:
        progress.say(f"runs go to {out}; follow them in another terminal: auber watch {folder}")
        with provenance.recording(typed):
            results = demo.run_demo(out, seed=seed, resume=resume, progress=progress)
    if json:
        screen.print_json({"start": results.start, **results.methods})
        return
    runs = {"fine-tuned model": results.start, **results.methods}
    total = sum(result["cost"]["seconds"]["total"] for result in runs.values())
    screen.print_table(
        ["", "removed", "dev", "train", "gap", "rewards", "steps", "to decide", "seconds"],
        [[name, *_cells(result)] for name, result in runs.items()],
        title="Subject-verb agreement: heads removed, accuracy in %, and the cost: rewards, "
        f"tuning steps, tuning steps to decide (fold models, gates), seconds ({total:.0f} s in "
        "all)",
    )
    print(f"\nThe pruned model: {out / 'auber' / 'model'}   (load it with auber.load)")
    print("One seed shows how it works, not whether it helps: that takes a study of several seeds.")
    print(f"Next: auber report {shlex.quote(str(out / 'auber'))}   (an HTML page of this run)")
    print("      auber prune --help   (your own model and task)")


def _cells(result: dict[str, Any]) -> list[str]:
    heads, cost = result["heads"], result["cost"]
    return [
        f"{heads['removed']} of {heads['total']}",
        f"{100 * result['dev']['score']:.1f}",
        f"{100 * result['train']['score']:.1f}",
        f"{100 * result['gap']:+.1f}",
        str(cost["rewards_computed"]),
        str(cost["tuning_steps"]),
        str(cost.get("scout_steps", 0) + cost.get("gate_steps", 0)),
        f"{cost['seconds']['total']:.0f}",
    ]
