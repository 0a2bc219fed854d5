"""`auber finetune`: the first tuning alone."""

from __future__ import annotations

from auber.cli import options, screen


def command(
    model: options.Model,
    out: options.Out,
    task: options.Task = None,
    data: options.Data = None,
    train: options.Train = None,
    dev: options.Dev = None,
    text: options.Text = None,
    label: options.Label = "label",
    metric: options.Metric = None,
    resume: options.Resume = False,
    seed: options.Seed = None,
    protocol: options.Protocol = None,
    preset: options.Preset = "default",
    config: options.ConfigFile = None,
    assignments: options.Set = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fine-tune a pretrained encoder on a task: the start that several prunings can share.

    Give the run to 'auber prune --model RUN'. Under the protocol heldout the reward rows are left out of this tuning.

    Example: auber finetune --model bert-base-cased --task rte --out runs/rte-start
    """
    from auber import api, provenance

    settings = options.build_config(preset, task, config, assignments, seed=seed, protocol=protocol)
    with screen.listening(quiet=quiet) as progress:
        rows = options.read_task(task, data, train, dev, text, label, metric, settings.seed)
        tuned = api.finetune(
            model,
            task=rows,
            config=settings,
            out=out,
            resume=resume,
            progress=progress,
            command=provenance.command_line(),
        )
    if json:
        screen.print_json(tuned.result)
    else:
        print(screen.describe_result(tuned.result)[0])
        print(f"model: {out / 'model'}")
