"""The answers of the unpruned model: the labels of texts that have none.

`describe_task` reads from a model's head what the answers are: a class, a number, a tag for each
word, a span, or for an encoder without a head a vector. `answer_texts` runs the model over all
texts once, before the stages of a run, and stores the raw outputs in `stages/answers.safetensors`.
A resumed run reads them back. They are the labels of the run's task, and what a pruned model learns
from (`auber.training.distillation`). The scores of a pruned model are thus its agreement with the
unpruned one, on rows that it was not tuned on.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from auber.data.encoding import EncodedRows, encode_split
from auber.data.rows import Answer, AnyRows, QuestionRows, TextRows, WordRows
from auber.data.targets import Tags
from auber.data.task import TaskData
from auber.data.task_types import TASK_TYPES, task_type_of_class
from auber.data.texts import Texts
from auber.errors import ModelError, RunError
from auber.metrics.orders import compare_orders
from auber.metrics.spans import SpanTruth, best_spans
from auber.metrics.tags import NO_TAG, read_scheme
from auber.metrics.task_metrics import get_metric, predicts_one_vector
from auber.models.checkpoint import classes_of
from auber.models.sentence_files import read_modules
from auber.models.source import read_config, report_damage
from auber.run import files
from auber.run.folder import Run
from auber.run.request import Request
from auber.search.stages import ANSWERS
from auber.system.distributed import is_main_process, wait_for_all
from auber.system.files import digest_file, write_bytes
from auber.system.progress import Progress
from auber.training.evaluation import predict

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

SPLITS = ("train", "dev")
_AGAIN = "the unpruned model answers again"

# What is measured besides the metric of the task: the reward, and what is easy to read.
_MEASURES = {
    "classes": ("explained",),
    "numbers": ("r_squared",),
    "tags": ("token_accuracy", "tag_explained"),
    "spans": ("span_exact",),
    "vectors": ("cosine",),
}


def describe_task(texts: Texts, model: str | Path | PreTrainedModel) -> TaskData:
    """Return texts as the task that a model's head is for, with placeholders for its answers."""
    if isinstance(model, (str, Path)):
        run = files.find_run(model)
        place = run / "model" if run is not None and files.is_run(model) else model
        config, _ = read_config(place)
        name, head = str(model), str((config.architectures or ["none"])[0])
        task_type = task_type_of_class(head)
        if task_type is None and read_modules(place) is not None:
            task_type = TASK_TYPES["embeddings"]  # a sentence encoder of any architecture
    else:
        config, name, head = model.config, f"the live {type(model).__name__}", type(model).__name__
        task_type = task_type_of_class(head)
    if task_type is None:
        *heads, _ = (f"...{each.ending}" for each in TASK_TYPES.values())
        raise ModelError(
            f"{name}: has no trained head ({head}), so it has no answers to texts; give a model "
            f"{', '.join(heads)}, a sentence encoder, or rows with labels to tune it on"
        )
    if getattr(config, "problem_type", None) == "multi_label_classification":
        raise ModelError(
            f"{name}: gives several classes to a text (problem_type multi_label_classification); "
            "models with one class for each are supported"
        )
    names, metric = _describe_outputs(task_type.name, config)
    return texts.as_task(task_type, names, metric)


def _describe_outputs(kind: str, config: PreTrainedConfig) -> tuple[tuple[str, ...] | None, str]:
    """Return the names of the answers, None if they have none, and the metric of agreement."""
    if kind in ("spans", "embeddings"):
        return None, TASK_TYPES[kind].metric
    if kind == "sequence" and config.num_labels == 1:
        return None, "spearman"
    names = classes_of(config) or tuple(f"LABEL_{number}" for number in range(config.num_labels))
    if kind == "sequence":
        return names, "accuracy"
    return names, "token_accuracy" if read_scheme(names) is None else "entity_f1"


def answer_texts(request: Request, run: Run, progress: Progress) -> Request:
    """Return a request whose task has the unpruned model's answers; they are stored in the run."""
    if not request.task.is_answered:
        return request
    path = run.folder / "stages" / f"{ANSWERS}.safetensors"
    task, config, tokenizer = request.task, request.config, request.start.tokenizer
    encoded = {split: encode_split(tokenizer, task, split, config.max_length) for split in SPLITS}
    record = run.stage(ANSWERS)
    if record is None or not path.exists():
        started = time.perf_counter()
        model = request.start.model.to(request.hardware.device)
        if is_main_process():
            _write(path, model, encoded, progress)
        wait_for_all()
        seconds = round(time.perf_counter() - started, 3)
        record = run.finish_stage(
            ANSWERS, {"seconds": seconds, "answers_sha256": digest_file(path)}
        )
    model = request.start.model
    width = model.config.hidden_size if task.kind == "embeddings" else model.config.num_labels
    outputs = _read(path, record.answers_sha256, encoded, width)
    rows = {
        split: replace(
            unanswered := getattr(task, split),
            labels=_read_answers(
                tokenizer, unanswered, encoded[split], outputs[split], config.max_length
            ),
        )
        for split in SPLITS
    }
    answered = replace(task, **rows)
    _require_variety(answered)
    return replace(request, task=answered, answers=outputs)


