"""Reads Slack messages of all kinds: new and edited ones, threads, forwarded and linked messages. Pure.

Payloads are untrusted, so every field is checked before use, and nothing here raises. Names of people,
channels and user groups are marks (mentions.py), which `SlackNames` replaces.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bots.common.attachments import as_quoted
from bots.slack.attachments import describe_location, describe_speech, parse_attachments
from bots.slack.block_text import block_images, read_blocks
from bots.slack.mentions import OWN_NAME, author_mark, cut, mentions_people, plain, take_bot
from bots.slack.mrkdwn_parser import date_words, link, parse_mrkdwn, parse_plain
from bots.slack.payload import SlackIdentity, as_list, as_mapping, as_str
from bots.text.quotations import FORWARDED, quotation
from bus.messages import Attachment

CUT_CHARS = 4_000
"""Length above which Slack splits a plain text into several messages (undocumented; slack-go/slack#972).

Its own composer sends rich text, which is not split.
"""

_CUT_EARLIER = 200
"""How much earlier Slack may cut a text, to end at a line or a word, characters."""

_MOST_NESTED = 3
"""Maximum nesting of forwarded messages to read."""

_MOST_COMPARED = 50
"""Maximum number of parts of a message to compare for repetitions."""

_UNREADABLE = "[Not readable here: "
_NO_FALLBACK = ("[no preview available]", "This content can't be displayed.")
"""Texts that Slack adds to an app's message without text."""

_WORD = re.compile(r"\w+")
_EMOJI = re.compile(r":[\w+-]+:")
_NAMES_OF_ELEMENTS = frozenset({"button", "image", "link", "select", "menu"})
"""Words that Slack adds when it creates a fallback text itself."""

_MESSAGE_FLAGS = ("is_share", "is_msg_unfurl", "is_thread_root_unfurl", "is_reply_unfurl")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackContent:
    """The content of a message.

    Attributes:
        text: The author's own words, as Markdown.
        quoted: Forwarded and linked messages, as quotations.
        files: Its files, then the files of the forwarded messages.
        mentions_bot: Whether its own words mention the bot. The mention is removed.
        mentions_people: Whether its own words mention anybody else.
        is_forwarded: Whether it forwards another message.
        is_cut: Whether Slack may have split it from a longer text.
    """

    text: str
    quoted: str
    files: tuple[Attachment, ...]
    mentions_bot: bool = False
    mentions_people: bool = False
    is_forwarded: bool = False
    is_cut: bool = False


def read_message(message: Mapping[str, Any], me: SlackIdentity) -> SlackContent:
    r"""Return the content of a message.

    >>> shared = {"is_share": True, "author_name": "Ann", "text": "See &lt;b&gt;\nand c"}
    >>> me = SlackIdentity(team_id="T1", user_id="U0", bot_id="B0")
    >>> read_message({"text": "<@U0> look", "attachments": [shared]}, me).text
    'look'
    >>> read_message({"text": "<@U0> look", "attachments": [shared]}, me).quoted
    '[Forwarded]\n> Ann: See <b>\n> and c'
    """
    typed, mentions_bot = take_bot(
        _text_and_blocks(message, by_app=_is_by_app(message)), me.user_id
    )
    size = len(parse_plain(as_str(message.get("text"))))
    return SlackContent(
        text=_own_words(message, typed),
        quoted="\n\n".join(_forwarded_messages(message, me, depth=0)),
        files=_all_files(message, me.installation),
        mentions_bot=mentions_bot,
        mentions_people=mentions_people(typed),
        is_forwarded=any(one.get("is_share") is True for one in _attachments(message)),
        is_cut=CUT_CHARS - _CUT_EARLIER <= size <= CUT_CHARS,
    )


def quote_message(
    message: Mapping[str, Any], me: SlackIdentity, *, limit: int | None = None
) -> str:
    """Return a message as a quotation with its author; "" = no text. `limit`: maximum length of its text."""
    typed = _text_and_blocks(message, by_app=_is_by_app(message))
    spoken = (describe_speech(as_mapping(file)) for file in as_list(message.get("files")))
    own = "\n".join(filter(None, [_own_words(message, typed), *spoken]))
    parts = [own, *_forwarded_messages(message, me, depth=0)]
    words = cut("\n\n".join(filter(None, parts)), limit)
    return _quotation(words, as_list(message.get("files")), author_of(message, me))


def author_of(message: Mapping[str, Any], me: SlackIdentity) -> str:
    """Return the author of a message: a name, or a mark for a name."""
    user, bot = as_str(message.get("user")), as_str(message.get("bot_id"))
    if (user and user == me.user_id) or (bot and bot == me.bot_id):
        return OWN_NAME
    return _name(bot_name(message)) or (author_mark(user) if user else "Somebody")


def bot_name(message: Mapping[str, Any]) -> str:
    """Return the name in a message of another bot; "" = none."""
    profile = as_mapping(message.get("bot_profile"))
    return plain(as_str(profile.get("name")) or as_str(message.get("username")))


def _name(name: str) -> str:
    """Return a name that someone else chose. Add a note if it is the same as `OWN_NAME`."""
    name = plain(name)
    return f"{name} (not the bot)" if name.strip().casefold() == OWN_NAME.casefold() else name


def _quotation(words: str, files: Sequence[Any], author: str, heading: str = "") -> str:
    names = [
        f"[File: {parsed.name}]"
        for file in files
        for parsed in parse_attachments([file])
        if not describe_location(as_mapping(file))
    ]
    return quotation("\n".join(filter(None, [words, *names])), author, heading=heading)


def _is_by_app(message: Mapping[str, Any]) -> bool:
    return bool(message.get("bot_id")) or message.get("subtype") == "bot_message"


def _attachments(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [as_mapping(one) for one in as_list(message.get("attachments"))]


def _is_message(attachment: Mapping[str, Any]) -> bool:
    return any(attachment.get(flag) is True for flag in _MESSAGE_FLAGS)


def _is_preview(attachment: Mapping[str, Any]) -> bool:
    """Return whether an attachment is a preview that Slack or an app added for a link."""
    return bool(attachment.get("from_url") or attachment.get("original_url"))


def _own_words(message: Mapping[str, Any], typed: str) -> str:
    """Return the author's own words: the typed text, an app's attachments, and links to files outside Slack.

    Link previews are read only if there is nothing else, because others wrote them, and the agent can open the links.
    """
    links = [describe_location(as_mapping(file)) for file in as_list(message.get("files"))]
    others = [one for one in _attachments(message) if not _is_message(one)]
    content = [one for one in others if _is_by_app(message) and not _is_preview(one)]
    attached = _joined([typed, *(_attachment_text(one, depth=0) for one in content)])
    words = "\n".join(filter(None, [attached, *links]))
    if words or any(map(_is_message, _attachments(message))):
        return words
    return _joined(_attachment_text(one, depth=0) for one in others)


def _text_and_blocks(message: Mapping[str, Any], *, by_app: bool) -> str:
    """Return the text and the blocks of a message, without repetition.

    In people's messages, the text is a simpler copy of the blocks. In apps' messages, the text is for notifications,
    and may contain more than the blocks.
    """
    text = parse_mrkdwn(as_str(message.get("text"))).strip()
    blocks = as_list(message.get("blocks")) or list(_message_blocks(message))
    shown = read_blocks(blocks).strip()
    if not shown or not text or text in _NO_FALLBACK:
        return shown or ("" if text in _NO_FALLBACK else text)
    is_copy = all(as_mapping(block).get("type") == "rich_text" for block in blocks)
    if is_copy and not by_app and _UNREADABLE not in shown:
        return shown
    return shown if _words(text) - _NAMES_OF_ELEMENTS <= _words(shown) else f"{text}\n{shown}"


def _message_blocks(attachment: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the blocks of a forwarded message, which Slack nests in a list of messages."""
    for part in map(as_mapping, as_list(attachment.get("message_blocks"))):
        yield from as_list(as_mapping(part.get("message")).get("blocks"))


def _words(text: str) -> set[str]:
    return set(_WORD.findall(_EMOJI.sub(" ", text).casefold()))


def _joined(parts: Iterable[str]) -> str:
    """Join parts with newlines. Omits parts whose words are contained in another part."""
    given = [part for part in parts if part.strip()]
    if len(given) > _MOST_COMPARED:
        return "\n".join(given)
    phrases = [f" {' '.join(_WORD.findall(part.casefold()))} " for part in given]

    def is_said(at: int) -> bool:
        phrase = phrases[at]
        return bool(phrase.strip()) and any(
            phrase in other and (phrase != other or position < at)
            for position, other in enumerate(phrases)
            if position != at
        )

    return "\n".join(part for at, part in enumerate(given) if not is_said(at))


def _forwarded_messages(
    message: Mapping[str, Any], me: SlackIdentity, *, depth: int
) -> Iterator[str]:
    """Yield forwarded and linked messages as quotations."""
    for shared in filter(_is_message, _attachments(message)):
        parts = [_attachment_text(shared, depth=depth)]
        if depth < _MOST_NESTED:
            parts += _forwarded_messages(shared, me, depth=depth + 1)
        words = "\n\n".join(filter(None, parts))
        author = as_str(shared.get("author_id"))
        name = _name(as_str(shared.get("author_name"))) or (author_mark(author) if author else "")
        name = OWN_NAME if author and author == me.user_id else name
        if quoted := _quotation(words, as_list(shared.get("files")), name, FORWARDED):
            yield quoted


def _attachment_text(attachment: Mapping[str, Any], *, depth: int) -> str:
    """Return the text of an attachment, from top to bottom.

    The fields: docs.slack.dev/legacy/legacy-messaging/legacy-secondary-message-attachments. This function
    skips `color`, small pictures (`author_icon`, `footer_icon`, `thumb_url`), `callback_id` and `mrkdwn_in`.
    """
    is_message = _is_message(attachment)
    body = _joined([
        _mrkdwn(attachment, "pretext"),
        "" if is_message else _linked(attachment, "author_name", "author_link"),
        "" if is_message else _mrkdwn(attachment, "author_subname"),
        _linked(attachment, "title", "title_link"),
        _text_and_blocks(attachment, by_app=not is_message),
        *(_field(as_mapping(field)) for field in as_list(attachment.get("fields"))),
        *_nested(attachment, depth),
        *(describe_location(as_mapping(file)) for file in as_list(attachment.get("files"))),
    ])  # fmt: skip
    if not body and not as_list(attachment.get("files")):
        fallback = _mrkdwn(attachment, "fallback")
        body = "" if fallback in _NO_FALLBACK else fallback
    picture = plain(as_str(attachment.get("image_url")))
    return _joined([
        body,
        f"[Image: {picture}]" if picture else "",
        "" if is_message else _footer(attachment),
        *(_action(as_mapping(action)) for action in as_list(attachment.get("actions"))),
    ])  # fmt: skip


def _nested(attachment: Mapping[str, Any], depth: int) -> Iterator[str]:
    if depth < _MOST_NESTED:
        for inner in _attachments(attachment):
            if not _is_message(inner) and not _is_preview(inner):
                yield _attachment_text(inner, depth=depth + 1)


def _mrkdwn(attachment: Mapping[str, Any], name: str) -> str:
    return parse_mrkdwn(as_str(attachment.get(name))).strip()


def _linked(attachment: Mapping[str, Any], name: str, address: str) -> str:
    label = _mrkdwn(attachment, name)
    return link(parse_plain(as_str(attachment.get(address))), label) if label else ""


def _field(field: Mapping[str, Any]) -> str:
    title, value = _mrkdwn(field, "title").rstrip(":"), _mrkdwn(field, "value")
    return f"{title}: {value}" if title and value else title or value


def _footer(attachment: Mapping[str, Any]) -> str:
    moment = date_words(attachment.get("ts"), "") if attachment.get("ts") else ""
    return ", ".join(filter(None, [_mrkdwn(attachment, "footer"), moment]))


def _action(action: Mapping[str, Any]) -> str:
    options = (_mrkdwn(as_mapping(one), "text") for one in as_list(action.get("options")))
    label = _linked(action, "text", "url") or _mrkdwn(action, "name")
    if action.get("type") == "select":
        return f"[Field: {'; '.join(filter(None, [label, ', '.join(options)]))}]"
    return f"[Button: {label}]" if label else ""


def _all_files(message: Mapping[str, Any], installation: str) -> tuple[Attachment, ...]:
    own = len(parse_attachments(list(_own_files(message))))
    files = parse_attachments(list(_files(message, depth=0)), installation=installation)
    return (*files[:own], *as_quoted(files[own:]))


def _own_files(message: Mapping[str, Any]) -> Iterator[Any]:
    yield from as_list(message.get("files"))
    yield from block_images(as_list(message.get("blocks")) or list(_message_blocks(message)))


def _files(message: Mapping[str, Any], *, depth: int) -> Iterator[Any]:
    """Yield the files of a message, then the files of the messages that it forwards."""
    yield from _own_files(message)
    if depth <= _MOST_NESTED:
        for one in _attachments(message):
            if _is_message(one) or not _is_preview(one):
                yield from _files(one, depth=depth + 1)
