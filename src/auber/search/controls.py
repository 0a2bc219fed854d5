"""The controls: the fine-tuned model as it is, and the same with all the tuning a pruned model gets."""

from __future__ import annotations

from auber.models.plan import PruningPlan
from auber.search.methods import Method, RankingChoice, RankingWork


def choose_plan(work: RankingWork) -> RankingChoice:
    """Remove nothing."""
    return RankingChoice(PruningPlan())


METHODS = (
    Method(
        "original",
        "the fine-tuned model as it is",
        choose_plan=choose_plan,
        removes_heads=False,
        tunes=False,
    ),
    Method(
        "original+tuning",
        "no head removed, all the tuning of a pruned model",
        choose_plan=choose_plan,
        removes_heads=False,
    ),
)
