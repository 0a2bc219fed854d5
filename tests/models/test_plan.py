from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from auber.errors import PlanError
from auber.models.plan import PruningPlan

units = st.dictionaries(st.integers(0, 11), st.sets(st.integers(0, 70), max_size=40))
plans = st.builds(PruningPlan, units, units)


def test_a_plan_counts_and_answers():
    plan = PruningPlan({2: [5, 1], 0: [3], 4: []}, {1: range(64, 66)})
    assert (plan.num_heads, plan.num_neurons) == (3, 2)
    assert (list(plan.heads), list(plan.neurons)) == ([0, 2], [1])
    assert (plan.heads[2], plan.neurons[1]) == ((1, 5), (64, 65))
    assert plan == PruningPlan(heads={0: [3], 2: [1, 5]}, neurons={1: [65, 64]})
    assert plan != PruningPlan({0: [3], 2: [1, 5]})
    assert hash(plan) == hash(PruningPlan({0: [3], 2: [1, 5]}, {1: [64, 65]}))
    assert repr(plan) == "PruningPlan(heads={0: [3], 2: [1, 5]}, neurons={1: [64, 65]})"
    assert bool(PruningPlan(neurons={0: [1]}))
    assert not PruningPlan({4: []})
    with pytest.raises(AttributeError, match="cannot be changed"):
        plan.heads = {}
    assert copy.deepcopy(plan) == plan


@pytest.mark.parametrize(
    "plan",
    [
        {np.int64(1): np.array([5, 3])},
        {torch.tensor(1): (torch.tensor(5), torch.tensor(3, dtype=torch.uint8))},
    ],
)
def test_whole_numbers_of_other_libraries_are_taken(plan):
    plan = PruningPlan(plan, plan)
    assert plan == PruningPlan({1: [3, 5]}, {1: [3, 5]})
    assert {type(number) for number in (*plan.heads, *plan.heads[1], *plan.neurons[1])} == {int}
    assert plan.to_json() == {"heads": {"1": [3, 5]}, "neurons": {"1": "3,5"}}


@given(plans)
def test_json_round_trip(plan):
    assert PruningPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_the_first_form_is_read_as_heads():
    assert PruningPlan.from_json({"0": [3, 5]}) == PruningPlan({0: [3, 5]})
    assert PruningPlan.of({0: [3]}) == PruningPlan(heads={0: [3]})
    assert PruningPlan({0: [3]}).identity() == {"0": [3]}
    assert PruningPlan({0: [3]}, {1: [2]}).identity() == {
        "heads": {"0": [3]},
        "neurons": {"1": "2"},
    }


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ([{3: range(12)}], "layer 3: the plan removes all 12 heads; at least one must stay"),
        ([{12: [0]}], "layer 12: the model has layers 0 to 11; correct the plan"),
        (
            [{0: [12]}],
            "layer 0: its heads are numbered 0 to 11, the plan removes head 12; correct the plan",
        ),
        (
            [None, {4: range(48)}],
            "layer 4: the plan removes all 48 neurons; at least one must stay",
        ),
        (
            [None, {4: [48]}],
            "layer 4: its neurons are numbered 0 to 47, the plan removes neuron 48; correct the "
            "plan",
        ),
    ],
)
def test_a_plan_that_does_not_fit(plan, message):
    with pytest.raises(PlanError) as caught:
        PruningPlan(*plan).check(12, 12, 48)
    assert str(caught.value) == message
    whole = PruningPlan({3: range(12)}, {3: range(48)})
    whole.check(12, 12, 48, allow_empty_layers=True)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ([1, 2], r"^a plan maps layers to heads, such as \{0: \[3, 5\]\}, found list$"),
        ({0: 1}, "^layer 0: a list of heads is needed, found 1$"),
        ({-1: [0]}, "plan: a layer must be a whole number from 0, found -1"),
        ({0: [1.5]}, "layer 0: a head must be a whole number from 0, found 1.5"),
        ({0: [True]}, "layer 0: a head must be a whole number from 0, found True"),
        ({0: [torch.tensor(True)]}, "layer 0: a head must be a whole number from 0, found tensor"),
        ({0: np.array([1.0])}, "layer 0: a head must be a whole number from 0, found "),
        ({0: [np.int64(1), 1]}, r"layer 0: each head may be named once, the plan has \[1, 1\]"),
        (
            {torch.tensor(0): [1], torch.tensor(0): [2]},
            "^layer 0: is named twice; name all its heads at once$",
        ),
    ],
)
def test_nonsense_is_refused(plan, message):
    with pytest.raises(PlanError, match=message):
        PruningPlan(plan)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([1], r'^plan: a plan is an object such as \{"heads": .*, found list$'),
        ({"²": [1]}, "plan: a layer must be a whole number from 0, found '²'"),
        ({"0": 1}, "plan: layer 0: heads must be a list, found int"),
        ({"0": [1], "00": [2]}, "plan: layer 0 is named twice"),
        ({"heads": [1]}, "^plan: heads must be an object of layer: heads, found list$"),
        ({"neurons": {"0": 4}}, "^plan: layer 0: neurons must be a list, found int$"),
        (
            {"neurons": {"0": "1-3,x"}},
            "^plan: layer 0: neurons must be numbers and spans such as \"0-63,70\", found 'x'$",
        ),
        ({"neurons": {"0": "5-3"}}, "found '5-3'$"),
        ({"neurons": {"0": "1,1"}}, "^layer 0: each neuron may be named once"),
        (
            {"neurons": {"0": "0-3000000", "1": "0-3000000"}},
            "^plan: layer 1: a plan may remove 4194304 neurons, this has more$",
        ),
    ],
)
def test_foreign_json_is_refused(data, message):
    with pytest.raises(PlanError, match=message):
        PruningPlan.from_json(data)


def test_a_plan_file(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text('{"0": [3, 5]}')
    assert PruningPlan.read(path) == PruningPlan({0: [3, 5]})
    path.write_text("{")
    with pytest.raises(PlanError, match="plan.json: cannot be read"):
        PruningPlan.read(path)
    with pytest.raises(PlanError, match=r"none.json: no such file; correct the path$"):
        PruningPlan.read(tmp_path / "none.json")
