from __future__ import annotations

import json
import subprocess
import sys

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


def test_the_lists_are_listed(run_auber):
    code, out, _ = run_auber("list")
    assert (code, [name for name in lists.LISTS if name not in out]) == (0, [])


def test_an_unknown_list(run_auber):
    code, _, err = run_auber("list", "task")
    assert code == 2
    assert err.startswith("auber: Unknown list 'task'. Did you mean 'tasks'? Known: methods, ")
    assert err.count("\n") == 1


def test_the_tables_agree_with_the_registries():
    assert [row[:2] for row in lists.list_metrics()[1]] == [
        [name, metric.kind] for name, metric in METRICS.items()
    ]
    assert lists.list_models()[1] == [
        [name, ", ".join(family.model_types)] for name, family in FAMILIES.items()
    ]


def test_no_list_imports_torch_or_the_pipeline():
    code = (
        "import sys\nfrom auber.cli import app\n"
        f"for what in {list(lists.LISTS)}: app(['list', what], standalone_mode=False)\n"
        "heavy = ('torch', 'transformers', 'numpy', 'pandas', 'auber.api', 'auber.run.pipeline')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_settings_fit_80_columns(run_auber, capsys, monkeypatch):
    rows = json.loads(run_auber("list", "settings", "--json")[1])
    monkeypatch.setenv("COLUMNS", "80")
    lists.command("settings")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["setting", "paper", "reference", "default"]
    text = " ".join(" ".join(lines).split())
    for row in rows:
        values = f"{row['setting']} {row['paper']} {row['reference']} {row['default']}"
        assert f"{values} {row['meaning']} [{row['allowed']}]" in text
    assert "only under protocol crossfit: reward.measure, reward.caution, reward.folds" in text
