"""Validation messages for configuration trees: readable errors, unknown keys with the nearest known name. Pure."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from agent.config import Section
from gateway.config_file import join_path

TYPO_CUTOFF = 0.85
"""The similarity above which an unknown key is a likely misspelling."""

_SUGGESTION_CUTOFF = 0.6
_MESSAGES = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "string_type": "must be text",
    "list_type": "must be a list, like [a, b]",
    "dict_type": "must be a section of `key: value` lines",
    "model_type": "must be a section of `key: value` lines",
    "model_attributes_type": "must be a section of `key: value` lines",
    "missing": "is missing: add it",
}


def format_validation_error(error: ValidationError, path: str) -> list[str]:
    """Return one line per error, "key.path: what is wrong". Never repeats values, which may be secret."""
    lines = []
    for item in error.errors(include_url=False, include_context=True, include_input=False):
        where = path
        for key in item["loc"]:
            where = join_path(where, key)
        what = _MESSAGES.get(item["type"]) or _plain_message(item["msg"])
        if item["type"] == "string_too_short" and item["ctx"]["min_length"] == 1:
            what = "must not be empty"
        for part in what.splitlines():  # a validator may have found several problems
            line = f"{where}: {part}" if where else part
            if line not in lines:
                lines.append(line)
    return lines


def drop_invalid(data: object, error: ValidationError) -> tuple[object, set[str]]:
    """Return `data` without the invalid parts, for further checks, and the first keys of the dropped parts.

    A list with an invalid entry is dropped as a whole, because the other entries would get wrong numbers.
    """
    dropped = set[str]()
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        if item["loc"]:
            dropped.add(str(item["loc"][0]))
            data = _without(data, item["loc"])
    return data, dropped


def _without(data: object, path: Sequence[int | str]) -> object:
    """Return `data` without the value at a path, or without the section that lacks it; None = nothing remains."""
    if isinstance(data, Mapping) and path and path[0] in data:
        below = _without(data[path[0]], path[1:])
        rest = {key: value for key, value in data.items() if key != path[0]}
        return rest if below is None else {**rest, path[0]: below}
    if isinstance(data, list) and path and isinstance(path[0], int):
        below = _without(data[path[0]], path[1:])
        return None if below is None else [*data[: path[0]], below, *data[path[0] + 1 :]]
    return None


def _plain_message(message: str) -> str:
    for start, instead in (("Value error, ", ""), ("Input should be", "must be")):
        if message.startswith(start):
            return instead + message.removeprefix(start)
    return message[:1].lower() + message[1:]


def closest_match(key: str, known: list[str], *, cutoff: float = _SUGGESTION_CUTOFF) -> str | None:
    """Return the known name that is closest to `key`.

    >>> closest_match("prot", ["port", "host"]), closest_match("zzz", ["port"])
    ('port', None)
    """
    names = {name.lower(): name for name in known}
    found = difflib.get_close_matches(key.lower(), names, n=1, cutoff=cutoff)
    return names[found[0]] if found else None


def is_likely_typo(key: str, known: Iterable[str]) -> bool:
    """Return whether an unknown key looks like a misspelling of a known one.

    >>> is_likely_typo("api_ke", ["api_key"]), is_likely_typo("top_k", ["api_key"])
    (True, False)
    """
    return closest_match(key, list(known), cutoff=TYPO_CUTOFF) is not None


def unknown_key_line(
    key: object, path: str, known: list[str], *, what: str = "unknown key, ignored"
) -> str:
    """Return the message for an unknown key, which may be a number. `what` says what happens to the key."""
    name = str(key)
    guess = closest_match(name, known)
    hint = f"; did you mean `{guess}`?" if guess else ""
    return f"{join_path(path, name)}: {what}{hint}"


def find_unknown_keys(model: type[BaseModel], data: object, path: str) -> Iterator[str]:
    """Yield a line for each key below `data` that `model` does not know.

    If extra keys are passed to a configured class, report only likely typos.
    """
    if not isinstance(data, Mapping):
        return
    known = list(model.model_fields)
    passes_on = issubclass(model, Section) and model.passes_extra_keys(data)
    for key, value in data.items():
        name = str(key)
        if name not in model.model_fields:
            if not passes_on or is_likely_typo(name, known):
                yield unknown_key_line(name, path, known)
            continue
        for inner, below, item in _models_in(model, name, value, join_path(path, name)):
            yield from find_unknown_keys(inner, item, below)


def _models_in(
    model: type[BaseModel], field: str, value: object, path: str
) -> Iterator[tuple[type[BaseModel], str, object]]:
    """Yield (model, path, data) of the sections in one field."""
    inner = _model_of(model.model_fields[field].annotation)
    if inner is None:
        return
    kind = get_origin(model.model_fields[field].annotation)
    if kind is list and isinstance(value, list):
        yield from ((inner, join_path(path, index), item) for index, item in enumerate(value))
    elif kind is dict and isinstance(value, Mapping):
        yield from ((inner, join_path(path, str(key)), item) for key, item in value.items())
    elif kind not in (list, dict):
        yield inner, path, value


def _model_of(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for arg in get_args(annotation) if (found := _model_of(arg))), None)


def normalize(model: type[BaseModel], data: object) -> object:
    """Return `data` without nulls (null means default), and with numbers in text fields as text.

    People often write platform IDs and tokens as bare numbers.
    """
    if not isinstance(data, Mapping):
        return {} if data is None else data
    result: dict[str, Any] = {}
    for key, value in data.items():
        name = str(key)
        known = model.model_fields.get(name)
        if known is None:
            result[name] = value
        elif value is not None:
            result[name] = _normalize_field(known.annotation, value)
    return result


def _normalize_field(annotation: object, value: object) -> object:
    inner = _model_of(annotation)
    if isinstance(value, list):
        return [
            normalize(inner, item) if inner else _number_to_text(annotation, item) for item in value
        ]
    if inner and isinstance(value, Mapping):
        if get_origin(annotation) is dict:
            return {str(key): normalize(inner, item) for key, item in value.items()}
        return normalize(inner, value)
    return _number_to_text(annotation, value)


def _number_to_text(annotation: object, value: object) -> object:
    """Return a number as text if the field is a text field."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number and annotation in (str, str | None, list[str]) else value
