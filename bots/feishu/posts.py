"""Converts rich text (`post`) to Markdown. Pure."""

import re
from collections.abc import Iterator

from bots.feishu.feishu_markdown import image_keys, link, plain_markdown
from bots.feishu.json_node import JsonNode
from bots.feishu.people import People

_STYLES = (("codeInline", "`"), ("bold", "**"), ("italic", "*"), ("lineThrough", "~~"))
"""Text styles with their Markdown marks, innermost first. Markdown has no mark for `underline`."""


def post_body(content: JsonNode) -> JsonNode:
    """Return the body of rich text. A message contains one body, or one for each language."""
    if content.values("content") or content.values("content_v2"):
        return content
    return next((body for body in content.nodes() if body.values("content")), content)


def post_rows(body: JsonNode) -> list[list[JsonNode]]:
    """Return the elements, one list for each line.

    If `content_v2` exists, it contains the author's Markdown, and `content` contains the same text in smaller pieces.
    """
    rows = body.values("content_v2") or body.values("content")
    return [[JsonNode(node) for node in row] for row in rows if isinstance(row, list)]


def post_markdown(content: JsonNode, people: People, *, own_id: str = "") -> str:
    r"""Return rich text as Markdown. Mentions stay placeholders (`@_user_1`) if the message explains them.

    Args:
        content: The content of a `post` message.
        people: Names.
        own_id: The bot's open ID. Mentions of the bot are omitted.

    >>> node = {"tag": "text", "text": "at nine ", "style": ["bold"]}
    >>> post_markdown(JsonNode({"title": "Plan", "content": [[node, {"tag": "hr"}]]}), People({}))
    'Plan\n**at nine** \n---'
    """
    body = post_body(content)
    title = body.text("title").strip()
    rows = post_rows(body)
    lines = ["".join(_node(node, people, own_id) for node in row) for row in rows]
    return "\n".join([title, *lines] if title else lines)


def post_pictures(content: JsonNode) -> Iterator[str]:
    """Yield the keys of the pictures in rich text, in order."""
    for node in post_nodes(content):
        if node.text("tag") == "img":
            yield node.text("image_key")
        elif node.text("tag") == "md":
            yield from image_keys(node.text("text"))


def post_nodes(content: JsonNode) -> Iterator[JsonNode]:
    """Yield the elements of rich text."""
    for row in post_rows(post_body(content)):
        yield from row


def _node(node: JsonNode, people: People, own_id: str) -> str:
    """Return the text of an element. Files have no text, because they become attachments."""
    text = node.text("text") or node.text("content")
    match node.text("tag"):
        case "text":
            said = _styled(text, node)
        case "a":
            said = _styled(link(node.text("href"), text), node)
        case "at":
            said = _mention(node, people, own_id)
        case "md":
            said = plain_markdown(text, people)
        case "code_block":
            said = fenced(text, node.text("language"))
        case "emotion":
            said = f":{node.text('emoji_type')}:"
        case "hr":
            said = "\n---"
        case _:
            said = text
    return said


def fenced(code: str, language: str) -> str:
    r"""Return code as a fenced block, whatever fences it contains.

    >>> print(fenced("a = 1\n", "PYTHON"))
    ```python
    a = 1
    ```
    """
    longest = max((len(run) for run in re.findall("`{3,}", code)), default=2)
    fence = "`" * (longest + 1)
    word = "".join(language.lower().split())
    return f"{fence}{word}\n{code.rstrip()}\n{fence}"


def _styled(text: str, node: JsonNode) -> str:
    """Put a style's marks around a text. Blanks stay outside, because marks next to blanks have no effect."""
    words = bare = text.strip()
    styles = node.values("style")
    for style, mark in _STYLES if bare else ():
        if style in styles:
            words = f"{mark}{words}{mark}"
    before, _, after = text.partition(bare) if bare else (text, "", "")
    return f"{before}{words}{after}"


def _mention(node: JsonNode, people: People, own_id: str) -> str:
    """Return a mention as its placeholder if the message explains it, or else as a name."""
    user = node.text("user_id")
    if user.startswith("@_"):
        return user
    return "" if own_id and user == own_id else people.mention(user, node.text("user_name"))
