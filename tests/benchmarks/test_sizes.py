"""The study of sizes: its plan, a block, the peer, the statistics and the page."""

from __future__ import annotations

import copy
import shutil

import pytest
import torch

import auber
from auber.errors import ConfigError, RunError
from auber.export.measure import count_multiply_adds
from auber.export.subjects import read_subjects
from auber.models.costs import UnitCosts
from benchmarks import tiny
from benchmarks.sizes import __main__ as sizes
from benchmarks.sizes import peer
from benchmarks.sizes.plan import CONTROL, PLAN, read_plan
from benchmarks.sizes.record import Model, read_models, write_models
from tests.tiny_models import HEADS, NEURONS, random_batch, tiny_model

SMALL_PLAN = """
model = "tiny"
small = "smaller"
int8 = ["default", "minilm-l6"]
settings = { threads = 1, max_length = 24, "last.epochs" = 1, "size.multiple" = 1 }

[tasks.words]
rows = 60
model = { rate = 1e-3, epochs = 1 }
small = { rate = 1e-3, epochs = 1 }

[[arms]]
name = "original+tuning"
method = "original+tuning"
seeds = [0]

[[arms]]
name = "default"
method = "fisher"
sizes = [0.8, 0.5]
seeds = [0]

[[arms]]
name = "minilm-l6"
method = "small"
seeds = [0]

[[arms]]
name = "A/A control"
method = "original+tuning"
settings = { seed = 1000 }
seeds = [0]

[[questions]]
name = "a"
text = "?"
arm = "default"
sizes = [0.5]
against = ["original+tuning"]
seeds = [0]
margin = 0.5
"""


@pytest.fixture
def block(tmp_path):
    """The words of a run of a tiny block."""
    for name in ("tiny", "smaller"):
        tiny.save_model(tmp_path / "models" / name)
    for split in ("train", "dev"):
        shutil.copy(tiny.GOLDEN / f"{split}.csv", tmp_path / f"words-{split}.csv")
    (tmp_path / "plan.toml").write_text(SMALL_PLAN)
    words = ["run", "--task", "words", "--seed", 0, "--models", tmp_path / "models"]
    words += ["--data", tmp_path, "--plan", tmp_path / "plan.toml", "--out", tmp_path / "out.json"]
    return [str(word) for word in words]


def test_the_arms_and_tasks_that_the_plan_names_exist():
    plan = read_plan(PLAN)
    arms = {arm.name for arm in plan.arms}
    named = {name for each in plan.questions for name in (each.arm, *each.against)}
    assert named | {*plan.int8} <= arms
    for each in (*plan.arms, *plan.questions):
        assert {*each.tasks} <= {*plan.tasks}
    # Each compared model is made in every block of its question.
    for question in plan.questions:
        for task in question.tasks or plan.tasks:
            for seed in question.seeds:
                made = {arm.name: arm.sizes for arm in plan.arms_of(task, seed)}
                assert {*question.against} <= {*made}
                assert {*question.sizes} <= {*made[question.arm]}


def test_a_block_is_continued_without_losing_a_model(tmp_path, block, capsys):
    out = tmp_path / "out.json"
    sizes.main([*block, "--arms", CONTROL, "default", "--work", str(tmp_path / "work")])
    first = read_models(out)
    assert [(each.arm, each.keep) for each in first] == [
        ("default", 0.5), ("default", 0.8), (CONTROL, None)
    ]  # fmt: skip
    half, large, control = first
    assert half.multiply_adds < large.multiply_adds < control.multiply_adds
    assert sum(half.neurons) < sum(control.neurons) == 96
    assert half.int8 is not None
    assert control.int8 is None
    sizes.main([*block, "--work", str(tmp_path / "work")])
    found = read_models(out)
    assert all(each in found for each in first)
    arms = ["A/A control", "default", "default", "minilm-l6", CONTROL]
    assert [each.arm for each in found] == arms
    capsys.readouterr()
    sizes.main(block)
    assert "has all arms of words seed 0" in capsys.readouterr().out
    # Another fine-tuned model needs its own of what others are compared with.
    before = [each.model_copy(update={"start": "before"}) for each in first]
    write_models(out, before)
    sizes.main(block)
    after = [each for each in read_models(out) if each.start != "before"]
    assert [each.arm for each in after] == arms
    assert [each.dev for each in after] == [each.dev for each in found]
    # Shapes are measured by `auber speed`.
    shapes = tmp_path / "shapes"
    words = ["shapes", *block[1:7], "--plan", str(tmp_path / "plan.toml")]
    sizes.main([*words, "--results", str(out), "--out", str(shapes)])
    (subject,) = read_subjects([shapes / "default-0.5"], None)
    counts = [count_multiply_adds(model, 32) for model in subject.build()]
    assert counts == [control.multiply_adds, half.multiply_adds]
    names = {"AA-control", "default-0.5", "default-0.8", "minilm-l6", CONTROL}
    assert {path.name for path in shapes.iterdir()} == names


