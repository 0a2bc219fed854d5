"""The pages of exported folders: a model card, and how to run a graph.

Everything comes from the model and, if it was exported from a run, from the run's result, which
holds no local paths. Unknown numbers are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from auber.export.source import Source
from auber.metrics.spans import LONGEST_ANSWER
from auber.models.remote_code import MODELING_FILE, needs_code
from auber.run.summary import name_measure

NOUNS = {
    "sequence": "A text classifier",
    "tokens": "A tagger of words",
    "spans": "A model that finds the answer to a question in a text",
    "embeddings": "A sentence encoder",
}
_PIPELINE_TAGS = {
    "sequence": "text-classification",
    "tokens": "token-classification",
    "spans": "question-answering",
    "embeddings": "sentence-similarity",
}
_HUB_METRICS = {
    "entity_f1": "f1",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "span_exact": "exact_match",
    "span_f1": "f1",
    "spearman": "spearmanr",
    "token_accuracy": "accuracy",  # nosec B105 # a metric
}
# For these metrics, score and number of rows determine the interval.
_SHARES_OF_ROWS = ("accuracy", "span_exact")


def write_card(source: Source, place: str) -> str:
    """Return the model card as Markdown; `place` is what a reader passes to `from_pretrained`."""
    result = source.result
    metric = "" if result is None else result.metric
    interval = None
    if result is not None and metric in _SHARES_OF_ROWS and result.dev.rows:
        low, high = accuracy_interval(result.dev.score, result.dev.rows)
        interval = 100 * low, 100 * high
    return _render(
        "card.md",
        source,
        tag=_PIPELINE_TAGS[source.task_type.name],
        # Agreement with another model is no metric of a task.
        metric=None if result is None or result.answered else _HUB_METRICS.get(metric, metric),
        measure=result and name_measure(result.metric, answered=result.answered),
        model_type=source.model.config.model_type,
        architecture=type(source.model).__name__,
        auto_class=source.task_type.auto_class,
        result=result,
        interval=interval,
        encoder=source.encoder,
        needs_code=needs_code(source.model.config),
        lines=len(MODELING_FILE.read_text(encoding="utf-8").splitlines()),
        place=place,
    )


def write_graph_page(source: Source, graph: str, *, is_int8: bool) -> str:
    """Return the page on running the graph, a file of this name, as Markdown."""
    return _render(
        "graph.md",
        source,
        graph=graph,
        is_int8=is_int8,
        positions=source.encoder.num_positions,
        is_regression=source.model.config.problem_type == "regression",
    )


def accuracy_interval(share: float, rows: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of rows, which stays between 0 and 1."""
    from scipy.stats import binomtest

    low, high = binomtest(round(share * rows), rows).proportion_ci(method="wilson")
    return float(low), float(high)


def _render(template: str, source: Source, **values: Any) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(  # nosec B701 # Markdown is not escaped
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(
        name=source.name,
        noun=NOUNS[source.task_type.name],
        kind=source.task_type.name,
        units={
            unit: f"{removed:,} of {total:,}" for unit, (removed, total) in source.units.items()
        },
        longest=source.row_length,
        longest_answer=LONGEST_ANSWER,
        **values,
    )
