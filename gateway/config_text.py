r"""The text of a configuration file as an editor shows it: secrets are hidden, and one key can be set. Pure.

>>> hidden = hide_secrets("slack: {bot_token: xoxb-1-hush, app_token: $APP}  # mine\n")
>>> hidden.text
'slack: {bot_token: <hidden-1>, app_token: $APP}  # mine\n'
>>> hidden.restore(hidden.text.replace("mine", "ours"))
'slack: {bot_token: xoxb-1-hush, app_token: $APP}  # ours\n'
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import yaml

from gateway.config_file import MAX_KEYS, join_path
from gateway.config_variables import URL_PASSWORD, VARIABLE, is_hidden_key, is_secret_key

_HIDDEN = re.compile(r"<hidden-\d+>")
_INDEX = re.compile(r"\[\d+\]")
_ASSIGNMENT = re.compile(r"""([\w-]+)["']?\s*[:=]\s*["']?([^\s"',}]{8,})""")
_PATH = re.compile(r"[^.\[\]]+(?:\.[^.\[\]]+|\[\d+\])*")
_SEGMENT = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_PLAIN_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_BLOCK_INDICATORS = ("|", ">")
_PASSWORD = "://"  # noqa: S105 - a name for the password of a URL
_SHOWN_CHARS = 40


class KeyNotSettable(Exception):
    """A key cannot be set in a text. The message says why."""


class _Spans:
    """Parts of a text, each with its labels. Parts that overlap become one.

    Args:
        spans: Start, end and label.
    """

    def __init__(self, spans: Iterable[tuple[int, int, str]]) -> None:
        self.parts: list[tuple[int, int, set[str]]] = []
        for start, end, label in sorted(spans, key=lambda span: (span[0], -span[1])):
            if self.parts and start < self.parts[-1][1]:
                begin, before, labels = self.parts[-1]
                same = {label} if (start, end) == (begin, before) else set[str]()
                self.parts[-1] = (begin, max(before, end), labels | same)
            elif start < end:
                self.parts.append((start, end, {label}))

    def labels(self, start: int, end: int) -> frozenset[str]:
        """Return the labels of the part that holds the text from `start` to `end`; none = no part does."""
        at = bisect_right(self.parts, start, key=lambda part: part[0]) - 1
        return frozenset(self.parts[at][2] if at >= 0 and end <= self.parts[at][1] else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class _SecretPlace:
    """The place of a secret in the text.

    Attributes:
        paths: Key paths of the value that contains it, without list indexes. A value with aliases has several paths, a
            comment has none.
        names: The last part of its key; `://` for the password of a URL.
    """

    paths: frozenset[str]
    names: frozenset[str]

    def allows(self, other: "_SecretPlace") -> bool:
        """Return whether a secret may move from here to another place: its own key, or a comment and back."""
        if self.paths and other.paths:
            return other.paths <= self.paths and bool(other.names)
        return bool(self.names & other.names)


class _SecretPlaces:
    """The secrets of a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        scalars = _read_scalars(text)
        self.is_yaml = scalars is not None
        self._scalars = _Spans(
            (node.start_mark.index, node.end_mark.index, _INDEX.sub("", path))
            for path, node in scalars or ()
        )
        self.secrets = _Spans(_secret_spans(text, scalars))

    def find(self, start: int, end: int) -> _SecretPlace:
        """Return the place of a part of the text. It has no names if the part is not hidden from people."""
        return _SecretPlace(
            paths=self._scalars.labels(start, end), names=self.secrets.labels(start, end)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenText:
    """A text with marks such as `<hidden-1>` instead of its secrets.

    Attributes:
        text: The text, with the same line numbers as the original.
    """

    text: str
    _secrets: Mapping[str, tuple[str, _SecretPlace]] = field(repr=False)

    def restore(self, edited: str) -> str:
        """Return an edited text with its secrets.

        A text that is not YAML keeps its marks, because messages about its problems quote it.

        Raises:
            KeyNotSettable: A mark comes from another text, or was moved to another key.
        """
        if not _SecretPlaces(edited).is_yaml:
            return edited
        parts: list[str] = []
        marks: list[tuple[re.Match[str], int, _SecretPlace]] = []
        at = length = 0
        for found in _HIDDEN.finditer(edited):
            if found[0] not in self._secrets:
                raise _refusal(edited, found, "stands for no secret of this file: write the value")
            secret, place = self._secrets[found[0]]
            parts += [edited[at : found.start()], secret]
            length += found.start() - at
            marks.append((found, length, place))
            at, length = found.end(), length + len(secret)
        restored = "".join([*parts, edited[at:]])
        places = _SecretPlaces(restored)
        for found, start, place in marks:
            end = start + len(self._secrets[found[0]][0])
            if not place.allows(places.find(start, end)):
                raise _refusal(
                    edited, found, "stands for the secret of another key: write the value"
                )
        return restored


def _refusal(text: str, found: re.Match[str], why: str) -> KeyNotSettable:
    line = text.count("\n", 0, found.start()) + 1
    return KeyNotSettable(f"line {line}: {found[0][:_SHOWN_CHARS]} {why}")


def hide_secrets(text: str) -> HiddenText:
    """Return a text without its secrets: values of secret keys, and passwords in URLs, comments included."""
    places = _SecretPlaces(text)
    parts: list[str] = []
    secrets: dict[str, tuple[str, _SecretPlace]] = {}
    at = 0
    for start, end, _ in places.secrets.parts:
        mark = f"<hidden-{len(secrets) + 1}>"
        secrets[mark] = (text[start:end], places.find(start, end))
        parts += [text[at:start], mark]
        at = end
    return HiddenText(text="".join([*parts, text[at:]]), _secrets=secrets)


def _read_scalars(text: str) -> list[tuple[str, yaml.ScalarNode]] | None:
    """Return the values of a text with their paths. None = it is not YAML, or has too many because of aliases."""
    try:
        scalars = list(islice(_scalars(yaml.compose(text, yaml.SafeLoader), "", ()), MAX_KEYS + 1))
    except (yaml.YAMLError, RecursionError):
        return None
    return scalars if len(scalars) <= MAX_KEYS else None


def _secret_spans(
    text: str, scalars: Sequence[tuple[str, yaml.ScalarNode]] | None
) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and name of each secret."""
    yield from _scalar_spans(text, scalars or ())
    starts = _line_starts(text)
    for number, line in enumerate(text.splitlines(keepends=True)):
        begin = 0 if scalars is None else line.find("#")
        for found in _ASSIGNMENT.finditer(line, begin) if begin >= 0 else ():
            if is_secret_key(found[1]) and not found[2].startswith("$"):
                start = starts[number]
                yield start + found.start(2), start + found.end(2), found[1]
    for found in URL_PASSWORD.finditer(text):
        if not VARIABLE.fullmatch(found[2]):
            yield *found.span(2), _PASSWORD


def _scalar_spans(
    text: str, scalars: Iterable[tuple[str, yaml.ScalarNode]]
) -> Iterator[tuple[int, int, str]]:
    for path, node in scalars:
        is_secret = is_hidden_key(path) and node.tag in _PLAIN_TAGS and node.value
        if not is_secret or VARIABLE.fullmatch(node.value) or _is_count(path, node):
            continue
        name = _INDEX.sub("", path).rpartition(".")[2]
        start, end = node.start_mark.index, node.end_mark.index
        if text[start] not in _BLOCK_INDICATORS:
            yield start, end, name
            continue
        for line in re.finditer(r"\S[^\n]*", text[text.index("\n", start) : end]):
            offset = text.index("\n", start)
            yield offset + line.start(), offset + line.end(), name


def _is_count(path: str, node: yaml.ScalarNode) -> bool:
    """Return whether a value is a number of tokens, such as `max_tokens`."""
    return node.tag not in _PLAIN_TAGS[:1] and path.lower().endswith("tokens")


def _scalars(
    node: yaml.Node | None, path: str, above: tuple[yaml.Node, ...]
) -> Iterator[tuple[str, yaml.ScalarNode]]:
    if isinstance(node, yaml.ScalarNode):
        yield path, node
    if node is None or node in above:
        return
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _scalars(value, join_path(path, str(key.value)), (*above, node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _scalars(item, join_path(path, index), (*above, node))


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def set_key(text: str, path: str, value: str) -> str:
    r"""Return a text with one key set. Everything else stays as it is, comments included.

    Args:
        text: A valid configuration.
        path: The key's path, such as `channels.slack.streaming` or `models[0].name`.
        value: YAML in one line.

    Raises:
        KeyNotSettable: The text, the path or the value has a form that is not supported.

    >>> set_key("a: 1  # one\nb: {c: 2}\n", "a", "5"), set_key("a:\n  b: 1\n", "a.c.d", "true")
    ('a: 5  # one\nb: {c: 2}\n', 'a:\n  b: 1\n  c:\n    d: true\n')
    """
    if "\n" in value:
        raise KeyNotSettable("the value must be one line: change it in the text")
    if not _PATH.fullmatch(path):
        raise KeyNotSettable("this is not a key: write it as in `channels.slack.streaming`")
    segments = [int(index) if index else key for index, key in _SEGMENT.findall(path)]
    changed = _insert(text, path, segments, value)
    _check_result(changed, segments, value)
    return changed


def _insert(text: str, path: str, segments: Sequence[str | int], value: str) -> str:
    node, rest = _descend(_compose(text), segments)
    if not rest and isinstance(node, yaml.ScalarNode | yaml.CollectionNode):
        return _replace(text, node, value)
    if any(isinstance(key, int) for key in rest):
        raise KeyNotSettable(f"{path}: the list has no such entry: add it in the text")
    names = [str(key) for key in rest]
    if node is None or isinstance(node, yaml.ScalarNode):
        return _replace_empty(text, node, names, value)
    if not isinstance(node, yaml.MappingNode):
        raise KeyNotSettable(f"{path}: belongs to a list: change it in the text")
    if node.flow_style:
        at = node.end_mark.index - 1
        return f"{text[:at]}{', ' if node.value else ''}{_flow(names, value)}{text[at:]}"
    line = _last_line(text, node) + 1
    block = _block(names, value, node.value[0][0].start_mark.column)
    lines = text.splitlines(keepends=True)
    if not lines[line - 1].endswith("\n"):
        lines[line - 1] += "\n"
    return "".join([*lines[:line], block, *lines[line:]])


def _compose(text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        raise KeyNotSettable("the text is not YAML: correct it first") from None


def _check_result(text: str, segments: Sequence[str | int], value: str) -> None:
    """Check that a text has the value: part of an unquoted value may mean something else at that place."""
    try:
        node, rest = _descend(yaml.compose(text, yaml.SafeLoader), segments)
        is_set = not rest and _shape(node) == _shape(yaml.compose(value, yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError):
        is_set = False
    if not is_set:
        raise KeyNotSettable("the value would have another meaning there: quote it")


def _shape(node: yaml.Node | None) -> str:
    return "" if node is None else yaml.serialize(node)


def _descend(
    root: yaml.Node | None, segments: Sequence[str | int]
) -> tuple[yaml.Node | None, Sequence[str | int]]:
    """Return the deepest node of a path, and the segments that are missing below it."""
    node = root
    for at, segment in enumerate(segments):
        below: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            below = next((item for key, item in node.value if key.value == str(segment)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(segment, int):
            below = node.value[segment] if segment < len(node.value) else None
        if below is None:
            return node, segments[at:]
        node = below
    return node, ()


def _replace(text: str, node: yaml.Node, value: str) -> str:
    start, end = node.start_mark.index, node.end_mark.index
    is_block = text[start : start + 1] in _BLOCK_INDICATORS
    if is_block or (isinstance(node, yaml.CollectionNode) and not node.flow_style):
        raise KeyNotSettable("the value has several lines: change it in the text")
    space = " " if start == end and text[start - 1 : start] == ":" else ""
    return f"{text[:start]}{space}{value}{text[end:]}"


def _replace_empty(text: str, node: yaml.Node | None, names: Sequence[str], value: str) -> str:
    if node is None:
        gap = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{gap}{_block(names, value, 0)}"
    if node.tag != "tag:yaml.org,2002:null":
        raise KeyNotSettable("the section is a plain value: change it in the text")
    return _replace(text, node, f"{{{_flow(names, value)}}}")


def _last_line(text: str, node: yaml.Node) -> int:
    """Return the number of the last line of a value, from 0, without the comments after it."""
    if isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        last = node.value[-1]
        return _last_line(text, last[1] if isinstance(last, tuple) else last)
    end = len(text[: node.end_mark.index].rstrip())
    return max(text.count("\n", 0, end), node.start_mark.line)


def _flow(names: Sequence[str], value: str) -> str:
    """Return `a: {b: value}`."""
    key, *rest = names
    return f"{key}: {{{_flow(rest, value)}}}" if rest else f"{key}: {value}"


def _block(names: Sequence[str], value: str, indent: int) -> str:
    *sections, key = names
    lines = [f"{' ' * (indent + 2 * depth)}{name}:\n" for depth, name in enumerate(sections)]
    return "".join([*lines, f"{' ' * (indent + 2 * len(sections))}{key}: {value}\n"])
