"""What a run removes: a number of heads, to one or several sizes, or as a matched run did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from auber.config import Config
from auber.data.task import TaskData
from auber.errors import ConfigError, RunError
from auber.models.encoders.base import Encoder
from auber.run import files
from auber.run.result_record import ResultRecord
from auber.search.methods import Method
from auber.search.rankings.selection import check_size
from auber.search.registry import METHODS

HALF = 0.5  # the size if none is given
TRIED_SIZES = (0.75, 0.5, 0.35, 0.25, 0.18, 0.125)  # for a tolerance


def check_keep(keep: float | str | Sequence[float]) -> str:
    """Return the shares to keep as the setting has them; `keep` is one, or several."""
    given: Any = keep.split(",") if isinstance(keep, str) else keep
    try:
        shares = [
            0.0 if isinstance(share, bool) else float(share)
            for share in (given if isinstance(given, (list, tuple)) else [given])
        ]
    except (TypeError, ValueError):
        shares = []
    if not shares or not all(0 < share <= 1 for share in shares):
        raise ConfigError(
            "--keep must be a share of the encoder's multiply-adds, above 0 and at most 1, found "
            f"{keep!r:.40}; give one such as 0.5"
        )
    return ",".join(map(repr, shares))


def most_to_remove(encoder: Encoder, layers: Iterable[int]) -> int:
    """Return how many heads these layers can lose: one stays in each."""
    return sum(max(0, len(encoder.present(layer)) - 1) for layer in layers)


def assign_target(
    method: Method, config: Config, heads: int | str | Path | None, task: TaskData
) -> tuple[Config, int | None, ResultRecord | None]:
    """Return the settings of the method, the number of heads and the result of the run to match.

    Under crossfit, the number of heads for a search is a setting.
    """
    config = config.replace(method.settings)
    if config.size.keep or config.size.tolerance is not None:
        _check_target(method, config, heads)
        return config, None, None
    if isinstance(heads, (str, Path)):
        return _match(method, config, Path(heads), task)
    if heads is None:
        if method.removes_neurons:
            return config.replace({"size.keep": HALF}), None, None
        if method.removes_heads and not method.decides_number:
            raise ConfigError(
                f"method '{method.name}' must be given what to remove; give --keep SHARE, --heads "
                "P or --heads-from RUN"
            )
        return config, None, None
    if type(heads) is not int:
        raise ConfigError(f"--heads must be a whole number, found {heads!r:.40}")
    if heads < 0:
        raise ConfigError(f"--heads must be 0 or more, found {heads}")
    if method.uses_fold_models(config.protocol):
        if heads == 0:
            raise ConfigError(
                "--heads must be at least 1 for a search, found 0; leave it out, and the rewards "
                "decide"
            )
        return config.replace({"search.heads": heads}), None, None
    if method.decides_number:
        raise ConfigError(
            f"method '{method.name}' decides itself how many heads to remove; leave out --heads, "
            "or set protocol=crossfit"
        )
    if not method.removes_heads:
        raise ConfigError(f"method '{method.name}' removes no heads; leave out --heads")
    return config, heads, None


def _check_target(method: Method, config: Config, heads: int | str | Path | None) -> None:
    """Raise `ConfigError` unless the method can prune to a target size."""
    size = config.size
    option = "--keep" if size.keep else "--tolerance"
    if heads is not None:
        value = ",".join(f"{share:g}" for share in size.shares) or f"{size.tolerance:g}"
        raise ConfigError(
            f"{option} {value} and a number of heads exclude each other; give one of them"
        )
    if method.decides_number:
        able = ", ".join(each.name for each in METHODS.values() if each.removes_neurons)
        raise ConfigError(
            f"method '{method.name}' decides by its rewards how many heads go; leave out {option}, "
            f"or choose --method {able}"
        )
    if not method.removes_heads:
        raise ConfigError(f"method '{method.name}' removes nothing; leave out {option}")
    if not method.removes_neurons and (size.even or size.units != "heads"):
        raise ConfigError(
            f"method '{method.name}' ranks heads only; add --units heads, or choose another method"
        )


def _match(
    method: Method, config: Config, run: Path, task: TaskData
) -> tuple[Config, None, ResultRecord]:
    """Return the settings with the target size of a run, if it had one, and the run's result."""
    if method.decides_number:
        is_able = method.uses_fold_models(config.protocol)
        remedy = "give --heads" if is_able else "set protocol=crossfit and give --heads"
        raise ConfigError(
            "--heads-from is for methods that take the number of heads to remove, and "
            f"'{method.name}' decides it; leave it out, or {remedy}"
        )
    matched = _read_matched(run, task, config)
    size = {key: value for key, value in matched.config.items() if key.startswith("size.")}
    if method.removes_heads and size.get("size.keep"):
        config = config.replace(size)
        _check_target(method, config, None)
    return config, None, matched


def _read_matched(run: Path, task: TaskData, config: Config) -> ResultRecord:
    """Return the result of the run to match, checked to be comparable."""
    result = files.read_result_record(run)
    if result.data != task.content_hash:
        other = "other rows of its task"
        if result.task != task.name:
            other = f"other rows (task {result.task}) than this run (task {task.name})"
        raise RunError(f"{run}: has {other}; a run can be matched only with the same")
    found, wanted = (result.protocol, result.seed), (config.protocol, config.seed)
    if found != wanted:
        raise RunError(
            f"{run}: has (protocol, seed) {found}, this run {wanted}; a run can be matched only "
            "with the same"
        )
    ours, theirs = config.flat(), result.config
    for key in ours:
        tunes = key.startswith(("layer.", "last.")) or key in ("reward.fraction", "max_length")
        if tunes and theirs.get(key, ours[key]) != ours[key]:
            raise RunError(
                f"{run}: has {key} = {theirs[key]!r}, this run {ours[key]!r}; a run is compared "
                f"only with the same tuning: give --set {key}={theirs[key]}"
            )
    return result


def count_removed(
    method: Method,
    config: Config,
    heads: int | None,
    matched: ResultRecord | None,
    encoder: Encoder,
) -> int | None:
    """Return how many heads a ranking removes; None for other methods and for a target size."""
    if method.decides_number or not method.removes_heads or config.size.keep:
        return None
    number = heads if matched is None else matched.heads.removed - encoder.removed.num_heads
    assert number is not None, "`assign_target` requires one"
    most = most_to_remove(encoder, range(encoder.num_layers))
    if not 0 <= number <= most:
        raise ConfigError(
            f"--heads must be from 0 to {most} (one head stays in each layer), found {number}"
        )
    return number


def list_sizes(encoder: Encoder, config: Config) -> str:
    """Return the sizes to try for a tolerance: those of `TRIED_SIZES` that the encoder can have."""
    possible = []
    for share in TRIED_SIZES:
        try:
            check_size(encoder, config.size.model_copy(update={"keep": share}), config.max_length)
        except ConfigError as error:
            reason = error
        else:
            possible.append(f"{share:g}")
    if not possible:
        raise ConfigError(f"--tolerance: none of the sizes {TRIED_SIZES} can be had ({reason})")
    return ",".join(possible)
