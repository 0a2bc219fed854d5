"""Gates that all scouts share, each asked of the rows of its fold."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from auber.devices import resolve_hardware
from auber.evaluation import predict
from auber.tasks.encoding import EncodedRows
from experiments.gates import crossed_gates
from experiments.subject import calibrated_rows, calibration, row_likelihoods
from tests.methods.test_voita import kill
from tests.methods.works import random_rows
from tests.models import tiny_model
from tests.small import small_config

DEAD = {0: (1, 2), 2: (3,)}


def scouts_and_subject(count=32):
    """Two scouts with the same dead heads, and rows labelled by the scout of their fold."""
    scouts = [tiny_model(num_labels=2, seed=seed) for seed in (0, 1)]
    for scout in scouts:
        kill(scout, DEAD)
    rows = random_rows(scouts[0], count)
    folds = np.arange(count) % 2
    labels = torch.zeros(count, dtype=torch.long)
    for fold, scout in enumerate(scouts):
        logits = predict(scout, rows)
        surer = logits[:, 1] - logits[:, 0] > (logits[:, 1] - logits[:, 0]).median()  # both classes for any scout
        labels[folds == fold] = surer.long()[folds == fold]
    config = small_config(voita__epochs=8, voita__batch_size=4, voita__learning_rate=0.2, voita__trials=4)
    labelled = EncodedRows(rows.input_ids, rows.token_types, labels, rows.pad_token_id)
    return scouts, folds, SimpleNamespace(rows=labelled, config=config, hardware=resolve_hardware(config))


def test_heads_that_nothing_reads_close():
    scouts, folds, subject = scouts_and_subject()
    assert crossed_gates(subject, scouts, folds, 3) == DEAD


def test_every_row_is_asked_once_an_epoch_and_only_of_its_scout(monkeypatch):
    scouts, folds, subject = scouts_and_subject(13)
    asked = []

    def watch(scout_of_fold):
        def forward(module, args, kwargs):
            for ids, mask in zip(kwargs["input_ids"], kwargs["attention_mask"], strict=True):
                asked.append((scout_of_fold, tuple(ids[mask == 1].tolist())))

        return forward

    monkeypatch.setattr("experiments.gates.predict", lambda model, rows: torch.zeros(len(rows), 2))
    for fold, scout in enumerate(scouts):
        scout.register_forward_pre_hook(watch(fold), with_kwargs=True)
    monkeypatch.setattr("experiments.gates.copy.deepcopy", lambda scout: scout)
    monkeypatch.setattr("experiments.gates.search_penalty", lambda train, *_: train(0.01))
    crossed_gates(subject, scouts, folds, 3)
    epochs = subject.config.voita.epochs
    wanted = [(int(folds[row]), tuple(subject.rows.input_ids[row])) for row in range(13)] * epochs
    assert sorted(asked) == sorted(wanted)


def test_the_calibration_is_the_likeliest():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (60,), generator=generator)
    logits = torch.randn(60, 3, generator=generator).double() + 2 * torch.nn.functional.one_hot(labels, 3)
    fit, best = calibration(logits, labels), calibrated_rows(logits, labels).mean()
    assert row_likelihoods(logits * fit[0] + fit[1:], labels).mean() == best
    for change in torch.eye(4).double() * 0.05:
        for moved in (fit + change, fit - change):
            assert row_likelihoods(logits * moved[0] + moved[1:], labels).mean() <= best


def test_the_same_gates_from_the_same_seed():
    scouts, folds, subject = scouts_and_subject(12)
    first, second = (crossed_gates(subject, scouts, folds, 5) for _ in range(2))
    assert first == second
    assert first.num_removed == 5
