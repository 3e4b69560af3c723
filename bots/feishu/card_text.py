"""Converts cards in all forms to Markdown: JSON 1.0 and 2.0, the substitute for old clients, the stored form. Pure.

The platform has four forms of one card:
- As sent (`user_card_content`): JSON 1.0 (`elements`) or 2.0 (`body.elements`).
- In an event: the same JSON as a string in `user_dsl`, next to a substitute for old clients.
- For old clients: `title`, and `elements` with one list for each line. For a card in JSON 2.0, it only asks people to
  upgrade.
- As stored by the platform (`raw_card_content`): `json_card`, with the fields of each element in `property`, names in
camel case, and Markdown already parsed. Only this form contains cards made from a template.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from bots.feishu.feishu_markdown import link, named, plain_markdown, utc_minute
from bots.feishu.json_node import JsonNode
from bots.feishu.people import People
from bots.feishu.posts import fenced

_MAX_DEPTH = 40
"""Maximum nesting of elements to read. The platform permits five."""

_MAX_ROWS = 200
"""Maximum number of rows of a table or chart to read."""

_UPGRADE = ("请升级至最新版本客户端", "Please upgrade to the latest version")
"""How the platform's substitute for a card in JSON 2.0 begins."""

_STYLES = (("bold", "**"), ("italic", "*"), ("strikethrough", "~~"))


def card_markdown(content: JsonNode, people: People) -> str:
    """Return the text of a card; "" if it has none or the platform withholds it.

    >>> card = {"schema": "2.0", "header": {"title": {"tag": "plain_text", "content": "Build"}},
    ...         "body": {"elements": [{"tag": "markdown", "content": "failed"}]}}
    >>> print(card_markdown(JsonNode(card), People({})))
    **Build**
    failed
    """
    card, attachment = _unwrapped(content)
    reader = _CardReader(people, attachment)
    lines = [*reader.header(card), *([] if _is_substitute(card) else reader.body(card))]
    return "\n".join(line for line in lines if line).strip()


def is_card_withheld(content: JsonNode) -> bool:
    """Return whether the platform returned a substitute for a card, so that another form is needed.

    >>> is_card_withheld(JsonNode({"type": "template", "data": {"template_id": "ctp_1"}}))
    True
    """
    card, _ = _unwrapped(content)
    return _is_substitute(card) or not _elements(card)


def _is_substitute(card: JsonNode) -> bool:
    """Return whether a card only asks people to upgrade their client."""
    rows = [row for row in card.values("elements") if isinstance(row, list)]
    words = (JsonNode(node).text("text") for row in rows for node in row)
    return any(word.startswith(_UPGRADE) for word in words)


def _elements(card: JsonNode) -> list[object]:
    elements = _fields(card["body"]).values("elements") or card.values("elements")
    if elements:
        return elements
    localized = card["i18n_elements"]
    return next((localized.values(name) for name in _LOCALES if localized.values(name)), [])


def _unwrapped(content: JsonNode) -> tuple[JsonNode, JsonNode]:
    """Return the card, and the names that the platform stores with it."""
    for name in ("user_dsl", "json_card"):
        if card := JsonNode.parse(content.raw(name)):
            return card, JsonNode.parse(content.raw("json_attachment"))
    return content["card"] or content, JsonNode({})


def _first(node: JsonNode, *names: str) -> str:
    """Return the first text or number among the fields with these names."""
    values = (node.value(name) for name in names)
    return next((_text(value) for value in values if _text(value)), "")


def _text(value: object) -> str:
    if isinstance(value, str):
        return JsonNode({"": value}).text("")
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


