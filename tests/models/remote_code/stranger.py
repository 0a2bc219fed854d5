"""Load folders of pruned models with torch and transformers, but without this package.

    python stranger.py FOLDER CHECK...

`FOLDER` holds a model folder per family, and `batches/FAMILY.safetensors`. The results of each
check, or its error, are written to `FOLDER/answers/CHECK.json`. This file imports nothing of the
project; `test_stranger.py` runs it in an environment of its own.
"""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from pathlib import Path

sys.modules["auber"] = None  # type: ignore[assignment]  # even where it is installed

TEXTS = ["the film is good", "bad"]


def load(folder, auto=None):
    from transformers import AutoModelForSequenceClassification

    auto = auto or AutoModelForSequenceClassification
    return auto.from_pretrained(folder, trust_remote_code=True).eval()


def batch_of(family):
    from safetensors.torch import load_file

    return load_file(family.parent / "batches" / f"{family.name}.safetensors")


def numbers(tensor):
    return tensor.detach().double().tolist()


def tokens(folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")


def logits(families):
    return {family.name: numbers(load(family)(**batch_of(family)).logits) for family in families}


def encoder(families):
    from transformers import AutoModel

    return {
        family.name: numbers(load(family, AutoModel)(**batch_of(family))[0]) for family in families
    }


def resave(families):
    """`save_pretrained` copies the modeling file, so that the copy of a copy loads too."""
    found = {}
    for family in families:
        copy = family.parent / "copies" / family.name
        load(family).save_pretrained(copy)
        found[family.name] = numbers(load(copy)(**batch_of(family)).logits)
    return found


def classify(families):
    from transformers import pipeline

    (bert,) = [family for family in families if family.name == "bert"]
    classifier = pipeline("text-classification", model=str(bert), trust_remote_code=True)
    answers = classifier(TEXTS, top_k=None)
    return {"answers": answers, "logits": numbers(load(bert)(**tokens(bert)).logits)}


def train(families):
    """One step with Trainer, saved and loaded again."""
    with warnings.catch_warnings(action="ignore"):  # of what is imported
        from transformers import AutoTokenizer, Trainer, TrainingArguments

    found = {}
    for family in families:
        if family.name not in ("bert", "mpnet"):
            continue
        model, batch = load(family), batch_of(family)
        place = family.parent / "trained" / family.name
        before = numbers(model(**batch).logits)
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
        found[family.name] = {
            "before": before,
            "trained": numbers(model.eval()(**batch).logits),
            "loaded": numbers(load(place)(**batch).logits),
        }
    return found


def quantise(families):
    """Dynamic quantisation to 8 bits, which torch 2.13 still has but calls deprecated."""
    import torch

    found = {}
    for family in families:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "torch.ao.quantization is deprecated", DeprecationWarning
            )
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor, ", UserWarning)
            small = torch.ao.quantization.quantize_dynamic(
                load(family), {torch.nn.Linear}, dtype=torch.qint8
            )
        linears = {
            type(module).__module__
            for module in small.modules()
            if type(module).__name__ == "Linear"
        }
        answer = numbers(small(**batch_of(family)).logits)
        found[family.name] = {"logits": answer, "linears": sorted(linears)}
    return found


def sentences(families):
    with warnings.catch_warnings(action="ignore"):  # of what is imported
        from sentence_transformers import SentenceTransformer
    from transformers import AutoModel

    (bert,) = [family for family in families if family.name == "bert"]
    place = str(bert.parent / "sentences")
    embedder = SentenceTransformer(str(bert), trust_remote_code=True, device="cpu")
    embedded = embedder.encode(TEXTS)
    embedder.save(place)
    again = SentenceTransformer(place, trust_remote_code=True, device="cpu").encode(TEXTS)
    batch = tokens(bert)
    mask = batch["attention_mask"][..., None]
    hidden = load(bert, AutoModel)(**batch)[0]  # (rows, length, hidden)
    return {
        "embedded": embedded.tolist(),
        "again": again.tolist(),
        "mean": numbers((hidden * mask).sum(1) / mask.sum(1)),
    }


def compile(families):  # noqa: A001
    import torch

    return {
        family.name: numbers(torch.compile(load(family))(**batch_of(family)).logits)
        for family in families
        if family.name in ("bert", "mpnet")
    }


CHECKS = (logits, encoder, resave, classify, train, quantise, sentences, compile)


def main() -> None:
    folder, requested = Path(sys.argv[1]), sys.argv[2:]
    import torch
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    families = sorted(path.parent for path in folder.glob("*/modeling_auber.py"))
    (folder / "answers").mkdir(exist_ok=True)
    for check in CHECKS:
        if check.__name__ not in requested:
            continue
        # torch's compiler warns about itself, and DeBERTa in transformers uses torch.jit.script.
        warnings.simplefilter("ignore" if check is compile else "error")
        warnings.filterwarnings("ignore", "`torch.jit.script`", DeprecationWarning)
        try:
            with torch.set_grad_enabled(check is train):
                answer = check(families)
        except Exception:
            answer = {"error": traceback.format_exc()}
        (folder / "answers" / f"{check.__name__}.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
