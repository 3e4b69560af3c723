"""The fake's representations of messages: cards for old clients, as sent, or in the platform's own form."""

import json
import re
from typing import Any

from gateway.playground.feishu.state import FeishuMessage

UPGRADE = "请升级至最新版本客户端，以查看内容"
CARD_FORMS = {None, "user_card_content", "raw_card_content"}


def shown_content(message: FeishuMessage, form: str | None) -> str:
    """Return the content of a message as the API shows it.

    Args:
        message: The message.
        form: `card_msg_content_type` of the request.
    """
    content = message.content
    if message.type == "merge_forward":
        return "Merged and Forwarded Message"
    if message.type == "interactive" and form == "raw_card_content":
        content = {"json_card": _dump(stored(content.get("made_from", content))), "card_schema": 2}
    elif message.type == "interactive" and form is None:
        content = for_old_clients(content)
    elif message.type == "interactive" and "made_from" in content:
        content = {key: value for key, value in content.items() if key != "made_from"}
    return _dump(content)


def event_content(message: FeishuMessage) -> str:
    """Return the content of a message in its event: cards for old clients, with JSON 2.0 in an additional text."""
    content = message.content
    if message.type == "merge_forward":
        return "Merged and Forwarded Message"
    if message.type == "interactive":
        shown = for_old_clients(content)
        if content.get("schema") == "2.0":
            shown["user_dsl"] = _dump(content)
        return _dump(shown)
    return _dump(content)


def for_old_clients(card: dict[str, Any]) -> dict[str, Any]:
    """Return a card for clients without JSON 2.0: the texts of JSON 1.0, line by line."""
    title = card.get("header", {}).get("title", {}).get("content")
    if card.get("schema") == "2.0" or "made_from" in card:
        texts = [{"tag": "text", "text": text} for text in (UPGRADE, "")]
        return {"title": title, "elements": [[{"tag": "img", "image_key": "img_up"}, *texts]]}
    elements = card.get("elements", [])
    rows = [element if isinstance(element, list) else _row(element) for element in elements]
    return {"title": title or card.get("title"), "elements": rows}


def stored(value: object) -> object:
    """Return a card in the platform's own form: fields in `property`, names in camel case, Markdown parsed."""
    if isinstance(value, list):
        return [stored(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("tag") == "markdown":
        text = {"tag": "plain_text", "property": {"content": value["content"]}}
        return {"tag": "markdown", "property": {"elements": [text]}}
    links = [value.get("url"), value.get("multi_url", {}).get("url")]
    links += [behavior.get("default_url") for behavior in value.get("behaviors", [])]
    fields = {
        _camel(key): stored(item)
        for key, item in value.items()
        if key not in {"tag", "url", "multi_url", "behaviors"}
    }
    if url := next(filter(None, links), ""):
        fields["actions"] = [{"type": "open_url", "action": {"url": url}}]
    return {"tag": value["tag"], "property": fields} if "tag" in value else fields


def _row(element: dict[str, Any]) -> list[dict[str, Any]]:
    text = element.get("text")
    said = text.get("content", "") if isinstance(text, dict) else element.get("content", "")
    return [{"tag": "text", "text": said}] if said else [{"tag": element.get("tag", "text")}]


def _camel(name: str) -> str:
    return re.sub("_([a-z])", lambda match: match[1].upper(), name).replace("userId", "userID")


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