class _CardReader:
    """Reads elements. Each kind of element has a method or an entry in a table."""

    def __init__(self, people: People, attachment: JsonNode) -> None:
        self._people = people
        self._attachment = attachment
        self._depth = 0

    def header(self, card: JsonNode) -> list[str]:
        """Return title, subtitle and tags, one per line."""
        header = _fields(card["header"] or next(card["i18n_header"].nodes(), JsonNode({})))
        title = self._label(header, "title") or card.text("title")
        tags = self._many(header.values("text_tag_list") or header.values("textTagList"), " ")
        return [f"**{title}**" if title else "", self._label(header, "subtitle"), tags]

    def body(self, card: JsonNode) -> list[str]:
        """Return the text of each element."""
        return [self._row(element) for element in _elements(card)]

    def _row(self, element: object) -> str:
        """Return the text of an element, or of one line of a card in the form for old clients."""
        if isinstance(element, list):
            return "".join(map(self._element, element))
        return self._element(element)

    def _element(self, element: object) -> str:
        """Return the text of an element."""
        node = JsonNode(element)
        if not node or self._depth >= _MAX_DEPTH:
            return ""
        self._depth += 1
        try:
            reader = _READERS.get(node.text("tag"), _CardReader.other)
            return reader(self, _fields(node))
        finally:
            self._depth -= 1

    def _many(self, elements: Iterable[object], between: str = "\n") -> str:
        return between.join(filter(None, map(self._element, elements)))

    def inside(self, node: JsonNode, between: str = "\n") -> str:
        return self._many(node.values("elements"), between)

    def _label(self, node: JsonNode, *names: str) -> str:
        """Return the first text among fields that contain a text, or an element with one."""
        for name in names:
            value = node.value(name)
            said = (
                self._element({"tag": "plain_text", **value})
                if isinstance(value, dict)
                else _text(value)
            )
            if said.strip():
                return said.strip()
        return ""

    def plain_text(self, node: JsonNode) -> str:
        words = _first(node, "content", "text") or self.inside(node, "")
        if not words:
            localized = node["i18n_content"] or node["i18n"] or node["i18nContent"]
            words = next((localized.text(name) for name in _LOCALES if localized.text(name)), "")
        styles = node["textStyle"].values("attributes")
        for style, mark in _STYLES if words.strip() else ():
            words = f"{mark}{words}{mark}" if style in styles else words
        return words

    def markdown(self, node: JsonNode) -> str:
        return self.inside(node, "") or plain_markdown(_first(node, "content"), self._people)

    def div(self, node: JsonNode) -> str:
        fields = [JsonNode(field) for field in node.values("fields")]
        parts = [
            node.value("text"),
            *(field.value("text") for field in fields),
            node.value("extra"),
        ]
        return self._many(parts)

    def note(self, node: JsonNode) -> str:
        return self.inside(node, " ")

    def columns(self, node: JsonNode) -> str:
        """Return columns one below the other, or on one line if each has only one line."""
        columns = [self._element(column) for column in node.values("columns")]
        between = "\n" if any("\n" in column for column in columns) else " | "
        return between.join(filter(None, columns))

    def panel(self, node: JsonNode) -> str:
        title = self._label(_fields(node["header"]), "title")
        return "\n".join(filter(None, [f"**{title}**" if title else "", self.inside(node)]))

    def image(self, node: JsonNode) -> str:
        alt, title = self._label(node, "alt"), self._label(node, "title")
        return named("Image", title, alt if alt != title else "")

    def images(self, node: JsonNode) -> str:
        return named("Images", str(len(node.values("img_list") or node.values("imgList"))))

    def person(self, node: JsonNode) -> str:
        user = _first(node, "user_id", "userID", "id")
        stored = self._attachment["persons"][user].text("content")
        return self._people.mention(user, stored or self._label(node, "notation"))

    def persons(self, node: JsonNode) -> str:
        return ", ".join(self.person(person) for person in node.items("persons"))

    def at(self, node: JsonNode) -> str:
        user = _first(node, "user_id", "userID", "id")
        if user.startswith("@_"):
            return user
        stored = self._attachment["at_users"][user].text("content")
        return self._people.mention(user, stored or _first(node, "user_name"))

    def button(self, node: JsonNode) -> str:
        label, url = self._label(node, "text"), _url(node)
        return link(url, label) if url else f"[{label}]" if label else ""

    def actions(self, node: JsonNode) -> str:
        return self._many(node.values("actions"), " ")

    def choice(self, node: JsonNode) -> str:
        """Return the placeholder and the options of a menu."""
        options = []
        for option in node.values("options"):
            fields = JsonNode(option)
            value = fields.text("value")
            person = self._people.label(value) if value.startswith("ou_") else value
            options.append(_text(option) or self._label(fields, "text") or person)
        return named("Choice", self._label(node, "placeholder"), " / ".join(filter(None, options)))

    def image_choice(self, node: JsonNode) -> str:
        return named("Choice of images", str(len(node.values("options"))))

    def input(self, node: JsonNode) -> str:
        value = _first(node, "default_value", "defaultValue")
        return named("Input", self._label(node, "label") or self._label(node, "placeholder"), value)

    def picker(self, node: JsonNode) -> str:
        names = ("initial_date", "initial_time", "initial_datetime")
        stored = ("initialDate", "initialTime", "initialDatetime")
        return named("Date", _first(node, *names, *stored) or self._label(node, "placeholder"))

    def checker(self, node: JsonNode) -> str:
        return f"- [{'x' if node.flag('checked') else ' '}] {self._label(node, 'text')}"

    def table(self, node: JsonNode) -> str:
        columns = list(node.items("columns"))
        names = [column.text("name") for column in columns]
        heads = [_first(column, "display_name", "displayName", "name") for column in columns]
        kinds = [_first(column, "data_type", "dataType") for column in columns]
        rows = [
            [self._cell(row.value(name), kind) for name, kind in zip(names, kinds, strict=True)]
            for row in node.items("rows")
        ]
        return _rows_markdown(heads, rows)

    def _cell(self, value: object, kind: str) -> str:
        if isinstance(value, dict) and "data" in value:
            value = value["data"]
        if isinstance(value, list):
            return ", ".join(self._cell(item, kind) for item in value)
        if isinstance(value, dict):
            return self._label(JsonNode(value), "text", "content") or self._element(value)
        if kind == "date":
            return utc_minute(JsonNode({"": value}).milliseconds("")) or _text(value)
        if kind == "persons":
            return self._people.mention(_text(value))
        return plain_markdown(_text(value), self._people)

    def chart(self, node: JsonNode) -> str:
        """Return a chart's title and kind, and its figures as a table."""
        spec = node["chart_spec"] or node["chartSpec"]
        data = spec["data"] or next(spec.items("data"), JsonNode({}))
        values = [value for value in data.values("values") if isinstance(value, dict)]
        heads = list(dict.fromkeys(_text(name) for value in values for name in value))
        rows = [[self._cell(value.get(name), "") for name in heads] for value in values]
        title = self._label(spec, "title")
        return "\n".join(
            filter(None, [named("Chart", title, spec.text("type")), _rows_markdown(heads, rows)])
        )

    def tag(self, node: JsonNode) -> str:
        label = self._label(node, "text")
        return f"[{label}]" if label else ""

    def link(self, node: JsonNode) -> str:
        return link(_url(node), _first(node, "content", "text"))

    def emoji(self, node: JsonNode) -> str:
        return f":{_first(node, 'key', 'emoji_type')}:"

    def moment(self, node: JsonNode) -> str:
        return utc_minute(node.milliseconds("milliseconds")) or _first(node, "fallbackText")

    def list(self, node: JsonNode) -> str:
        lines = []
        for item in node.items("items"):
            level = item.milliseconds("level") or 0
            mark = f"{item.milliseconds('order') or 1}." if item.text("type") == "ol" else "-"
            lines.append(f"{'  ' * min(level, 10)}{mark} {self.inside(item, '')}")
        return "\n".join(lines)

    def quote(self, node: JsonNode) -> str:
        words = _first(node, "content") or self.inside(node, "")
        return "\n".join(f"> {line}" for line in words.split("\n"))

    def code_block(self, node: JsonNode) -> str:
        lines = (
            "".join(part.text("content") for part in line.items("contents"))
            for line in node.items("contents")
        )
        return fenced("".join(lines) or _first(node, "content"), node.text("language"))

    def code_span(self, node: JsonNode) -> str:
        return f"`{_first(node, 'content')}`"

    def heading(self, node: JsonNode) -> str:
        words = _first(node, "content") or self.inside(node, "")
        return f"{'#' * min(max(node.milliseconds('level') or 1, 1), 6)} {words}"

    def other(self, node: JsonNode) -> str:
        """Return the text of an element of an unknown kind, then the texts of the elements in it."""
        label = self._label(node, "content", "text", "title", "label", "placeholder")
        names = ("elements", "columns", "actions", "items", "options", "fields")
        return "\n".join(filter(None, [label, *(self._many(node.values(name)) for name in names)]))


