from __future__ import annotations

import json

import pytest

from auber.cli import list as lists
from auber.metrics.task_metrics import METRICS
from auber.models.encoders import FAMILIES


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("tasks", ["mrpc", "cola", "rte", "wnli", "agreement", "matthews"]),
        ("models", ["bert", "deberta-v2", "xlm-roberta", "camembert", "distilbert", "modernbert"]),
        ("methods", ["auber", "auber-reverse", "random", "original+tuning"]),
        ("metrics", ["accuracy", "sequence", "span_f1", "spans"]),
        ("settings", ["agent.gamma", "reward.max_rows", "protocol"]),
    ],
)
def test_what_is_listed(run_auber, what, words):
    code, out, _ = run_auber("list", what)
    assert code == 0
    assert [word for word in words if word not in out] == []
    rows = json.loads(run_auber("list", what, "--json")[1])
    values = {word for row in rows for value in row.values() for word in str(value).split(", ")}
    assert values >= set(words)


def test_the_tables_agree_with_the_registries():
    assert [row[:2] for row in lists.LISTS["metrics"][2]()] == [
        [name, metric.kind] for name, metric in METRICS.items()
    ]
    assert lists.LISTS["models"][2]() == [
        [name, ", ".join(family.model_types)] for name, family in FAMILIES.items()
    ]
