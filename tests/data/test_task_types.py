from __future__ import annotations

import pytest

from auber.data.task_types import TASK_TYPES, get_task_type, task_type_of_class
from auber.errors import ConfigError
from tests.tiny_models import MODEL_TYPES, tiny_model


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_family_has_a_class_for_every_type(model_type):
    for task_type in TASK_TYPES.values():
        model = tiny_model(model_type, kind=task_type.name)
        assert task_type.model_class(model.config) is type(model)
        assert task_type_of_class(type(model).__name__) is task_type


@pytest.mark.parametrize("name", ["BertForMaskedLM", "BertForPreTraining", None])
def test_other_classes_have_no_type(name):
    assert task_type_of_class(name) is None


def test_an_unknown_kind_is_refused():
    message = r"^Unknown kind 'token'. Did you mean 'tokens'\? Known: embeddings, sequence"
    with pytest.raises(ConfigError, match=message):
        get_task_type("token")
