"""Converts the argument schemas of MCP tools to a form that every model provider accepts. Pure.

One schema can make a provider reject the whole request: a schema without `properties`, with `anyOf` or a similar key at
the top level, with an array without `items` (OpenAI), or with unusual characters in argument names (Anthropic).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 30
"""Maximum depth; deeper parts of a schema stay unchanged."""

NAME_CHARS = 64

_COMBINATIONS = ("allOf", "anyOf", "oneOf")
_REJECTED_AT_TOP = frozenset({*_COMBINATIONS, "not", "enum"})
_VALUES = frozenset({"default", "const", "enum", "examples"})
"""Keys that hold values, not schemas."""

_ODD = re.compile(r"[^A-Za-z0-9_.-]")

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolArguments:
    """A tool's arguments as models see them.

    Attributes:
        schema: Their schema.
        renamed: The server's names of renamed arguments, by the name that models see.
    """

    schema: dict[str, Any]
    renamed: Mapping[str, str]

    def for_server(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return a call's arguments under the server's names, without nulls that mean "not given".

        Models write null for optional arguments. Servers reject null unless their schema allows it.
        """
        given: dict[str, Any] = _without_nulls(arguments, self.schema, self.schema, MAX_DEPTH)
        return {self.renamed.get(name, name): value for name, value in given.items()}


def tool_arguments(schema: Schema) -> ToolArguments:
    """Return a tool's arguments in a form that every provider accepts.

    >>> arguments = tool_arguments({"properties": {"$top": {"type": "array"}}, "required": ["$top"]})
    >>> arguments.schema
    {'properties': {'_top': {'type': 'array', 'items': {}}}, 'type': 'object', 'required': ['_top']}
    >>> arguments.for_server({"_top": [1], "x": 2})
    {'$top': [1], 'x': 2}
    """
    properties, required = _flattened(schema, schema, depth=4)
    names = _accepted_names(properties)
    kept = {key: value for key, value in schema.items() if key not in _REJECTED_AT_TOP}
    kept |= {
        "type": "object",
        "properties": {names[name]: one for name, one in properties.items()},
    }
    kept.pop("required", None)
    if required:
        kept["required"] = [names[name] for name in properties if name in required]
    renamed = {seen: name for name, seen in names.items() if seen != name}
    return ToolArguments(schema=_with_items(kept, MAX_DEPTH), renamed=renamed)


def _flattened(schema: Schema, root: Schema, depth: int) -> tuple[dict[str, Any], set[str]]:
    """Return the properties of a schema and of the schemas it combines, and the names of the required ones."""
    schema = _referenced(schema, root)
    own = schema.get("properties")
    found = {name: [one] for name, one in own.items()} if isinstance(own, Mapping) else {}
    listed = schema.get("required")
    required = {name for name in listed if name in found} if isinstance(listed, list) else set()
    for kind in _COMBINATIONS if depth else ():
        parts = [_flattened(part, root, depth - 1) for part in _parts(schema, kind)]
        for properties, _ in parts:
            for name, one in properties.items():
                variants = found.setdefault(name, [])
                if one not in variants:
                    variants.append(one)
        needed = [names for _, names in parts]
        if needed:
            required |= set.union(*needed) if kind == "allOf" else set.intersection(*needed)
    merged = {name: one[0] if len(one) == 1 else {"anyOf": one} for name, one in found.items()}
    return merged, required


def _parts(schema: Schema, kind: str) -> Iterator[Schema]:
    parts = schema.get(kind)
    yield from (
        (part for part in parts if isinstance(part, Mapping)) if isinstance(parts, list) else ()
    )


def _referenced(schema: Schema, root: Schema) -> Schema:
    """Resolve a reference. Returns the schema itself if it is not a reference or has no target."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    found: Any = root
    for step in reference.removeprefix("#/").split("/"):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else schema


def _accepted_names(names: Mapping[str, object]) -> dict[str, str]:
    """Return a unique, accepted name for each name. Names that providers accept stay unchanged."""
    accepted = {name: name for name in names if name == _plain(name)}
    taken = set(accepted)
    for name in names:
        if name in accepted:
            continue
        plain = number = _plain(name)
        count = 1
        while number in taken:
            count += 1
            number = f"{plain[: NAME_CHARS - 4]}_{count}"
        taken.add(number)
        accepted[name] = number
    return accepted


def _plain(name: str) -> str:
    return _ODD.sub("_", name)[:NAME_CHARS] or "_"


def _with_items(schema: Any, depth: int) -> Any:  # noqa: ANN401 - JSON
    """Return a schema in which every array has `items`, at least an empty schema."""
    if not depth:
        return schema
    if isinstance(schema, list):
        return [_with_items(one, depth - 1) for one in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {
        key: value if key in _VALUES else _with_items(value, depth - 1)
        for key, value in schema.items()
    }
    items = whole.get("items")
    if isinstance(items, list):  # a tuple, in older drafts of JSON Schema
        whole["items"] = {"anyOf": items} if items else {}
    elif items is None and _is_array(whole.get("type")):
        whole["items"] = {}
    return whole


def _without_nulls(value: Any, schema: object, root: Schema, depth: int) -> Any:  # noqa: ANN401 - JSON
    """Remove nulls of optional properties whose schema does not allow null, at any level."""
    if not depth or not isinstance(schema, Mapping):
        return value
    if isinstance(value, list):
        items = _referenced(schema, root).get("items")
        return [_without_nulls(one, items, root, depth - 1) for one in value]
    if not isinstance(value, Mapping):
        return value
    properties, required = _flattened(schema, root, depth=4)
    return {
        name: _without_nulls(one, properties.get(name), root, depth - 1)
        for name, one in value.items()
        if one is not None
        or name not in properties
        or name in required
        or _takes_null(properties[name], root, depth=8)
    }


def _takes_null(schema: object, root: Schema, depth: int) -> bool:
    """Return whether a schema allows null. A schema without types allows all values."""
    if not isinstance(schema, Mapping) or not depth:
        return True
    schema = _referenced(schema, root)
    kind = schema.get("type")
    if schema.get("nullable") is True or kind == "null":
        return True
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        return None in values
    variants = [part for word in ("anyOf", "oneOf") for part in _parts(schema, word)]
    if variants:
        return any(_takes_null(part, root, depth - 1) for part in variants)
    is_named = isinstance(kind, list) and "null" in kind
    parts = () if kind is not None else _parts(schema, "allOf")
    return is_named or (kind is None and all(_takes_null(p, root, depth - 1) for p in parts))


def _is_array(kind: object) -> bool:
    return kind == "array" or (isinstance(kind, Sequence) and "array" in kind)
