"""The fidelity benchmark: its texts, its measures, and models pruned without labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import auber
from auber.export.source import read_source
from auber.models import checkpoint
from benchmarks import tiny
from benchmarks.fidelity import __main__ as fidelity
from benchmarks.fidelity import measures, record, tables, texts
from benchmarks.fidelity.models import Judge
from benchmarks.fidelity.texts import Material, Side

WORDS = (tiny.GOLDEN / "train.csv").read_text(encoding="utf-8").replace(",", " ").split()


@pytest.fixture(scope="module")
def material():
    """Queries and passages of the golden rows' words."""
    rng = np.random.default_rng(0)
    some = tuple(" ".join(rng.choice(WORDS, 4)) for _ in range(130))
    candidates = tuple(tuple(rng.choice(np.arange(12, 130), 10, replace=False)) for _ in range(12))
    side = Side(
        texts=some,
        queries=tuple(range(12)),
        candidates=tuple(tuple(map(int, each)) for each in candidates),
    )
    return Material(command="", tune=side, held_out=side)


def make_model(folder, name, **changes):
    """Write a tiny model of a class of transformers."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(tiny.GOLDEN / "model", **changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = getattr(transformers, name)(config).eval()
    checkpoint.save(model, checkpoint.load_tokenizer(tiny.GOLDEN / "model"), folder)
    return folder


MODELS = {
    "reranker": ("BertForSequenceClassification", 1),
    "encoder": ("BertModel", 2),
    "tagger": ("BertForTokenClassification", 6),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request, tmp_path_factory):
    """The kind and the folder of a tiny model."""
    name, num_labels = MODELS[request.param]
    folder = tmp_path_factory.mktemp("fidelity") / request.param
    return request.param, make_model(folder, name, num_labels=num_labels)


def test_texts_of_a_row_and_with_the_same_words_are_on_one_side():
    rows = [((f"Premise {row}.", "passage"), (f"claim {row}", "statement")) for row in range(30)]
    rows += [((f"claim, {row}!", "other"),) for row in range(30)]
    tune, held_out = texts.divide(rows)
    assert len(held_out) == 24  # twelve premises and their claims; the third is the same sentence
    for row in range(30):
        sides = {f"Premise {row}." in tune, f"claim {row}" in tune}
        assert len(sides) == 1
    assert not any("," in text for text in [*tune, *held_out])


def test_candidates_are_the_nearest_passages():
    vectors = {"q": [1, 0], "s": [0, 1], "near": [0.9, 0.1], "far": [-1, 0], "mid": [0.5, 0.5]}
    roles = {"q": "question", "s": "statement", "near": "passage", "far": "passage"}
    side = texts.make_side(
        roles | {"mid": "passage", "more": "other"},
        lambda some: np.array([vectors[text] for text in some], np.float32),
        queries=2,
        texts=5,
        seed=0,
    )
    found = [[side.texts[place] for place in places] for places in side.candidates]
    asked = [side.texts[query] for query in side.queries]
    assert dict(zip(asked, found, strict=True))["q"] == ["near", "mid", "far"]
    assert len(side.texts) == 5


def test_tags_say_what_is_hidden():
    words, tags = texts.tag_words("Amrozi's brother , he said , isn't here.\" Is he?")
    assert words == ["amrozi's", "brother", "he", "said", "isn't", "here", "is", "he"]
    assert tags == ["capital", "comma", "o", "comma", "o", "stop", "capital", "stop"]
    assert set(tags) <= set(texts.TAGS)


def test_the_fidelity_of_scores():
    unpruned = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    same = measures.compare_scores(unpruned, 5 * unpruned - 1)
    assert all(value == pytest.approx(1) for value in same.values())
    found = measures.compare_scores(unpruned, unpruned[[1, 1]])  # the first query reversed
    assert found["rank correlation within queries"] == pytest.approx(0)
    assert found["same first place"] == 0.5


def test_the_fidelity_of_vectors_and_tags():
    unpruned = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 4)))
    pairs = [(0, 1), (0, 2), (3, 4), (4, 5)]
    found = measures.compare_vectors(unpruned, 3 * unpruned, pairs)
    assert list(found.values()) == pytest.approx([1, 1])
    own, wanted = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 1])
    assert list(measures.compare_tags(wanted, own).values()) == pytest.approx([1 / 2, 1 / 3])


def test_material_is_read_as_written(tmp_path, material):
    texts.write_material(tmp_path / "texts.json.gz", material)
    assert texts.read_material(tmp_path / "texts.json.gz") == material


def test_a_model_is_judged_in_both_forms(material, model):
    kind, folder = model
    unpruned = read_source(folder)
    judge = Judge(kind, unpruned, material, 6, int8=True)
    forms = judge.measure(unpruned)
    assert {*tables.MEASURES[kind]} <= {*forms["float32"]}
    assert all(value == pytest.approx(1) for value in forms["float32"].values())
    assert all(0.8 < forms["int8"][name] <= 1 for name in tables.MEASURES[kind])
    pruned = read_source(folder)
    auber.remove(pruned.model, {0: [0, 1, 2]})
    less = judge.measure(pruned)["float32"]
    assert less[tables.MEASURES[kind][0]] < 1


def test_models_are_pruned_and_measured(tmp_path, material, model):
    kind, folder = model
    texts.write_material(tmp_path / "texts.json.gz", material)
    out = tmp_path / "found.json"
    words = ["run", "--texts", tmp_path / "texts.json.gz", "--model", folder, "--kind", kind]
    words += ["--counts", "110", "--keep", "0.8,0.5", "--no-int8"]
    words += ["--set", "last.epochs=1", "--set", "threads=1", "--out", out]
    fidelity.main([str(word) for word in words])
    found = record.read_entries(out)
    assert [(each.keep, each.texts) for each in found] == [(0.8, 110), (0.5, 110)]
    measure = tables.MEASURES[kind][0]
    large, small = (each.forms["float32"][measure] for each in found)
    assert small < large < 1
    (group,) = tables.group_entries(found)
    assert group.find(0.5, 110, "float32", measure) == small
    assert list(tables.make_table(group)[measure]) == ["1.000 / ", *[""] * 6]
