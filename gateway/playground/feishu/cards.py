"""Feishu's rules for cards: JSON 2.0, no unknown properties, at most three tables."""

import re
from collections.abc import Iterator
from typing import Any

MAX_TABLES = 3
MAX_ELEMENTS = 200

_CARD = {"schema", "config", "header", "body", "card_link"}
_CONFIG = {
    "update_multi", "streaming_mode", "streaming_config", "summary", "enable_forward", "width_mode",
    "enable_forward_interaction", "locales", "style", "use_custom_translation",
}  # fmt: skip
_BODY = {
    "elements", "direction", "padding", "horizontal_spacing", "horizontal_align", "vertical_spacing",
    "vertical_align",
}  # fmt: skip
_HEADER = {"title", "subtitle", "template", "icon", "text_tag_list", "padding"}
_PLACE = {"element_id", "margin"}
_TAGS: dict[str, set[str]] = {
    "markdown": {"content", "text_size", "text_align", "icon"} | _PLACE,
    "div": {"text", "icon", "width"} | _PLACE,
    "hr": set(_PLACE),
    "img": {"img_key", "alt", "title", "scale_type", "size", "preview", "corner_radius"} | _PLACE,
    "column_set": {
        "columns", "flex_mode", "horizontal_spacing", "horizontal_align", "background_style", "action",
    } | _PLACE,
    "column": {
        "elements", "width", "weight", "background_style", "vertical_align", "vertical_spacing", "padding",
        "direction", "horizontal_align", "horizontal_spacing", "action",
    } | _PLACE,
    "button": {
        "text", "type", "size", "width", "icon", "hover_tips", "disabled", "disabled_tips", "confirm",
        "behaviors", "name", "form_action_type", "required",
    } | _PLACE,
    "table": {"columns", "rows", "page_size", "row_height", "header_style", "freeze_first_column"} | _PLACE,
    "collapsible_panel": {
        "elements", "expanded", "header", "border", "background_color", "direction", "padding",
        "vertical_spacing",
    } | _PLACE,
    "plain_text": {"content", "text_size", "text_color", "text_align", "lines", "i18n_content"},
    "lark_md": {"content", "text_size", "text_color", "text_align", "lines"},
    "standard_icon": {"token", "color", "size"},
}  # fmt: skip
_BUTTON_TYPES = {
    "default", "primary", "danger", "text", "primary_text", "danger_text", "primary_filled", "danger_filled",
    "laser",
}  # fmt: skip
_NEEDS = {
    "markdown": "content",
    "div": "text",
    "plain_text": "content",
    "img": "img_key",
    "button": "text",
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,19}\Z")
_DELIMITER_ROW = re.compile(r"^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")


class InvalidCard(Exception):
    """The platform would reject this card. `sub` is the code in its message."""

    def __init__(self, sub: int, text: str) -> None:
        super().__init__(text)
        self.sub = sub


def check(card: object) -> dict[str, Any]:
    """Return the card if the platform would accept it, else raise InvalidCard."""
    if not isinstance(card, dict):
        raise InvalidCard(200621, "a card is an object")
    if card.get("schema") != "2.0":
        raise InvalidCard(200621, "schema is not 2.0")
    _known(card, _CARD, "card")
    _known(card.get("config", {}), _CONFIG, "config")
    _known(card.get("header", {}), _HEADER, "header")
    _typed(card.get("config", {}).get("streaming_config", {}))
    body = card.get("body")
    if not isinstance(body, dict) or not isinstance(body.get("elements"), list):
        raise InvalidCard(200621, "body.elements is missing")
    _known(body, _BODY, "body")
    elements = list(_elements(body["elements"]))
    names = [element["element_id"] for element in elements if "element_id" in element]
    if len(set(names)) < len(names) or not all(_NAME.match(str(name)) for name in names):
        raise InvalidCard(200621, f"element ids {names}")
    if not elements or len(elements) > MAX_ELEMENTS:
        raise InvalidCard(11310, f"{len(elements)} elements")
    if sum(_tables(element) for element in elements) > MAX_TABLES:
        raise InvalidCard(11310, "element exceeds the limit; table number over limit")
    return card