def measure_agreement(logits: Tensor, rows: EncodedRows, task: TaskData) -> dict[str, Any]:
    """Return what an `AgreementRecord` has, for the logits of a model on dev."""
    truth = rows.truth(logits.device)
    names = _MEASURES[get_metric(task.metric).compares]
    found: dict[str, Any] = {
        "metrics": {
            name: float(get_metric(name).compute(logits, truth))
            for name in dict.fromkeys((task.metric, *names))
        }
    }
    if task.groups is not None and task.is_regression:
        orders = compare_orders(logits.reshape(-1).cpu(), rows.labels, task.groups)
        if orders is not None:
            found["orders"] = orders
    return found


def _write(
    path: Path, model: PreTrainedModel, encoded: Mapping[str, EncodedRows], progress: Progress
) -> None:
    """Store the outputs for all rows, packed as `auber.training.outputs` packs them."""
    from safetensors.torch import save

    progress.say(f"the unpruned model answers {sum(map(len, encoded.values()))} texts")
    # Without an end: it is none of the stages that are planned next.
    progress.begin("answers of the unpruned model", len(encoded))
    outputs = {}
    for number, (split, rows) in enumerate(encoded.items(), start=1):
        outputs[split] = predict(model, rows).cpu().contiguous()
        if not outputs[split].isfinite().all():
            raise ModelError(
                f"the unpruned model: its outputs for {split} must be finite numbers, found others"
                "; give a model whose weights are sound"
            )
        progress.step(number)
    write_bytes(path, save(outputs), durable=True)


def _read(
    path: Path, digest: str | None, encoded: Mapping[str, EncodedRows], width: int
) -> dict[str, Tensor]:
    """Return the stored outputs, `width` numbers each, if they are those that the run wrote."""
    from safetensors.torch import load

    with report_damage(f"{path}: cannot be read", f"delete it: {_AGAIN}"):
        data = path.read_bytes()
    if (found := hashlib.sha256(data).hexdigest()) != digest:
        raise RunError(
            f"{path}: must be the file the run wrote (sha256 {digest}), found another (sha256 "
            f"{found}): it is damaged or was changed; put a copy of it back, or delete it: {_AGAIN}"
        )
    # A run from elsewhere may have the digest of any file.
    with report_damage(f"{path}: is damaged", f"delete it: {_AGAIN}"):
        outputs: dict[str, Tensor] = load(data)
        for split, rows in encoded.items():
            by_token = rows.kind in ("tokens", "spans")
            count = sum(rows.lengths) if by_token else len(rows)
            shape = tuple(outputs[split].shape)
            if shape != (count, width) or not outputs[split].isfinite().all():
                raise ValueError(
                    f"{split} must be {count} rows of {width} finite numbers, found {shape}"
                )
    return outputs


def _read_answers(
    tokenizer: Any, rows: AnyRows, encoded: EncodedRows, outputs: Tensor, max_length: int
) -> tuple[Any, ...]:
    """Return the answers that the outputs for some rows give, as labels of these rows."""
    if isinstance(rows, WordRows):
        return _read_tags(rows, encoded, outputs)
    if isinstance(rows, QuestionRows):
        return _read_spans(tokenizer, rows, encoded, outputs, max_length)
    if isinstance(rows, TextRows):
        return tuple(outputs.numpy())
    if outputs.shape[1] == 1:
        return tuple(outputs[:, 0].tolist())
    return tuple(outputs.argmax(-1).tolist())


def _read_tags(rows: WordRows, encoded: EncodedRows, outputs: Tensor) -> tuple[Any, ...]:
    """Return the tags of words; a word that was cut off has the first tag, which nothing reads."""
    assert isinstance(encoded.targets, Tags)
    by_row = torch.split_with_sizes(outputs.argmax(-1), encoded.lengths)
    found = []
    # Until now the tag of a word is its number (`Texts.as_task`).
    for words, numbers, tags in zip(rows.words, encoded.targets.tags, by_row, strict=True):
        of_words = [0] * len(words)
        for number, tag in zip(numbers, tags.tolist(), strict=True):
            if number != NO_TAG:
                of_words[number] = tag
        found.append(tuple(of_words))
    return tuple(found)


def _read_spans(
    tokenizer: Any, rows: QuestionRows, encoded: EncodedRows, outputs: Tensor, max_length: int
) -> tuple[Any, ...]:
    """Return the text of each row's best span."""
    truth = encoded.truth(torch.device("cpu"))
    assert isinstance(truth, SpanTruth)
    spans = best_spans(outputs, truth).tolist()
    offsets = tokenizer(
        list(rows.questions),
        list(rows.contexts),
        truncation="only_second",
        max_length=max_length,
        return_offsets_mapping=True,
    )["offset_mapping"]
    found = []
    for context, places, (first, last) in zip(rows.contexts, offsets, spans, strict=True):
        start, end = places[first][0], places[last][1]
        text = context[start:end]
        # Some tokens begin at the space before their word.
        found.append((Answer(text.lstrip(), start + len(text) - len(text.lstrip())),))
    return tuple(found)


def _require_variety(task: TaskData) -> None:
    """Raise `ModelError` if all answers are the same."""
    labels: Sequence[Any] = (*task.train.labels, *task.dev.labels)
    if task.kind == "tokens":
        labels = [tag for tags in labels for tag in tags]
    if task.kind == "embeddings":
        vectors = torch.from_numpy(np.stack(labels))
        labels = ["one vector"] if predicts_one_vector(vectors) else range(len(labels))
    if task.kind != "spans" and len(set(labels)) == 1:
        only = task.label_names[labels[0]] if task.label_names else labels[0]
        raise ModelError(
            f"the unpruned model: gives every text the same answer, {only}, so there is nothing to "
            "keep; is its head trained, and are these the texts that it is for?"
        )
