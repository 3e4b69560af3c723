"""Converts Block Kit to Markdown with marks for mentions (mentions.py). Pure.

The blocks: docs.slack.dev/reference/block-kit/blocks. Unknown blocks are named, not dropped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bots.slack.mentions import plain
from bots.slack.mrkdwn_parser import link, parse_mentions, parse_mrkdwn, parse_plain
from bots.slack.payload import as_list, as_mapping, as_str
from bots.slack.rich_text import read_rich_text, unreadable

_MOST_NESTED = 5
"""Maximum nesting of blocks to read. Slack permits two levels."""

_MARKS_OF_TASKS = {"complete": "[x]", "error": "[failed]", "in_progress": "[in progress]"}
_SERIES_CELLS = 2_000
"""Maximum number of cells of a chart to read."""


def read_blocks(blocks: object, depth: int = 0) -> str:
    """Return the text of all blocks, joined by newlines."""
    if depth > _MOST_NESTED:
        return unreadable("deeply nested", "block")
    return _joined(_block(as_mapping(block), depth) for block in as_list(blocks))


def block_images(blocks: object, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield images in blocks that are Slack files, as file objects."""
    for block in map(as_mapping, as_list(blocks)):
        images = [block, as_mapping(block.get("accessory")), as_mapping(block.get("hero_image"))]
        images += map(as_mapping, as_list(block.get("elements")))
        for image in images:
            file = as_mapping(image.get("slack_file"))
            if image.get("type") == "image" and as_str(file.get("id")):
                yield {
                    "id": file["id"],
                    "title": _text(image.get("title"))
                    or parse_plain(as_str(image.get("alt_text"))),
                    "mimetype": "image/*",
                    "url_private": file.get("url"),
                }
        if depth < _MOST_NESTED:
            yield from block_images(block.get("child_blocks"), depth + 1)


def _joined(parts: Iterable[str]) -> str:
    return "\n".join(filter(None, parts))


def _block(block: Mapping[str, Any], depth: int) -> str:  # noqa: C901, PLR0911, PLR0912 - one return per kind
    match as_str(block.get("type")):
        case "rich_text":
            return read_rich_text(block)
        case "section":
            fields = map(_text, as_list(block.get("fields")))
            return _joined([_text(block.get("text")), *fields, _element(block.get("accessory"))])
        case "header":
            return _bold(_text(block.get("text")))
        case "markdown":
            return parse_mentions(as_str(block.get("text")))
        case "context":
            return " ".join(filter(None, map(_element, as_list(block.get("elements")))))
        case "divider":
            return ""
        case "image":
            return _image(block)
        case "video":
            return _video(block)
        case "file":
            return _file(block)
        case "call":
            return _call(block)
        case "actions" | "context_actions":
            return _joined(map(_element, as_list(block.get("elements"))))
        case "input":
            label, hint = _text(block.get("label")), _text(block.get("hint"))
            return _joined([_bold(label), hint, _element(block.get("element"))])
        case "table" | "data_table":
            return _joined([_text(block.get("caption")), _table(block)])
        case "data_visualization":
            return _joined(
                [_bold(_text(block.get("title"))), _chart(as_mapping(block.get("chart")))]
            )
        case "alert":
            level = plain(as_str(block.get("level")))
            text = _text(block.get("text"))
            return text if level in {"", "default"} else f"[{level}] {text}"
        case "card":
            return _card(block)
        case "carousel":
            return _joined(_card(as_mapping(card)) for card in as_list(block.get("elements")))
        case "container":
            return _container(block, depth)
        case "task_card":
            return _task(block)
        case "plan":
            tasks = (_task(as_mapping(task)) for task in as_list(block.get("tasks")))
            return _joined([_bold(_text(block.get("title"))), *tasks])
        case "auth_provider":
            return _sign_in(block)
        case kind:
            return unreadable(kind, "block")


def _text(value: object) -> str:
    """Return the text of a text object. Some fields contain plain strings, others rich text."""
    if isinstance(value, str):
        return parse_plain(value)
    text = as_mapping(value)
    match as_str(text.get("type")):
        case "rich_text":
            return read_rich_text(text)
        case "mrkdwn":
            return parse_mrkdwn(as_str(text.get("text")))
        case _:
            return parse_plain(as_str(text.get("text")))