_LOCALES = ("en_us", "zh_cn", "ja_jp")

_Reader = Callable[[_CardReader, JsonNode], str]


def _said(text: str) -> _Reader:
    return lambda reader, node: text  # noqa: ARG005 - the same for every element of its kind


_READERS: Mapping[str, _Reader] = {
    "plain_text": _CardReader.plain_text, "text": _CardReader.plain_text,
    "markdown": _CardReader.markdown, "lark_md": _CardReader.markdown, "markdown_v1": _CardReader.markdown,
    "div": _CardReader.div, "note": _CardReader.note,
    "hr": _said("\n---"), "br": _said("\n"),
    "standard_icon": _said(""), "custom_icon": _said(""), "card_header": _said(""), "avatar": _said(""),
    "img": _CardReader.image, "image": _CardReader.image, "img_combination": _CardReader.images,
    "audio": _said("[Audio]"), "video": _said("[Video]"),
    "column_set": _CardReader.columns, "column": _CardReader.inside, "form": _CardReader.inside,
    "interactive_container": _CardReader.inside, "repeat": _CardReader.inside,
    "collapsible_panel": _CardReader.panel,
    "person": _CardReader.person, "person_v1": _CardReader.person, "person_list": _CardReader.persons,
    "at": _CardReader.at, "at_all": _said("@all"),
    "button": _CardReader.button, "action": _CardReader.actions, "actions": _CardReader.actions,
    "overflow": _CardReader.choice, "select_static": _CardReader.choice,
    "multi_select_static": _CardReader.choice, "select_person": _CardReader.choice,
    "multi_select_person": _CardReader.choice,
    "select_img": _CardReader.image_choice,
    "input": _CardReader.input, "date_picker": _CardReader.picker, "picker_time": _CardReader.picker,
    "picker_datetime": _CardReader.picker, "checker": _CardReader.checker,
    "table": _CardReader.table, "chart": _CardReader.chart,
    "text_tag": _CardReader.tag, "number_tag": _CardReader.tag, "link": _CardReader.link,
    "a": _CardReader.link,
    "emoji": _CardReader.emoji, "emotion": _CardReader.emoji, "local_datetime": _CardReader.moment,
    "list": _CardReader.list, "blockquote": _CardReader.quote, "code_block": _CardReader.code_block,
    "code_span": _CardReader.code_span, "heading": _CardReader.heading,
}  # fmt: skip
"""Components of JSON 1.0 and 2.0, and the elements of the platform's own form."""


def _fields(node: JsonNode) -> JsonNode:
    """Return an element's fields. In the platform's own form, they are in `property`."""
    return node["property"] or node


def _url(node: JsonNode) -> str:
    """Return the URL of a button or link; "" = none."""
    behaviors = [*node.items("behaviors"), *(action["action"] for action in node.items("actions"))]
    places = (node, node["url"], node["multi_url"], node["href"], *behaviors)
    urls = (_first(place, "url", "default_url", "href") for place in places)
    return next(filter(None, urls), "")


def _rows_markdown(heads: list[str], rows: list[list[str]]) -> str:
    if not heads:
        return ""
    lines = [heads, ["---"] * len(heads), *rows[:_MAX_ROWS]]
    table = "\n".join(f"| {' | '.join(map(_one_line, cells))} |" for cells in lines)
    return table if len(rows) <= _MAX_ROWS else f"{table}\n[{len(rows) - _MAX_ROWS} more rows]"


def _one_line(cell: str) -> str:
    return re.sub(r"\s+", " ", cell).replace("|", "\\|").strip()
