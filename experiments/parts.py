"""What the parts of a preset are worth: its search without one of them, judged on development rows as in `develop`.

All searches of a process begin with the same fine-tuned start and ask the same scouts, which are tuned once: a part may be left out of
how the scouts are asked, not of how they are tuned. Each decides for itself how many heads go, and all get the same tunings.

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
from auber.pipeline import Pipeline
from auber.tasks import load_task
from experiments.command import describe, parser, settings_of_all, write
from experiments.develop import developing, numbers
from experiments.summary import CONTROL, WHOLE


@contextmanager
def scouts_tuned_once() -> Iterator[None]:
    """Within the context, a scout that was tuned before in the same way on the same rows has the weights it had then."""
    known: dict[str, tuple[dict[str, Tensor], dict[str, Any]]] = {}
    tune = Pipeline._tune_scout

    def once(self: Pipeline, scout: PreTrainedModel, fold: int) -> dict[str, Any]:
        config = self.job.config
        rows = self.splits.without_fold(fold)
        tuned_on = rows.first, [layer.mini_train for layer in rows.layers], rows.last_train, rows.last_watch
        key = repr((fold, config.seed, config.first, config.layer, config.last, config.search.layers, tuned_on))
        if key in known:
            weights, info = known[key]
            scout.load_state_dict(weights)
            return info
        info = tune(self, scout, fold)
        known[key] = {name: tensor.detach().clone() for name, tensor in scout.state_dict().items()}, info
        return info

    Pipeline._tune_scout = once  # type: ignore[method-assign]
    try:
        yield
    finally:
        Pipeline._tune_scout = tune  # type: ignore[method-assign]


def main() -> None:
    """The command line."""
    options = parser(__doc__)
    options.add_argument("--preset", default="default")
    options.add_argument("--develop", type=float, default=0.25, help="share of train that no model is tuned on")
    options.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="KEY=VALUE,...",
        help="settings of one search; may be repeated",
    )
    arguments = options.parse_args()
    task = developing(load_task(arguments.task, data=arguments.data), arguments.develop, arguments.seed)
    settings = settings_of_all(arguments)
    changed = {each: dict(item.split("=", 1) for item in each.split(",")) for each in arguments.without}
    configs = {
        WHOLE: make_config(arguments.preset, task=task.name, settings=settings),
        **{name: make_config(arguments.preset, task=task.name, settings=settings | some) for name, some in changed.items()},
    }  # fmt: skip
    own = " ".join(
        [f"--preset {arguments.preset} --develop {arguments.develop:g}", *(f"--without {each}" for each in changed)]
    )
    content = {
        **describe("parts", own, arguments, task, configs[WHOLE]),
        "metric": task.metric,
        "rows": {"tuned": len(task.train), "develop": len(task.dev)},
    }
    with tempfile.TemporaryDirectory(prefix="auber-parts-") as folder, scouts_tuned_once():
        start = Path(folder) / "start"
        api.finetune(arguments.model, task=task, config=configs[WHOLE], out=start)
        for name, config in configs.items():
            content["runs"][name] = numbers(api.prune(start, task=task, config=config).result)
            write(arguments.out, content)
        control = api.prune(start, task=task, method=CONTROL, config=configs[WHOLE])
        content["runs"][CONTROL] = numbers(control.result)
        write(arguments.out, content)


if __name__ == "__main__":
    main()