def _bold(text: str) -> str:
    return f"**{' '.join(text.split())}**" if text.strip() else ""


def _element(value: object) -> str:  # noqa: PLR0911 - one return per kind
    """Return the text of an element of a block: a text, an image, or an input element."""
    element = as_mapping(value)
    match as_str(element.get("type")):
        case "":
            return ""
        case "plain_text" | "mrkdwn" | "raw_text" | "rich_text":
            return _text(element)
        case "image":
            return _image(element)
        case "button" | "workflow_button":
            return (
                f"[Button: {link(plain(as_str(element.get('url'))), _text(element.get('text')))}]"
            )
        case "feedback_buttons":
            sides = ("positive_button", "negative_button")
            labels = (_text(as_mapping(element.get(side)).get("text")) for side in sides)
            return "\n".join(f"[Button: {label}]" for label in labels if label)
        case "icon_button":
            icon = _text(element.get("text")) or plain(as_str(element.get("icon")))
            return f"[Button: {icon}]"
        case "url":
            return link(plain(as_str(element.get("url"))), _text(element.get("text")))
        case kind:
            return _field(element, kind)


_FIELDS = frozenset(
    {
        "channels_select", "checkboxes", "conversations_select", "datepicker", "datetimepicker",
        "email_text_input", "external_select", "file_input", "multi_channels_select",
        "multi_conversations_select", "multi_external_select", "multi_static_select", "multi_users_select",
        "number_input", "overflow", "plain_text_input", "radio_buttons", "rich_text_input", "static_select",
        "timepicker", "url_text_input", "users_select",
    }
)  # fmt: skip
"""Elements that people fill in: docs.slack.dev/reference/block-kit/block-elements."""


def _field(element: Mapping[str, Any], kind: str) -> str:
    """Return the placeholder, the options and the value of a field."""
    if kind not in _FIELDS:
        return unreadable(kind, "element")
    groups = map(as_mapping, as_list(element.get("option_groups")))
    options = [
        *as_list(element.get("options")),
        *(option for group in groups for option in as_list(group.get("options"))),
    ]
    names = ", ".join(filter(None, (_option(option) for option in options)))
    parts = [_text(element.get("placeholder")), names, _filled_in(element)]
    return f"[Field: {'; '.join(filter(None, parts)) or plain(kind)}]"


def _option(value: object) -> str:
    option = as_mapping(value)
    description = _text(option.get("description"))
    return f"{_text(option.get('text'))}{f' ({description})' if description else ''}"


def _filled_in(element: Mapping[str, Any]) -> str:
    chosen = [as_mapping(element.get("initial_option")), *as_list(element.get("initial_options"))]
    names = [
        *map(_option, chosen),
        *(
            str(element.get(name) or "")
            for name in ("initial_date", "initial_time", "initial_date_time")
        ),
        _text(element.get("initial_value")),
    ]
    filled = ", ".join(filter(None, map(plain, names)))
    return f"filled in: {filled}" if filled else ""


def _image(image: Mapping[str, Any]) -> str:
    """Return an image's name. If the image is a Slack file, `block_images` also returns it as a file."""
    title, alt = _text(image.get("title")), parse_plain(as_str(image.get("alt_text")))
    names = title if alt in title else alt if title in alt else f"{title}, {alt}"
    url = plain(as_str(image.get("image_url")))
    return f"[Image: {link(url, names) or 'without a name'}]"


def _video(video: Mapping[str, Any]) -> str:
    url = as_str(video.get("title_url")) or as_str(video.get("video_url"))
    title = _text(video.get("title")) or parse_plain(as_str(video.get("alt_text")))
    by = [parse_plain(as_str(video.get(name))) for name in ("author_name", "provider_name")]
    about = ", ".join(filter(None, [link(plain(url), title), *by]))
    return _joined([f"[Video: {about or 'without a name'}]", _text(video.get("description"))])


def _file(block: Mapping[str, Any]) -> str:
    file = as_mapping(block.get("file"))
    name = as_str(file.get("title")) or as_str(file.get("name")) or as_str(block.get("external_id"))
    url = as_str(file.get("external_url")) or as_str(file.get("permalink"))
    return f"[File outside Slack: {link(plain(url), parse_plain(name)) or 'without a name'}]"


