"""What the parts of a preset are worth: its search without one of them, judged on development rows as in `develop`.

All searches of a process begin with the same fine-tuned start and ask the same scouts, which are tuned once: a part may be left out of
how the scouts are asked, not of how they are tuned. Each decides for itself how many heads go and is tuned after the layers that lose some; the
unpruned model is tuned as the search with all parts is.

python -m experiments.parts --model mpnet-base --task rte --data GLUE --seed 0 --without reward.caution=0 --without search.prior=none --out rte-0.json
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor
from transformers import PreTrainedModel

from auber import api
from auber.config import make_config
from auber.data import load_task
from auber.run.tunings import Tunings
from auber.training.tuning import TuningReport
from experiments.command import settings_of_all, write
from experiments.develop import describe_developing, developing, developing_parser, numbers
from experiments.summary import CONTROL, WHOLE


@contextmanager
def fold_models_tuned_once() -> Iterator[None]:
    """Inside the context, reuse the weights of a fold model that was tuned alike on the same rows."""
    known: dict[str, tuple[dict[str, Tensor], list[TuningReport]]] = {}
    run_all = Tunings.run_all

    def once(self: Tunings, model: PreTrainedModel, layers: Iterable[int]) -> list[TuningReport]:
        config, rows, layers = self._request.config, self._splits, list(layers)
        tuned_on = (
            rows.first,
            [rows.layers[layer].mini_train for layer in layers],
            rows.last_train,
            rows.last_watch,
        )
        settings = config.seed, config.first, config.layer, config.last
        hardware, content = self._request.hardware, self._train.content_hash
        key = repr((self._fold, layers, settings, hardware, content, tuned_on))
        if key in known:
            weights, reports = known[key]
            model.load_state_dict(weights)
            return reports
        reports = run_all(self, model, layers)
        weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        known[key] = weights, reports
        return reports

    Tunings.run_all = once  # type: ignore[method-assign]
    try:
        yield
    finally:
        Tunings.run_all = run_all  # type: ignore[method-assign]


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
    with tempfile.TemporaryDirectory(prefix="auber-parts-") as folder, fold_models_tuned_once():
        start, whole = Path(folder) / "start", Path(folder) / "whole"
        api.finetune(arguments.model, task=task, config=configs[WHOLE], out=start)
        for name, config in configs.items():
            found = api.prune(start, task=task, config=config, out=whole if name == WHOLE else None)
            content["runs"][name] = numbers(found.result)
            write(arguments.out, content)
        control = api.prune(start, task=task, method=CONTROL, heads=whole, config=configs[WHOLE])
        content["runs"][CONTROL] = numbers(control.result)
        write(arguments.out, content)


if __name__ == "__main__":
    main()
