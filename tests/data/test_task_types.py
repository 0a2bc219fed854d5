from __future__ import annotations

import pytest

from auber.data.task_types import TASK_TYPES, get_task_type, task_type_of_class
from auber.errors import ConfigError
from auber.training.outputs import OUTPUTS
from tests.tiny_models import MODEL_TYPES, tiny_model


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_family_has_a_class_of_every_kind(model_type):
    for kind in TASK_TYPES.values():
        model = tiny_model(model_type, kind=kind.name)
        assert kind.model_class(model.config) is type(model)
        assert task_type_of_class(type(model).__name__) is kind


def test_a_class_without_a_classifier_is_of_no_kind():
    assert task_type_of_class("BertModel") is None
    assert task_type_of_class("BertForMaskedLM") is None
    assert task_type_of_class(None) is None


def test_an_unknown_kind_names_its_neighbour():
    with pytest.raises(
        ConfigError,
        match=r"^Unknown kind 'token'\. Did you mean 'tokens'\? Known: sequence, spans, tokens$",
    ):
        get_task_type("token")


def test_the_tables_have_an_entry_a_kind():
    assert OUTPUTS.keys() == TASK_TYPES.keys()
    assert all(kind.name == name for name, kind in TASK_TYPES.items())