def _call(block: Mapping[str, Any]) -> str:
    call = as_mapping(as_mapping(block.get("call")).get("v1"))
    name = parse_plain(as_str(call.get("name"))) or plain(as_str(block.get("call_id")))
    url = plain(as_str(call.get("join_url")))
    return f"[Call: {link(url, name) or 'without a name'}]"


def _card(card: Mapping[str, Any]) -> str:
    hero = as_mapping(card.get("hero_image"))
    texts = [_text(card.get(name)) for name in ("subtitle", "body", "subtext")]
    actions = map(_element, as_list(card.get("actions")))
    return _joined(
        [_image(hero) if hero else "", _bold(_text(card.get("title"))), *texts, *actions]
    )


def _container(block: Mapping[str, Any], depth: int) -> str:
    title = _text(block.get("rich_text_title")) or _text(block.get("title"))
    children = read_blocks(block.get("child_blocks"), depth + 1)
    return _joined([_bold(title), _text(block.get("subtitle")), children])


def _task(task: Mapping[str, Any]) -> str:
    mark = _MARKS_OF_TASKS.get(as_str(task.get("status")), "[ ]")
    sources = map(_element, as_list(task.get("sources")))
    below = _joined([_text(task.get("details")), _text(task.get("output")), *sources])
    lines = [f"- {mark} {_text(task.get('title'))}", *(f"  {line}" for line in below.split("\n"))]
    return "\n".join(lines) if below else lines[0]


def _sign_in(block: Mapping[str, Any]) -> str:
    texts = [_text(block.get(name)) for name in ("name", "description")]
    return f"[Sign-in: {', '.join(filter(None, texts))}]"


def _table(block: Mapping[str, Any]) -> str:
    return table([[_cell(cell) for cell in as_list(row)] for row in as_list(block.get("rows"))])


def _cell(value: object) -> str:
    cell = as_mapping(value)
    if cell.get("type") == "raw_number":
        return plain(as_str(cell.get("text")) or str(cell.get("value", "")))
    if "elements" in cell and cell.get("type") != "rich_text":
        return " ".join(map(_element, as_list(cell.get("elements"))))
    inner = as_mapping(cell.get("element")) or cell
    return _element(inner)


def table(rows: Sequence[Sequence[str]]) -> str:
    r"""Return rows as a Markdown table. The first row is the header.

    >>> table([["a", "b|c"], ["1"]]).split("\n")
    ['| a | b\\|c |', '| --- | --- |', '| 1 |  |']
    """
    columns = max(map(len, rows), default=0)
    if not columns:
        return ""
    lines = [
        f"| {' | '.join(_flat(cell) for cell in [*row, *[''] * (columns - len(row))])} |"
        for row in rows
    ]
    lines.insert(1, f"| {' | '.join(['---'] * columns)} |")
    return "\n".join(lines)


def _flat(cell: str) -> str:
    return " ".join(cell.split()).replace("|", "\\|")


def _chart(chart: Mapping[str, Any]) -> str:
    """Return the numbers of a chart as a table with one row for each segment or category."""
    segments = [as_mapping(one) for one in as_list(chart.get("segments"))]
    series = [as_mapping(one) for one in as_list(chart.get("series"))]
    axes = as_mapping(chart.get("axis_config"))
    if segments:
        rows = [[_text(one.get("label")), _number(one.get("value"))] for one in segments]
        return table([["", plain(as_str(chart.get("type")))], *rows[:_SERIES_CELLS]])
    if not series:
        return unreadable(as_str(chart.get("type")), "chart")
    values = [
        {_text(point.get("label")): _number(point.get("value")) for point in _points(one)}
        for one in series[:20]
    ]
    labels = [_text(one) for one in as_list(axes.get("categories"))]
    labels = labels or list(dict.fromkeys(label for one in values for label in one))
    head = [_text(axes.get("x_label")), *(_text(one.get("name")) for one in series[:20])]
    rows = [
        [label, *(one.get(label, "") for one in values)]
        for label in labels[: _SERIES_CELLS // len(head)]
    ]
    return _joined([_text(axes.get("y_label")), table([head, *rows])])


def _points(series: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from map(as_mapping, as_list(series.get("data")))


def _number(value: object) -> str:
    return plain(str(value)) if isinstance(value, int | float | str) else ""
