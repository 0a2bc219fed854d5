"""A whole run, and where its time went."""

from __future__ import annotations

from auber import api
from auber.bench.clock import timed
from auber.bench.record import SearchRecord, SearchSeconds
from auber.bench.subjects import Subject
from auber.run.accounts import TIME_PARTS
from auber.run.request import make_ask, make_job
from auber.run.starts import Start, check_origin
from auber.search.registry import get_method
from auber.system.progress import Progress


def check_search(subject: Subject) -> None:
    """Raise what the whole run would say, before anything is measured."""
    method = get_method("auber")
    ask = make_ask(subject.task, method, subject.config, heads=None)
    job = make_job(
        ask, Start(subject.model, subject.tokenizer, subject.name, tuned=True), None, None
    )
    check_origin(job, is_given=method.uses_fold_models(subject.config.protocol))


def measure_search(subject: Subject, preset: str, progress: Progress) -> SearchRecord:
    """Prune the subject's model for its task from the first layer's search to the last tuning.

    The model counts as fine-tuned, so a first tuning is part of it only where the settings say `first.when = always`.
    """
    uses_fold_models = get_method("auber").uses_fold_models(subject.config.protocol)
    pruned, total = timed(
        lambda: api.prune(
            subject.model,
            subject.tokenizer,
            task=subject.task,
            origin=subject.model
            if uses_fold_models
            else None,  # which weights scouts begin with is nothing to the time
            config=subject.config,
            progress=progress,
        ),
        subject.hardware.device,
    )
    result = pruned.result
    cost, heads = result["cost"], result["heads"]
    parts = {part.work: 0.0 for part in TIME_PARTS.values()}
    for name, part in TIME_PARTS.items():
        parts[part.work] += cost["seconds"].get(name, 0.0)
    return SearchRecord(
        preset=preset,
        protocol=result["protocol"],
        episodes=subject.config.agent.episodes,
        rewards_asked=cost["rewards_asked"],
        rewards_computed=cost["rewards_computed"],
        tuning_steps=cost["tuning_steps"] + cost.get("scout_steps", 0),
        heads_removed=heads["removed"],
        heads=heads["total"],
        seconds=SearchSeconds(**parts, rest=total - sum(parts.values()), total=total),
    )
