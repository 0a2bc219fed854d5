"""`auber demo`: the whole job on the embedded default."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from auber.cli import options, screen

if TYPE_CHECKING:
    from auber.demo import DemoResults


def command(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The folder for its runs; by default a new one below runs/.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Decides every random draw.")] = 0,
    resume: options.Resume = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fine-tune, search, prune, tune and compare on a small generated task: under three minutes, no download.

    The task: does the verb agree with its subject, whatever nouns stand between? The model: a small BERT made on the
    spot. It is compared with the unpruned model and with random pruning, both given the same tuning.

    Example: auber demo --out runs/demo
    """
    from auber import demo
    from auber.run import provenance

    typed = provenance.typed_command()
    if out is None:  # the command that goes on names the folder of this one
        out = Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
        typed = f"{typed} --out {shlex.quote(str(out))}"
    with screen.listening(quiet=quiet) as progress:
        progress.say(
            f"runs go into {out}; to follow them from another terminal: auber watch {shlex.quote(str(out))}"
        )
        with provenance.recording(typed):
            results = demo.run_demo(out, seed=seed, resume=resume, progress=progress)
    if json:
        screen.print_json({"start": results.start, **results.methods})
        return
    _print_results(results)
    print(f"\nThe pruned model: {out / 'auber' / 'model'}   (auber.load reads it)")
    print("One seed shows how it works, not whether it helps: a study needs several.")
    print(
        f"Next: auber report {shlex.quote(str(out / 'auber'))}   (heads, search and times as an HTML page)"
    )
    print("      auber prune --model MODEL --task TASK --out RUN   (your own; auber prune --help)")


def _print_results(results: DemoResults) -> None:
    rows = [_row("fine-tuned start", results.start)]
    rows += [_row(method, result) for method, result in results.methods.items()]
    total = sum(
        result["cost"]["seconds"]["total"] for result in (results.start, *results.methods.values())
    )
    columns = ["", "removed", "dev", "train", "gap", "rewards", "steps", "to decide", "seconds"]
    screen.print_table(
        columns,
        rows,
        title="Subject-verb agreement: heads removed, accuracy in %, and what it took: rewards, tuning steps, those of scouts and gates "
        f"to decide ({total:.0f} s in all)",
    )


def _row(name: str, result: dict[str, Any]) -> list[str]:
    heads, cost = result["heads"], result["cost"]
    return [
        name,
        f"{heads['removed']} of {heads['total']}",
        f"{100 * result['dev']['score']:.1f}",
        f"{100 * result['train']['score']:.1f}",
        f"{100 * result['gap']:+.1f}",
        str(cost["rewards_computed"]),
        str(cost["tuning_steps"]),
        str(cost.get("scout_steps", 0) + cost.get("gate_steps", 0)),
        f"{cost['seconds']['total']:.0f}",
    ]
