"""A job of seconds: a tiny BERT, a few generated sentences and matching settings."""

from __future__ import annotations

from typing import Any

from auber.data.encoding import EncodedRows, encode_rows
from auber.data.generated import build_tokenizer, make_agreement, vocabulary
from auber.data.task import TaskData
from auber.system.progress import Progress
from auber.training.devices import Hardware, resolve_hardware
from benchmarks.tiny import SETTINGS as SETTINGS
from benchmarks.tiny import make_settings as small_config
from tests.tiny_models import tiny_model


def small_task(rows: int = 60) -> TaskData:
    """Return a few generated sentences."""
    return make_agreement(0, num_train=rows, num_dev=24)


def small_start(**changes: Any) -> tuple[Any, Any]:
    """Return an untrained tiny BERT and its tokenizer."""
    model = tiny_model("bert", vocab_size=len(vocabulary()), pad_token_id=0, **changes)
    return model, build_tokenizer()


def small_rows(count: int = 60) -> EncodedRows:
    """Return the encoded training rows of the small task."""
    return encode_rows(build_tokenizer(), small_task(count).train, 24, False)


def cpu() -> Hardware:
    """Return one thread in float32."""
    return resolve_hardware(small_config())


class Messages(Progress):
    """Keep the messages to the user in `said`."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)
