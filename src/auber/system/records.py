"""Records: the JSON files of this project, declared as strict pydantic models.

A record is frozen, forbids extra keys and accepts finite numbers only. `read` and `parse` report
all problems of a file together, in one line that names the file, the keys and the remedy.
"""

from __future__ import annotations

import json
import typing
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from auber.errors import AuberError, RunError, show_name, show_value, suggest

LARGEST_NUMBER = 2**63 - 1  # larger whole numbers fit neither a seed nor a column of a table
_MOST_PROBLEMS = 20  # listed in one message


def _require_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be printable text")
    return text


# Text that is printed on terminals, in tables and in headings.
Name = Annotated[str, AfterValidator(_require_printable)]
Whole = Annotated[int, Field(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
Count = Annotated[int, Field(ge=0, le=LARGEST_NUMBER)]
# A score or a number of seconds; beyond this range it means nothing.
Number = Annotated[float, Field(gt=-1e15, lt=1e15)]


class Record(BaseModel):
    """Base class of everything that is stored as JSON.

    To rename a key, give the field `validation_alias=AliasChoices("new", "old")`. A validator
    raises `ValueError("must ...")`; the message is put behind the name of the key.
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        populate_by_name=True,
        protected_namespaces=(),
        defer_build=True,  # until first use: importing a module with records stays quick
    )

    def to_json(self, *, drop_none: bool = False) -> dict[str, Any]:
        """Return the record as plain JSON types, optionally without the keys that are None."""
        return self.model_dump(mode="json", exclude_none=drop_none)


R = TypeVar("R", bound=BaseModel)


def parse(
    cls: type[R], data: Any, where: str, remedy: str, *, error: type[AuberError] = RunError
) -> R:
    """Return the record that JSON data describes, or raise an `error` with all problems at once."""
    record, problems = validate(cls, data)
    if record is not None:
        return record
    raise error(f"{where}: {'; '.join(problems)}; it is damaged or of another version: {remedy}")


def validate(cls: type[R], data: Any) -> tuple[R | None, list[str]]:
    """Return the record that JSON data describes, or None and all problems."""
    try:
        # As text, because JSON has lists where a strict record has tuples.
        return cls.model_validate_json(json.dumps(data)), []
    except ValidationError as invalid:
        problems = [_describe(cls, problem) for problem in invalid.errors(include_url=False)]
    except (TypeError, ValueError, RecursionError) as invalid:
        problems = [f"must be JSON ({invalid})"]
    problems = list(dict.fromkeys(problems))
    if len(problems) > _MOST_PROBLEMS:
        more = len(problems) - _MOST_PROBLEMS
        problems = [*problems[:_MOST_PROBLEMS], f"{more} more problems"]
    return None, problems


def read(cls: type[R], path: str | Path, remedy: str, *, missing: str = "correct the path") -> R:
    """Return the record in a JSON file; `missing` is the remedy where there is no such file."""
    return parse(cls, read_json(path, remedy, missing=missing), str(path), remedy)


def read_if_there(cls: type[R], path: Path, remedy: str) -> R | None:
    """Return the record in a JSON file, None if there is no such file; it may vanish meanwhile."""
    try:
        return read(cls, path, remedy)
    except RunError:
        if path.exists():
            raise
        return None


def read_json(
    path: str | Path,
    remedy: str,
    *,
    missing: str = "correct the path",
    error: type[AuberError] = RunError,
) -> Any:
    """Return the content of a JSON file, or raise an `error` if it is missing or damaged."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as found:
        raise error(f"{path}: no such file; {missing}") from found
    except (OSError, ValueError, RecursionError) as found:
        raise error(f"{path}: cannot be read ({found}); it is damaged: {remedy}") from found


_WANTED = {
    "float_type": "a finite number",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "string_type": "text",
    "none_required": "null",
    "dict_type": "a JSON object",
    "model_type": "a JSON object",
    "model_attributes_type": "a JSON object",
    "list_type": "a list",
    "tuple_type": "a list",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "string_pattern_mismatch": "text that matches {pattern}",
    "too_short": "at least {min_length} entries long",
    "too_long": "at most {max_length} entries long",
}


def _describe(cls: type[BaseModel], problem: Any) -> str:
    """Return one problem that pydantic found, in the words of this project."""
    kind, place, context = problem["type"], problem["loc"], problem.get("ctx", {})
    # A member of a union is part of the place, as `tuple[int, ...]`, but not of the file.
    key = ".".join(show_name(str(part)) for part in place if "[" not in str(part))
    if kind == "missing":
        return f"lacks '{key}'"
    if kind == "extra_forbidden":
        return f"unknown key '{key}'.{suggest(str(place[-1]), _known_keys(cls, place[:-1]))}"
    if kind == "value_error":
        rule = str(context["error"])
    elif kind in _WANTED:
        rule = f"must be {_WANTED[kind].format_map(context)}"
    else:
        rule = f"is wrong ({problem['msg']})"
    subject = f"'{key}' " if key else ""
    if kind == "json_invalid" or (
        kind == "value_error" and isinstance(problem["input"], dict | list)
    ):
        return subject + rule
    return f"{subject}{rule}, found {show_value(problem['input'])}"


def _known_keys(cls: type[BaseModel], place: tuple[int | str, ...]) -> set[str]:
    """Return the keys of the record at a place, a path of keys and list indices."""
    models = {cls}
    for part in place:
        fields = [model.model_fields.get(str(part)) for model in models]
        inner = {found for field in fields if field for found in _models_in(field.annotation)}
        models = inner or models  # an index, a key of a dict or the name of a union's member
    return {key for model in models for key in model.model_fields}


def _models_in(annotation: Any) -> set[type[BaseModel]]:
    """Return the models that a type consists of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for part in typing.get_args(annotation) for model in _models_in(part)}
