import copy

import pytest
import torch

from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from auber.scoring import repair as module
from auber.scoring.repair import repair
from auber.system.progress import Progress
from auber.training.evaluation import predict
from tests.search.made import random_rows
from tests.tiny_models import MODEL_TYPES, tiny_model

PLAN = PruningPlan({0: [1], 1: [0, 2]}, {0: range(10), 1: range(5, 30)})


def distance(model, unpruned, rows):
    return float((predict(model, rows) - predict(unpruned, rows)).square().mean())


@pytest.mark.parametrize("family", MODEL_TYPES)
def test_a_repaired_model_is_closer_to_the_unpruned_one(family):
    model = tiny_model(family, initializer_range=0.3).eval()
    pruned, rows = copy.deepcopy(model), random_rows(model, 200)
    remove(pruned, PLAN)
    before = distance(pruned, model, rows)
    repair(pruned, model, rows, seed=0, progress=Progress())
    assert distance(pruned, model, rows) < 0.8 * before
    assert encoder_of(pruned).removed == PLAN


def test_an_unpruned_model_stays_as_it_is():
    model = tiny_model("bert", initializer_range=0.3).eval()
    same, rows = copy.deepcopy(model), random_rows(model, 50)
    repair(same, model, rows, seed=0, progress=Progress())
    assert distance(same, model, rows) < 1e-10


def test_embeddings_may_have_been_tuned_since():
    model = tiny_model("bert", initializer_range=0.3).eval()
    tuned, rows = copy.deepcopy(model), random_rows(model, 200)
    with torch.no_grad():
        weight = tuned.bert.embeddings.word_embeddings.weight
        weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    before = distance(tuned, model, rows)
    repair(tuned, model, rows, seed=0, progress=Progress())
    assert distance(tuned, model, rows) < 0.8 * before


def test_what_another_unit_can_do_is_recovered(monkeypatch):
    """Neuron 1 is a copy of neuron 0, so that neuron 0 can take its place."""
    monkeypatch.setattr(module, "_PENALTY", 1e-9)
    model = tiny_model("bert", initializer_range=0.3).eval()
    parts = encoder_of(model).parts(0)
    with torch.no_grad():
        parts.expand.weight[1], parts.expand.bias[1] = parts.expand.weight[0], parts.expand.bias[0]
    pruned, rows = copy.deepcopy(model), random_rows(model, 200)
    remove(pruned, PruningPlan(neurons={0: [1]}))
    assert distance(pruned, model, rows) > 1e-4
    repair(pruned, model, rows, seed=0, progress=Progress())
    assert distance(pruned, model, rows) < 1e-8
    found = encoder_of(pruned).parts(0).contract.weight[:, 0]
    assert torch.allclose(found, parts.contract.weight[:, :2].sum(1), atol=1e-2)


def test_only_as_many_tokens_are_used_as_there_is_room_for(monkeypatch):
    monkeypatch.setattr(module, "_MOST_TOKENS", {"cpu": 40})
    model = tiny_model("bert").eval()
    encoder, rows = encoder_of(model), random_rows(model, 100)
    first, second = (
        sum(chunk.batch.num_tokens for chunk in module._draw_chunks(encoder, encoder, rows, seed))
        for seed in (0, 1)
    )
    assert min(first, second) > 0
    assert max(first, second) <= 40
