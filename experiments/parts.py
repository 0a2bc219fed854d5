"""What the parts of a preset are worth: its search without one of them, judged on development rows as in `develop`.

All searches of a process begin with the same fine-tuned start and ask the same scouts, which are tuned once: a part may be left out of
how the scouts are asked, not of how they are tuned. Each decides for itself how many heads go and is tuned after the layers that lose some; the
unpruned model is tuned as the search with all parts is.

python -m experiments.parts --model mpnet-base --task rte --data GLUE --seed 0 --without reward.caution=0 --without search.prior=none --out rte-0.json
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from auber import api
from auber.config import make_config
from auber.data import load_task
from auber.models.encoders import encoder_of
from auber.run.pipeline import Pipeline
from experiments.command import settings_of_all, write
from experiments.develop import describe_developing, developing, developing_parser, numbers
from experiments.summary import CONTROL, WHOLE


@contextmanager
def scouts_tuned_once() -> Iterator[None]:
    """Within the context, a scout that was tuned before in the same way on the same rows has the weights it had then."""
    known: dict[str, tuple[dict[str, Tensor], dict[str, Any]]] = {}
    tune = Pipeline._tune_scout

    def once(self: Pipeline, scout: PreTrainedModel, fold: int) -> dict[str, Any]:
        job, rows = self.job, self.splits.without_fold(fold)
        layers = job.layers(encoder_of(scout).num_layers)
        tuned_on = (
            rows.first,
            [rows.layers[layer].mini_train for layer in layers],
            rows.last_train,
            rows.last_watch,
        )
        tunings = job.config.seed, job.config.first, job.config.layer, job.config.last
        key = repr((fold, layers, tunings, job.hardware, self._train.content_hash, tuned_on))
        if key in known:
            weights, info = known[key]
            scout.load_state_dict(weights)
            return info
        info = tune(self, scout, fold)
        known[key] = (
            {name: tensor.detach().clone() for name, tensor in scout.state_dict().items()},
            info,
        )
        return info

    Pipeline._tune_scout = once  # type: ignore[method-assign]
    try:
        yield
    finally:
        Pipeline._tune_scout = tune  # type: ignore[method-assign]


def main() -> None:
    """The command line."""
    options = developing_parser(__doc__)
    options.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="KEY=VALUE,...",
        help="settings of one search; may be repeated",
    )
    arguments = options.parse_args()
    task = developing(
        load_task(arguments.task, data=arguments.data), arguments.develop, arguments.seed
    )
    settings = settings_of_all(arguments)
    changed = {
        each: dict(item.split("=", 1) for item in each.split(",")) for each in arguments.without
    }
    configs = {
        WHOLE: make_config(arguments.preset, task=task.name, settings=settings),
        **{name: make_config(arguments.preset, task=task.name, settings=settings | some) for name, some in changed.items()},
    }  # fmt: skip
    own = " ".join(f"--without {each}" for each in changed)
    content = describe_developing("parts", own, arguments, task, configs[WHOLE])
    with tempfile.TemporaryDirectory(prefix="auber-parts-") as folder, scouts_tuned_once():
        start, whole = Path(folder) / "start", Path(folder) / "whole"
        api.finetune(arguments.model, task=task, config=configs[WHOLE], out=start)
        for name, config in configs.items():
            found = api.prune(start, task=task, config=config, out=whole if name == WHOLE else None)
            content["runs"][name] = numbers(found.result)
            write(arguments.out, content)
        control = api.prune(
            start, task=task, method=CONTROL, heads_from=whole, config=configs[WHOLE]
        )
        content["runs"][CONTROL] = numbers(control.result)
        write(arguments.out, content)


if __name__ == "__main__":
    main()
