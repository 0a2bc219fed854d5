"""Whether the fine-tuned model learned its task, and what a run does if it did not."""

from __future__ import annotations

import pytest
import torch

import auber
from auber.cli.screen import describe_result
from auber.config import PRESETS, make_config
from auber.errors import ModelError
from auber.run import tunings
from auber.run.learned import choose_rows, describe_failure, measure_learning
from auber.run.stage_record import LearnedRecord
from auber.training.evaluation import predict
from tests.kinds import num_labels, random_kind_rows
from tests.scoring.test_crossfit import with_labels
from tests.small import small_config, small_rows, small_start, small_task
from tests.tiny_models import tiny_model

TASK = small_task()


def silent(model):
    """Return the model with a classifier that gives all rows the same answer."""
    with torch.no_grad():
        model.classifier.weight.zero_()
    return model


def test_a_model_that_knows_the_labels_has_learned():
    model, rows = small_start()[0], small_rows(60)
    known = with_labels(rows, predict(model, rows)[:, 1].argsort().argsort() // 30)
    found = measure_learning(model, known, "accuracy")
    assert (found.learned, found.one_answer, found.rows, found.majority) == (True, False, 60, 0.5)


@pytest.mark.parametrize("seed", range(4))
def test_labels_by_chance_are_not_learned(seed):
    """Though in-sample the best fit explains a little of them."""
    model, rows = small_start()[0], small_rows(60)
    labels = torch.randperm(60, generator=torch.Generator().manual_seed(seed)) % 2
    assert not measure_learning(model, with_labels(rows, labels), "accuracy").learned


def test_a_model_that_predicts_one_class_never_counts_as_having_learned():
    """Its outputs may rank the rows right, but all are on one side."""
    model, rows = small_start()[0], small_rows(60)
    known = with_labels(rows, predict(model, rows)[:, 1].argsort().argsort() // 30)
    with torch.no_grad():
        model.classifier.bias += torch.tensor([100.0, 0.0])
    found = measure_learning(model, known, "accuracy")
    assert (found.learned, found.one_answer, found.score) == (False, True, 0.5)


def test_rare_classes_can_be_learned_without_better_accuracy():
    """The most frequent class has 90 %, and so has a model with as many errors on both sides."""
    model, rows = small_start()[0], small_rows(60)
    order = predict(model, rows)[:, 1].sub(predict(model, rows)[:, 0]).argsort().argsort()
    with torch.no_grad():  # the highest six are predicted to be of class 1
        logits = predict(model, rows)
        gap = (logits[:, 1] - logits[:, 0]).sort().values
        model.classifier.bias[0] += float(gap[53:55].mean())
    labels = (order >= 54).long()
    for wrong, right in ((54, 51), (55, 52), (56, 53)):
        labels[order == wrong], labels[order == right] = 0, 1
    found = measure_learning(model, with_labels(rows, labels), "matthews")
    assert found.majority == pytest.approx(0.9)
    assert found.learned


def test_numbers():
    model, rows = tiny_model("bert", vocab_size=300, num_labels=1, pad_token_id=0), small_rows(40)
    known = with_labels(rows, predict(model, rows)[:, 0] * 3 + 1)
    found = measure_learning(model, known, "pearson")
    assert (found.learned, found.majority) == (True, None)
    assert not measure_learning(silent(model), known, "pearson").learned


def test_an_untrained_tagger_has_not_learned():
    model = tiny_model(kind="tokens", num_labels=num_labels("tokens"))
    found = measure_learning(model, random_kind_rows("tokens", 30), "token_accuracy")
    assert not found.learned
    assert 0 < found.majority < 1


def test_at_most_2000_rows_are_used():
    assert choose_rows((3, 5), 0) == (3, 5)
    drawn = choose_rows(tuple(range(3000)), 0)
    assert len(set(drawn)) == 2000
    assert list(drawn) == sorted(drawn)
    assert drawn != choose_rows(tuple(range(3000)), 1)


def test_the_words_of_a_failure():
    found = LearnedRecord(learned=False, one_answer=False, score=0.26, majority=0.25, rows=900)
    assert describe_failure(found, "accuracy") == (
        "the fine-tuned model is no better than a constant answer on 900 of the rows it was tuned "
        "on (accuracy 26.0, the most frequent class has 25.0 %)"
    )
    found = LearnedRecord(learned=False, one_answer=True, score=None, rows=9)
    assert describe_failure(found, "spearman") == (
        "the fine-tuned model gives the same answer to all of 9 of the rows it was tuned on"
    )


def prune(out, method="auber", resume=False, progress=None, **changes):
    """Prune a model that gives one answer and is not tuned."""
    start, tokenizer = small_start()
    config = small_config(
        first__when="always", first__learning_rate=0.0, last__learning_rate=0.0, **changes
    )
    return auber.prune(
        silent(start), tokenizer, task=TASK, method=method, config=config, out=out, resume=resume,
        progress=progress,
    )  # fmt: skip


def test_a_run_stops_before_the_search_and_says_what_to_do(tmp_path, monkeypatch):
    message = (
        r"^first tuning: the fine-tuned model gives the same answer to all of 60 of the rows it "
        r"was tuned on \(accuracy \d\d\.\d, the most frequent class has \d\d\.\d %\), so nothing "
        r"shows what it can do without; give another first.learning_rate, more first.epochs or "
        r"another model, or set first.require_learned=false, and as that is another run, another "
        r"folder for out$"
    )
    with pytest.raises(ModelError, match=message):
        prune(tmp_path / "run", first__require_learned=True)
    assert [path.stem for path in (tmp_path / "run" / "stages").glob("*.json")] == ["first"]
    monkeypatch.setattr(tunings, "tune", None)  # it is not tuned again
    with pytest.raises(ModelError, match=message):
        prune(tmp_path / "run", first__require_learned=True, resume=True)


def test_without_the_rule_the_result_warns(tmp_path):
    result = prune(tmp_path / "run", agent__choose="best").result
    assert (result["learned"]["learned"], result["learned"]["one_answer"]) == (False, True)
    assert "warning: the fine-tuned model learned nothing" in describe_result(result)[-1]


def test_a_control_that_predicts_one_class_is_not_stopped(tmp_path):
    result = prune(tmp_path / "run", "original+tuning", first__require_learned=True).result
    assert result["dev"]["one_class"]
    assert result["train"]["one_class"]
    assert result["dev"]["score"] in (result["dev"]["majority"], 1 - result["dev"]["majority"])
    assert not result["learned"]["learned"]


def test_presets_that_require_it():
    found = {name: make_config(name).first.require_learned for name in PRESETS}
    assert found == {"paper": False, "reference": False, "default": True}
