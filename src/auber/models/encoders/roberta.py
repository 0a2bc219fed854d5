"""RoBERTa and the models that differ from it only in vocabulary and weights: XLM-R and CamemBERT."""

from __future__ import annotations

from auber.models.encoders.bert import BertLayout


class Roberta(BertLayout):
    """RoBERTa, XLM-R, CamemBERT."""

    family = "roberta"
    model_types = ("camembert", "roberta", "xlm-roberta")