def test_what_a_block_cannot_do_is_said_before_it_begins(tmp_path, block):
    with pytest.raises(ConfigError, match=r"seed 9: the plan has no such block; .* seeds 0$"):
        sizes.main([word if word != "0" else "9" for word in block])
    with pytest.raises(ConfigError, match=r"--arms: words seed 0 has no arm voita; its arms are"):
        sizes.main([*block, "--arms", "voita"])
    (tmp_path / "plan.toml").write_text(SMALL_PLAN.replace('"fisher"', '"torch-pruning"'))
    if not peer.is_installed():
        with pytest.raises(ConfigError, match=r"needs the package torch-pruning 1\.6\.1, .* wheel"):
            sizes.main(block)
    (tmp_path / "plan.toml").write_text("model =")
    with pytest.raises(ConfigError, match=r"plan\.toml: cannot be read .*; give a plan"):
        sizes.main(block)


def make_model(arm, keep, task, seed, dev, **changes):
    """Return the record of a model."""
    shape = {"heads": (4,), "neurons": (8,), "multiply_adds": 10, "parameters": 10}
    origin = {"command": "c", "provenance": {"device": "cpu", "commit": {"id": "f" * 40}}}
    scores = {"train": 90.0, "loss": None, "int8": None, "seconds": 1.0}
    names = {"arm": arm, "keep": keep, "task": task, "seed": seed, "dev": dev, "start": "s"}
    return Model(**{**names, **shape, **origin, **scores, **changes})


def test_files_are_merged_once(tmp_path):
    one = make_model("default", 0.5, "rte", 0, 70.0)
    write_models(tmp_path / "a.json", [one])
    write_models(tmp_path / "b.json", [one, make_model("default", 0.25, "rte", 0, 68.0)])
    words = ["merge", str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    for _ in range(2):
        sizes.main([*words, "--out", str(tmp_path / "all.json")])
        assert read_models(tmp_path / "all.json") == read_models(tmp_path / "b.json")
    write_models(tmp_path / "a.json", [one.model_copy(update={"dev": 71.0})])
    with pytest.raises(RunError, match=r"rte seed 0, default was evaluated twice .*; leave out"):
        sizes.main([*words, "--out", str(tmp_path / "all.json")])


@pytest.mark.parametrize("share", [0.5, 0.25, 0.125])
def test_the_peer_gets_the_size_with_the_same_widths_everywhere(share):
    costs = UnitCosts(4 * 768 * 64 + 2 * 64 * 128, 2 * 768, 12, 12, 3072)  # mpnet-base
    heads, neurons = peer.find_widths(costs, share, 8)
    left = 12 * (heads * costs.head + neurons * costs.neuron) / costs.total
    assert share - 12 * 8 * costs.neuron / costs.total < left <= share
    assert neurons > 0


@pytest.mark.parametrize("model_type", ["bert", "mpnet"])
def test_the_peer_prunes_as_its_plan_does(model_type):
    pytest.importorskip("torch_pruning")
    model = tiny_model(model_type, attention="eager")
    own, batch = copy.deepcopy(model), random_batch(model)
    model(**batch, labels=torch.tensor([0, 1, 0, 1])).loss.backward()

    def pruned(groups):
        for group in groups:
            yield group
            group.prune()

    plan = peer.find_plan(model, pruned(peer.make_pruner(model, 2, 16).step(interactive=True)))
    assert [len(heads) for heads in plan.heads.values()] == 3 * [HEADS - 2]
    assert [len(neurons) for neurons in plan.neurons.values()] == 3 * [NEURONS - 16]
    if model_type == "mpnet":  # whose bias of positions torch-pruning does not slice
        return
    auber.remove(own, plan)
    with torch.no_grad():
        assert torch.allclose(model(**batch).logits, own(**batch).logits, atol=1e-5)
