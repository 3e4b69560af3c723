"""Checks of requests to the Bot API, against its machine-readable specification, `bot-api.json`."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gateway.playground.telegram.chats import Wire

SPEC = Path(__file__).with_name("bot-api.json")

_UNREAD = {"rich_message"}
"""Arguments that `rich.py` checks instead."""

_PLAIN: Mapping[str, tuple[type, ...]] = {
    "Integer": (int,),
    "Float": (int, float),
    "String": (str,),
    "Boolean": (bool,),
    "True": (bool,),
}


@cache
def specification() -> dict[str, Any]:
    """Return the specification."""
    loaded: dict[str, Any] = json.loads(SPEC.read_text())
    return loaded


def violations(method: str, arguments: Mapping[str, Any], files: Collection[str]) -> list[str]:
    """Return the problems of a call.

    Args:
        method: The method's name in the URL.
        arguments: Form fields (all strings) or a JSON body (typed).
        files: Names of the uploaded parts.
    """
    spec = specification()
    known = spec["methods"].get(method)
    if known is None:
        return [f"{method}: unknown method"]
    fields = {field["name"]: field for field in known.get("fields", [])}
    arguments = {name: value for name, value in arguments.items() if name not in _UNREAD}
    fields = {name: field for name, field in fields.items() if name not in _UNREAD}
    return [f"{method}: {problem}" for problem in _problems(spec, fields, arguments, files)]


def type_violations(kind: str, value: Wire, where: str = "value") -> list[str]:
    """Return why a value does not have a type of the Bot API, such as "Message" or "Array of Poll"."""
    return list(_value(specification(), value, kind, where))


def _problems(
    spec: dict[str, Any],
    fields: Mapping[str, Any],
    arguments: Mapping[str, Any],
    files: Collection[str],
) -> Iterator[str]:
    for name, field in fields.items():
        if field["required"] and name not in arguments and name not in files:
            yield f"missing argument {name}"
    for name, value in arguments.items():
        if name not in fields:
            yield f"unknown argument {name}"
            continue
        found = [list(_argument(spec, value, kind, name)) for kind in fields[name]["types"]]
        if all(found):
            yield from found[0]
    for name in files:
        if name not in fields or "InputFile" not in fields[name]["types"]:
            yield f"unexpected file {name}"


def _argument(spec: dict[str, Any], value: Wire, kind: str, where: str) -> Iterator[str]:
    """Check one argument. Form fields contain everything except text as JSON."""
    if isinstance(value, str) and kind not in {"String", "InputFile"}:
        try:
            value = json.loads(value)
        except ValueError:
            yield f"{where}: not {kind}"
            return
    yield from _value(spec, value, kind, where)


def _value(spec: dict[str, Any], value: Wire, kind: str, where: str) -> Iterator[str]:
    if kind in _PLAIN:
        right = isinstance(value, _PLAIN[kind])
        if not right or (isinstance(value, bool) and bool not in _PLAIN[kind]):
            yield f"{where}: {value!r:.60} is not {kind}"
    elif kind == "InputFile":
        if not re.fullmatch(r"attach://\w+", str(value)):
            yield f"{where}: not a file"
    elif kind.startswith("Array of "):
        if not isinstance(value, list):
            yield f"{where}: not an array"
            return
        for index, item in enumerate(value):
            yield from _value(spec, item, kind.removeprefix("Array of "), f"{where}[{index}]")
    else:
        yield from _typed(spec, value, spec["types"][kind], where)


def _typed(
    spec: dict[str, Any], value: Wire, described: dict[str, Any], where: str
) -> Iterator[str]:
    variants = described.get("subtypes")
    if not variants:
        yield from _object(spec, value, described, where)
        return
    found = [list(_value(spec, value, name, where)) for name in variants]
    if all(found):
        yield f"{where}: none of {', '.join(variants)}"


def _object(
    spec: dict[str, Any], value: Wire, described: dict[str, Any], where: str
) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: not an object"
        return
    fields = {field["name"]: field for field in described.get("fields", [])}
    required = {name for name, field in fields.items() if field["required"]}
    yield from (f"{where}: {name} is missing" for name in sorted(required - set(value)))
    for name, inner in value.items():
        kinds = fields[name]["types"] if name in fields else []
        found = [list(_value(spec, inner, kind, f"{where}.{name}")) for kind in kinds]
        if not found:
            yield f"{where}: unknown field {name}"
        elif all(found):
            yield from found[0]
