"""A whole job of seconds: a tiny encoder, generated sentences and settings, all as files."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import torch

from auber.config import Config, make_config
from auber.data.agreement import make_agreement
from auber.data.agreement_model import build_tokenizer, vocabulary

SETTINGS: dict[str, Any] = {
    "threads": 1,
    "device": "cpu",
    "max_length": 24,
    "first.epochs": 2,
    "first.learning_rate": 1e-3,
    "layer.epochs": 1,
    "layer.learning_rate": 1e-3,
    "last.epochs": 2,
    "last.learning_rate": 1e-3,
    "agent.episodes": 6,
    "agent.hidden_size": 16,
    "agent.learning_starts": 8,
    "agent.batch_size": 8,
    "agent.stop_value": -1000.0,  # so low that heads are removed
}


def make_settings(**changes: Any) -> Config:
    """Return settings of a run of seconds; a key has `__` in the place of its dot."""
    changed = {key.replace("__", "."): value for key, value in changes.items()}
    return make_config("paper", settings=SETTINGS | changed)


def save_model(folder: Path) -> Path:
    """Save a tiny BERT with random weights, and its tokenizer."""
    from transformers import BertConfig, BertModel

    sizes = {"num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 32}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=len(vocabulary()),
            intermediate_size=64,
            max_position_embeddings=32,
            initializer_range=0.2,
            **sizes,
        )
        BertModel(config).eval().save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


def write_rows(folder: Path, rows: int) -> tuple[Path, Path]:
    """Write generated sentences to `train.csv` and `dev.csv`."""
    task = make_agreement(0, num_train=rows, num_dev=24)
    for name, found in (("train", task.train), ("dev", task.dev)):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            pairs = zip(found.texts(), found.labels, strict=True)
            writer = csv.writer(file)
            writer.writerow(("text", "label"))
            writer.writerows((text, label) for (text,), label in pairs)
    return folder / "train.csv", folder / "dev.csv"