def words(card: dict[str, Any]) -> list[str]:
    """Return the visible texts, one per element."""
    seen = []
    for element in _elements(card["body"]["elements"]):
        if element["tag"] == "markdown":
            seen.append(element["content"])
        elif element["tag"] == "div":
            seen.append(element["text"]["content"])
    return seen


def markdown(card: dict[str, Any]) -> list[str]:
    """Return the Markdown of a card, one text per element."""
    elements = _elements(card["body"]["elements"])
    return [element["content"] for element in elements if element["tag"] == "markdown"]


def buttons(card: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the buttons: label -> the value of its callback."""
    return {
        element["text"]["content"]: element["behaviors"][0]["value"]
        for element in _elements(card["body"]["elements"])
        if element["tag"] == "button"
    }


def written(card: dict[str, Any], element_id: str, text: str) -> dict[str, Any]:
    """Return a card with another text in one element."""
    elements = [
        {**element, "content": text} if element.get("element_id") == element_id else element
        for element in card["body"]["elements"]
    ]
    if elements == card["body"]["elements"] and text not in str(elements):
        raise InvalidCard(300313, f"no element {element_id}")
    return {**card, "body": {**card["body"], "elements": elements}}


def _elements(items: list[Any]) -> Iterator[dict[str, Any]]:
    for item in items:
        tag = item.get("tag") if isinstance(item, dict) else None
        if tag not in _TAGS:
            raise InvalidCard(200861, f"unknown tag {tag!r}")
        _known(item, _TAGS[tag] | {"tag"}, tag)
        _complete(item, tag)
        yield item
        for name in ("elements", "columns") if tag != "table" else ():
            yield from _elements(item.get(name, []))


def _complete(item: dict[str, Any], tag: str) -> None:
    need = _NEEDS.get(tag)
    if need and not item.get(need):
        raise InvalidCard(200621, f"{tag} without {need}")
    if tag in {"markdown", "plain_text"} and not isinstance(item["content"], str):
        raise InvalidCard(200621, f"{tag}.content is not a string")
    text = item.get("text")
    if tag in {"div", "button"}:
        list(_elements([text]))
    if tag == "button":
        _pressable(item)


def _typed(config: object) -> None:
    _known(config, {"print_frequency_ms", "print_step", "print_strategy"}, "streaming_config")
    if not isinstance(config, dict):
        return
    if config.get("print_strategy", "fast") not in {"fast", "delay"}:
        raise InvalidCard(200621, "print_strategy")
    for name in ("print_frequency_ms", "print_step"):
        _known(config.get(name, {}), {"default", "android", "ios", "pc"}, name)


def _pressable(button: dict[str, Any]) -> None:
    if button.get("type", "default") not in _BUTTON_TYPES:
        raise InvalidCard(200621, f"a button of type {button['type']}")
    behaviors = button.get("behaviors")
    if not isinstance(behaviors, list) or not behaviors:
        raise InvalidCard(200621, "a button that does nothing")
    for behavior in behaviors:
        if set(behavior) != {"type", "value"} or behavior["type"] != "callback":
            raise InvalidCard(200621, f"behavior {behavior}")
        if not isinstance(behavior["value"], dict):
            raise InvalidCard(200621, "a callback's value is an object")


def _known(value: object, names: set[str], where: str) -> None:
    if not isinstance(value, dict):
        raise InvalidCard(200621, f"{where} is not an object")
    if unknown := set(value) - names:
        raise InvalidCard(200621, f"unknown property {sorted(unknown)} in {where}")


def _tables(element: dict[str, Any]) -> int:
    if element["tag"] == "table":
        return 1
    if element["tag"] != "markdown":
        return 0
    count, fence, before = 0, "", ""
    for line in element["content"].splitlines():
        mark = line.strip()[:3]
        if mark in {"```", "~~~"} and fence in {"", mark}:
            fence = "" if fence else mark
        elif not fence and "|" in before and "-" in line and _DELIMITER_ROW.match(line):
            count += 1
        before = line
    return count
