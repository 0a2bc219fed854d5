"""`auber finetune`: the first tuning alone."""

from __future__ import annotations

import shlex

from auber.cli import options, screen
from auber.run.trackers import check_trackers


def command(
    model: options.Model,
    out: options.Out,
    task: options.Task = None,
    data: options.Data = None,
    train: options.Train = None,
    dev: options.Dev = None,
    name: options.Name = None,
    kind: options.Kind = None,
    text: options.Text = None,
    label: options.Label = None,
    labels: options.Labels = None,
    metric: options.Metric = None,
    resume: options.Resume = False,
    allow_upgrade: options.AllowUpgrade = False,
    seed: options.Seed = None,
    protocol: options.Protocol = None,
    preset: options.Preset = "default",
    config: options.ConfigFile = None,
    assignments: options.Set = None,
    track: options.Track = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fine-tune a pretrained encoder on a task: the start that several prunings can share.

    Give the run to 'auber prune --model RUN'. Under the protocol heldout the reward rows are left out of this tuning.

    Example: auber finetune --model bert-base-cased --task rte --out runs/rte-start
    """
    from auber import api
    from auber.run import provenance

    options.require_model(model)
    trackers = check_trackers(track or ())
    settings = options.build_config(preset, task, config, assignments, seed=seed, protocol=protocol)
    with screen.listening(quiet=quiet) as progress:
        rows = options.read_task(
            task,
            data,
            train,
            dev,
            text,
            label,
            metric,
            settings.seed,
            kind=kind,
            labels=labels,
            name=name,
        )
        with provenance.recording(provenance.typed_command()):
            tuned = api.finetune(
                model,
                task=rows,
                config=settings,
                out=out,
                resume="upgrade" if resume and allow_upgrade else resume,
                progress=progress,
                track=trackers,
            )
    if json:
        screen.print_json(tuned.result)
    else:
        print(screen.describe_result(tuned.result)[0])
        print(
            f"model: {out / 'model'}   Next: auber prune --model {shlex.quote(str(out))} ... --out RUN"
        )
