"""Use folders of pruned models with torch and transformers, but without this package.

    python stranger.py FOLDER CHECK...

`FOLDER` holds a model folder per family, `batches/FAMILY.safetensors`, and in
`expected/FAMILY.safetensors` what this package computes; `FOLDER/even` holds the same for models
whose layers have one width, which the check `plain` loads, with transformers 4 too. The error of
each check, or null, is written to `FOLDER/errors.json`. This file imports nothing of the project;
`test_stranger.py` runs it in an environment of its own.
"""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from pathlib import Path

sys.modules["auber"] = None  # type: ignore[assignment]  # even where it is installed

TEXTS = ["the film is good", "bad"]
SOME = ("bert", "mpnet")  # the families of the checks that do not depend on them


def load(folder, auto="AutoModelForSequenceClassification"):
    import transformers

    return getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True).eval()


def read(family, kind="batches"):
    from safetensors.torch import load_file

    return load_file(family.parent / kind / f"{family.name}.safetensors")


def tokens(folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")


def assert_near(found, expected, tolerance=1e-6):
    import torch

    found, expected = (torch.as_tensor(each, dtype=torch.float64) for each in (found, expected))
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


def only(families, names=SOME):
    return [family for family in families if family.name in names]


def logits(families):
    for family in families:
        assert_near(load(family)(**read(family)).logits, read(family, "expected")["logits"])


def plain(families):
    """Models with layers of one width are ordinary ones: no flag, no file of code."""
    from transformers import AutoModelForSequenceClassification

    for family in families:
        even = family.parent / "even" / family.name
        assert "auto_map" not in json.loads((even / "config.json").read_text())
        assert not list(even.glob("*.py"))
        model = AutoModelForSequenceClassification.from_pretrained(even).eval()
        assert_near(model(**read(even)).logits, read(even, "expected")["logits"], 1e-5)
        assert tokens(even)["input_ids"].tolist() == [[2, 8, 7, 9, 5, 3], [2, 6, 3, 0, 0, 0]]


def encoder(families):
    for family in families:
        hidden = load(family, "AutoModel")(**read(family))[0]
        assert_near(hidden, read(family, "expected")["hidden"])


def resave(families):
    """`save_pretrained` copies the modeling file, so that the copy of a copy loads too."""
    for family in families:
        copy = family.parent / "copies" / family.name
        load(family).save_pretrained(copy)
        assert_near(load(copy)(**read(family)).logits, read(family, "expected")["logits"])


def classify(families):
    from transformers import pipeline

    (bert,) = only(families, ["bert"])
    classifier = pipeline("text-classification", model=str(bert), trust_remote_code=True)
    scores = load(bert)(**tokens(bert)).logits.softmax(-1)
    for row, expected in zip(classifier(TEXTS, top_k=None), scores, strict=True):
        found = {entry["label"]: entry["score"] for entry in row}
        assert_near([found["no"], found["yes"]], expected)


def train(families):
    """One step with Trainer, saved and loaded again."""
    from safetensors.torch import save_file

    with warnings.catch_warnings(action="ignore"):  # of what is imported
        from transformers import AutoTokenizer, Trainer, TrainingArguments

    for family in only(families):
        model, batch = load(family), read(family)
        place = family.parent / "trained" / family.name
        before = model(**batch).logits.detach()
        rows = [{"input_ids": ids[:4], "label": ids[0] % 2} for ids in batch["input_ids"].tolist()]
        arguments = TrainingArguments(
            place,
            max_steps=1,
            learning_rate=1e-3,
            report_to=[],
            use_cpu=True,
            save_strategy="no",
            disable_tqdm=True,
        )
        tokenizer = AutoTokenizer.from_pretrained(family)
        trainer = Trainer(model, arguments, train_dataset=rows, processing_class=tokenizer)
        trainer.train()
        trainer.save_model(place)
        trained = model.eval()(**batch).logits.detach()
        assert (trained - before).abs().max() > 1e-4
        assert_near(load(place)(**batch).logits, trained)
        save_file({"logits": trained}, place / "logits.after")


def quantise(families):
    """Dynamic quantisation to 8 bits, which torch 2.13 still has but calls deprecated."""
    import torch

    warnings.filterwarnings("ignore", "torch.ao.quantization is deprecated", DeprecationWarning)
    warnings.filterwarnings("ignore", "torch.quantize_per_tensor, ", UserWarning)
    for family in only(families):
        linear = {torch.nn.Linear}
        small = torch.ao.quantization.quantize_dynamic(load(family), linear, dtype=torch.qint8)
        assert not any(type(module) is torch.nn.Linear for module in small.modules())
        found = small(**read(family)).logits
        assert_near(found, read(family, "expected")["quantised"], 1e-5)


def sentences(families):
    with warnings.catch_warnings(action="ignore"):  # of what is imported
        from sentence_transformers import SentenceTransformer

    (bert,) = only(families, ["bert"])
    place = str(bert.parent / "sentences")
    embedder = SentenceTransformer(str(bert), trust_remote_code=True, device="cpu")
    embedded = embedder.encode(TEXTS)
    embedder.save(place)
    again = SentenceTransformer(place, trust_remote_code=True, device="cpu").encode(TEXTS)
    batch = tokens(bert)
    mask = batch["attention_mask"][..., None]
    hidden = load(bert, "AutoModel")(**batch)[0]  # (rows, length, hidden)
    assert_near(embedded, (hidden * mask).sum(1) / mask.sum(1), 1e-5)
    assert_near(again, embedded)
    assert abs(embedded[0] - embedded[1]).max() > 0.01


def vectors(families):
    """Sentence encoders, and what they save."""
    with warnings.catch_warnings(action="ignore"):  # of what is imported
        from sentence_transformers import SentenceTransformer

    for family in families:
        folder = family.parent / "encoders" / family.name
        expected = read(family, "expected")["vectors"]
        encoder = SentenceTransformer(str(folder), trust_remote_code=True, device="cpu")
        assert_near(encoder.encode(TEXTS), expected)
        if family.name in SOME:
            encoder.save(f"{folder}-again")
            again = SentenceTransformer(f"{folder}-again", trust_remote_code=True, device="cpu")
            assert_near(again.encode(TEXTS), expected)


def compile(families):  # noqa: A001
    import torch

    for family in only(families):
        found = torch.compile(load(family))(**read(family)).logits
        assert_near(found, read(family, "expected")["logits"], 1e-5)


CHECKS = (logits, plain, encoder, resave, classify, train, quantise, sentences, vectors, compile)


def main() -> None:
    folder, requested = Path(sys.argv[1]), sys.argv[2:]
    import torch
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    families = sorted(folder / path.stem for path in folder.glob("batches/*"))
    errors = {}
    for check in CHECKS:
        if check.__name__ not in requested:
            continue
        # torch's compiler warns about itself, and DeBERTa in transformers uses torch.jit.script.
        warnings.simplefilter("ignore" if check is compile else "error")
        warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)
        try:
            with torch.set_grad_enabled(check is train):
                check(families)
            errors[check.__name__] = None
        except Exception:
            errors[check.__name__] = traceback.format_exc()
    (folder / "errors.json").write_text(json.dumps(errors))


if __name__ == "__main__":
    main()
