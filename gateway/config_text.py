r"""The text of a configuration file as an editor shows it: secrets are hidden, and one key can be set. Pure.

>>> hidden = hide_secrets("slack: {bot_token: xoxb-1-hush, app_token: $APP}  # mine\n")
>>> hidden.text
'slack: {bot_token: <hidden-1>, app_token: $APP}  # mine\n'
>>> hidden.restore(hidden.text.replace("mine", "ours"))
'slack: {bot_token: xoxb-1-hush, app_token: $APP}  # ours\n'
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import yaml

from gateway.config_file import join_path
from gateway.config_variables import URL_PASSWORD, VARIABLE, is_hidden_key, is_secret_key

_HIDDEN = re.compile(r"<hidden-(\d+)>")
_ASSIGNMENT = re.compile(r"""([\w-]+)["']?\s*[:=]\s*["']?([^\s"',}]{8,})""")
_SEGMENT = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_PLAIN_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_BLOCK_INDICATORS = ("|", ">")


class KeyNotSettable(Exception):
    """A key cannot be set in a text. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenText:
    """A text with marks such as `<hidden-1>` instead of its secrets.

    Attributes:
        text: The text. It has the same lines.
        secrets: What the marks stand for, the first is number 1.
    """

    text: str
    secrets: Sequence[str]

    def restore(self, edited: str) -> str:
        """Return an edited text with the secrets. Raises KeyNotSettable if it has a mark of another text."""

        def secret(found: re.Match[str]) -> str:
            number = int(found[1])
            if not 1 <= number <= len(self.secrets):
                line = edited.count("\n", 0, found.start()) + 1
                raise KeyNotSettable(
                    f"line {line}: {found[0]} stands for no secret of this file: write the value"
                )
            return self.secrets[number - 1]

        return _HIDDEN.sub(secret, edited)


def hide_secrets(text: str) -> HiddenText:
    """Return a text without its secrets: values of secret keys, passwords in URLs, also in comments."""
    spans = sorted(_secret_spans(text))
    parts: list[str] = []
    secrets: list[str] = []
    at = 0
    for start, end in spans:
        if start < at or start == end:  # inside another one
            continue
        secrets.append(text[start:end])
        parts += [text[at:start], f"<hidden-{len(secrets)}>"]
        at = end
    return HiddenText(text="".join([*parts, text[at:]]), secrets=secrets)


def _secret_spans(text: str) -> Iterator[tuple[int, int]]:
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        root = None
        lines: Iterable[tuple[int, str]] = enumerate(text.splitlines(keepends=True))
    else:
        yield from _scalar_spans(text, root)
        lines = ((n, line) for n, line in enumerate(text.splitlines(keepends=True)) if "#" in line)
    starts = _line_starts(text)
    for number, line in lines:
        begin = 0 if root is None else line.index("#")
        for found in _ASSIGNMENT.finditer(line, begin):
            if is_secret_key(found[1]) and not found[2].startswith("$"):
                yield starts[number] + found.start(2), starts[number] + found.end(2)
    for found in URL_PASSWORD.finditer(text):
        if not VARIABLE.fullmatch(found[2]):
            yield found.span(2)


def _scalar_spans(text: str, root: yaml.Node | None) -> Iterator[tuple[int, int]]:
    for path, node in _scalars(root, "", ()):
        is_secret = is_hidden_key(path) and node.tag in _PLAIN_TAGS and node.value
        if not is_secret or VARIABLE.fullmatch(node.value) or _is_count(path, node):
            continue
        start, end = node.start_mark.index, node.end_mark.index
        if text[start] not in _BLOCK_INDICATORS:
            yield start, end
            continue
        for line in re.finditer(r"\S[^\n]*", text[text.index("\n", start) : end]):
            offset = text.index("\n", start)
            yield offset + line.start(), offset + line.end()


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
        path: Such as `channels.slack.streaming` or `models[0].name`.
        value: YAML in one line.

    Raises:
        KeyNotSettable: The text, the path or the value has another form.

    >>> set_key("a: 1  # one\nb: {c: 2}\n", "a", "5"), set_key("a:\n  b: 1\n", "a.c.d", "true")
    ('a: 5  # one\nb: {c: 2}\n', 'a:\n  b: 1\n  c:\n    d: true\n')
    """
    if "\n" in value:
        raise KeyNotSettable("the value must be one line: change it in the text")
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
    """Check that a text has the value: a part of a plain one may have another meaning where it stands."""
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
