"""Reads the content of a Telegram message: its text as Markdown, its files, and its mentions. Pure.

One table defines how each field of `Message` and `ExternalReplyInfo` is read. `tests/bots/test_telegram_content.py`
compares it with the newest Bot API.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bots.telegram.attachments import media_files
from bots.telegram.entity_markdown import ParsedText, link, parse_text
from bots.telegram.identity import NOBODY, TelegramIdentity
from bots.telegram.payload import (
    UNREADABLE,
    Json,
    as_int,
    as_line,
    as_list,
    as_object,
    as_objects,
    as_str,
    as_time,
    chat_name,
    person_name,
)
from bots.telegram.rich_markdown import RichReader
from bus.characters import clean
from bus.messages import Attachment

_NANO = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramContent:
    """The text and files of a message.

    Attributes:
        text: Its text, followed by descriptions of other content, as Markdown without mentions of the bot.
        plain: Its text or caption without formatting, for commands.
        files: Its files.
        is_own: Whether it contains text or files, and not only a place, a poll or a sticker.
        mentioned, mentions_people, command, for_other: See `ParsedText`.
    """

    text: str = ""
    plain: str = ""
    files: tuple[Attachment, ...] = ()
    is_own: bool = False
    mentioned: bool = False
    mentions_people: bool = False
    command: str = ""
    for_other: bool = False

    @property
    def shown(self) -> str:
        """Its text and the names of its files."""
        return _lines(self.text, *(f"[File: {file.name}]" for file in self.files))


@dataclass(frozen=True, slots=True)
class _Part:
    """The text and files of one field, and whether it could be read."""

    words: str = ""
    files: tuple[Attachment, ...] = ()
    is_read: bool = True


def read_content(message: Json, identity: TelegramIdentity) -> TelegramContent:
    """Return the content of a Message or an ExternalReplyInfo. Never raises.

    If a field cannot be read, a line names it, and the other fields are still read.

    Args:
        message: The raw message.
        identity: The bot whose mentions are removed; `NOBODY` = keep all mentions.
    """
    own, rich_files = _own_words(message, identity)
    parts: dict[str, _Part] = {}
    for field in _READERS:
        newer = parts.get(_REPEATED_BY.get(field, ""))
        if message.get(field) is not None and not (newer and _repeats(field, newer)):
            parts[field] = _read(field, message[field])
    found = (*rich_files, *(file for part in parts.values() for file in part.files))
    files = {file.ref: file for file in found}
    return TelegramContent(
        text=_lines(own.text, *(part.words for part in parts.values())),
        plain=own.plain,
        files=tuple(files.values()),
        is_own=bool(own.text or own.mentioned or rich_files or _OWN & message.keys()),
        mentioned=own.mentioned,
        mentions_people=own.mentions_people,
        command=own.command,
        for_other=own.for_other,
    )


def has_content(message: Json) -> bool:
    """Return whether a person wrote or sent a message, that is, it is not a service message."""
    return any(message.get(field) is not None for field in (*_WORDS, *_READERS))


def kind_of_message(message: Json) -> str:
    """Return Telegram's name of the kind of message."""
    return next((field for field in message if field not in SURROUNDINGS), "service message")


def _own_words(
    message: Json, identity: TelegramIdentity
) -> tuple[ParsedText, Sequence[Attachment]]:
    """Return a message's text, caption or rich text, and the files in the rich text."""
    for field, entities in _WORDS.items():
        words = message.get(field)
        if words is None:
            continue
        if isinstance(words, str):
            return parse_text(words, as_list(message.get(entities)), identity), ()
        if field == "rich_message":
            reader = RichReader(identity)
            try:
                text = reader.read(words)
            except UNREADABLE:
                return ParsedText(text=unreadable(field)), ()
            parsed = ParsedText(
                text=text,
                plain=text,
                mentioned=reader.mentioned,
                mentions_people=reader.mentions_people,
            )
            return parsed, reader.files
        return ParsedText(text=unreadable(field)), ()
    return ParsedText(text=""), ()


def _repeats(field: str, newer: _Part) -> bool:
    """Return whether a newer field already contains this field's content. Such fields are only for older programs."""
    if field == "photo":
        return any(file.kind == "image" for file in newer.files)
    return newer.is_read


def _read(field: str, value: object) -> _Part:
    try:
        return _READERS[field](value)
    except UNREADABLE:
        return _Part(unreadable(field), is_read=False)


def unreadable(field: str) -> str:
    """Return the line that replaces a field that cannot be read."""
    return f"[Not readable here: {NAMES.get(field, field.replace('_', ' '))}]"


def _media(field: str) -> Callable[[object], _Part]:
    return lambda value: _Part(files=media_files(field, value))


def _sticker(value: object) -> _Part:
    sticker = as_object(value)
    pack = as_line(sticker.get("set_name"))
    named = [as_line(sticker.get("emoji")), f"from {pack}" if pack else ""]
    return _Part(_label("Sticker", " ".join(filter(None, named))), media_files("sticker", value))


def _paid_media(value: object) -> _Part:
    info = as_object(value)
    files: list[Attachment] = []
    hidden = 0
    for media in as_objects(info.get("paid_media")):
        kind = as_str(media.get("type"))
        if kind in {"photo", "video", "live_photo"}:
            files += media_files(kind, media.get(kind))
        else:
            hidden += 1
    price = _price("XTR", info.get("star_count"))
    lines = [f"[Not readable here: paid media ({price})]"] * hidden
    return _Part(_lines(*lines), tuple(files))


def _story(value: object) -> _Part:
    by = chat_name(as_object(value).get("chat"))
    return _Part(f"[Not readable here: a story{f' by {by}' if by else ''}]")


def _checklist(value: object) -> _Part:
    checklist = as_object(value)
    tasks = as_objects(checklist.get("tasks"))
    title = _line_of(checklist, "title", "title_entities")
    return _Part(_lines(_label("Checklist", title, tasks), *map(_task, tasks)))


def _task(task: Json) -> str:
    by = person_name(task.get("completed_by_user")) or chat_name(task.get("completed_by_chat"))
    is_done = bool(by or task.get("completion_date"))
    text = _line_of(task, "text", "text_entities")
    return f"- [{'x' if is_done else ' '}] {text}{f' (done by {by})' if by else ''}"


def _poll(value: object) -> _Part:
    poll = as_object(value)
    options = as_objects(poll.get("options"))
    right = as_list(poll.get("correct_option_ids"))
    label = "Quiz" if poll.get("type") == "quiz" else "Poll"
    label = f"{label}, closed" if poll.get("is_closed") is True else label
    media = _poll_media(poll.get("media"))
    explanation = _poll_media(poll.get("explanation_media"))
    described = [_option(option, is_right=n in right) for n, option in enumerate(options)]
    parts = [media, *described, explanation]
    reason = _words_of(poll, "explanation", "explanation_entities")
    return _Part(
        _lines(
            _label(label, _line_of(poll, "question", "question_entities"), options),
            _words_of(poll, "description", "description_entities"),
            media.words,
            *(part.words for part in described),
            f"[Explanation: {reason}]" if reason else "",
            explanation.words,
        ),
        tuple(file for part in parts for file in part.files),
    )


def _option(option: Json, *, is_right: bool) -> _Part:
    votes = as_int(option.get("voter_count")) or 0
    notes = [
        "correct" if is_right else "",
        f"{votes} vote{'' if votes == 1 else 's'}" if votes else "",
    ]
    note = ", ".join(filter(None, notes))
    media = _poll_media(option.get("media"))
    text = _line_of(option, "text", "text_entities")
    shown = " ".join(media.words.split())
    line = " ".join(filter(None, (text, f"({note})" if note else "", shown)))
    return _Part(f"- {line}", media.files)


def _poll_media(media: object) -> _Part:
    shown = as_object(media)
    content = read_content(shown, NOBODY)
    url = as_str(as_object(shown.get("link")).get("url"))
    return _Part(_lines(content.shown, url), content.files)


def _venue(value: object) -> _Part:
    venue = as_object(value)
    names = (as_line(venue.get("title")), as_line(venue.get("address")))
    return _Part(f"[Place: {', '.join(filter(None, names))} ({_coordinates(venue['location'])})]")


def _location(value: object) -> _Part:
    return _Part(f"[Location: {_coordinates(value)}]")


def _coordinates(value: object) -> str:
    place = as_object(value)
    return f"{place['latitude']:.6f}, {place['longitude']:.6f}"


def _contact(value: object) -> _Part:
    contact = as_object(value)
    names = (person_name(contact), as_line(contact.get("phone_number")))
    card = clean(as_str(contact.get("vcard"))).strip()
    return _Part(_lines(_label("Contact", ", ".join(filter(None, names))), card))


def _dice(value: object) -> _Part:
    dice = as_object(value)
    return _Part(f"[{as_line(dice.get('emoji'))} {int(dice['value'])}]")


def _game(value: object) -> _Part:
    game = as_object(value)
    said = (
        clean(as_str(game.get("description"))).strip(),
        _words_of(game, "text", "text_entities"),
    )
    photo = game.get("photo")
    files = media_files("photo", photo) if as_objects(photo) else ()
    return _Part(_lines(_label("Game", as_line(game.get("title"))), *said), files)


def _invoice(value: object) -> _Part:
    invoice = as_object(value)
    price = _price(as_line(invoice.get("currency")), invoice.get("total_amount"))
    label = _label("Invoice", ", ".join(filter(None, (as_line(invoice.get("title")), price))))
    return _Part(_lines(label, clean(as_str(invoice.get("description"))).strip()))


def _giveaway(value: object) -> _Part:
    giveaway = as_object(value)
    by = ", ".join(filter(None, map(chat_name, as_list(giveaway.get("chats")))))
    return _Part(_lines(_label("Giveaway", _giveaway_line(giveaway, by))))


def _giveaway_winners(value: object) -> _Part:
    giveaway = as_object(value)
    line = _giveaway_line(giveaway, chat_name(giveaway.get("chat")))
    winners = [f"- {person_name(user)}" for user in as_list(giveaway.get("winners"))]
    return _Part(_lines(_label("Winners of a giveaway", line), *winners))


def _giveaway_line(giveaway: Json, by: str) -> str:
    count, months = (
        as_int(giveaway.get("winner_count")),
        giveaway.get("premium_subscription_month_count"),
    )
    at = as_time(giveaway.get("winners_selection_date"))
    facts = (
        f"by {by}" if by else "",
        f"{count} winner{'' if count == 1 else 's'}" if count is not None else "",
        as_line(giveaway.get("prize_description")),
        _price("XTR", giveaway.get("prize_star_count")),
        f"{months} months of Telegram Premium" if months else "",
        _moment(at),
    )
    return ", ".join(filter(None, facts))


def _gift(value: object) -> _Part:
    info = as_object(value)
    gift = as_object(info["gift"])
    emoji = as_line(as_object(gift.get("sticker")).get("emoji"))
    price = _price("XTR", gift.get("star_count"))
    label = _label("Gift", ", ".join(filter(None, (emoji, price))))
    return _Part(_lines(label, _words_of(info, "text", "entities")))


def _unique_gift(value: object) -> _Part:
    info = as_object(value)
    gift = as_object(info["gift"])
    name = as_line(gift.get("base_name")) or as_line(gift.get("name"))
    label = _label("Gift", f"{name} #{gift['number']}" if "number" in gift else name)
    return _Part(_lines(label, _words_of(info, "text", "entities")))


def _suggested_post(value: object) -> _Part:
    post = as_object(value)
    price = as_object(post.get("price"))
    at = as_time(post.get("send_date"))
    facts = (
        as_line(post.get("state")),
        _price(as_line(price.get("currency")), price.get("amount")),
        _moment(at),
    )
    return _Part(_label("Suggested post", ", ".join(filter(None, facts))))


def _links(value: object) -> _Part:
    """Return the links of the buttons below a message. Other buttons do not describe the message."""
    rows = as_list(as_object(value).get("inline_keyboard"))
    buttons = [button for row in rows for button in as_objects(row)]
    return _Part(
        _lines(
            *(
                link(as_line(one.get("text")), as_str(one["url"]))
                for one in buttons
                if one.get("url")
            )
        )
    )


def _label(kind: str, words: str, rest: Sequence[object] = ()) -> str:
    """Return the heading of a description. Raises ValueError if there is nothing to describe."""
    if not words and not rest:
        raise ValueError(f"an empty {kind}")
    return f"[{kind}: {words}]" if words else f"[{kind}]"


def _price(currency: str, amount: object) -> str:
    """Return an amount as text. Telegram gives it in the currency's smallest units."""
    number = as_int(amount)
    if number is None:
        return ""
    match currency:
        case "XTR":
            return f"{number} Telegram Stars"
        case "TON":
            return f"{number / _NANO:g} TON"
        case _:
            return f"{number} in the smallest units of {currency or 'a currency'}"


def _moment(at: float | None) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC" if at is not None else ""


def _words_of(value: Json, field: str, entities: str) -> str:
    """Return a formatted text inside an object as Markdown."""
    return parse_text(as_str(value.get(field)), as_list(value.get(entities)), NOBODY).text


def _line_of(value: Json, field: str, entities: str) -> str:
    return " ".join(_words_of(value, field, entities).split())


def _lines(*lines: str) -> str:
    return "\n".join(filter(None, lines))


_WORDS = {"text": "entities", "caption": "caption_entities", "rich_message": ""}
"""The fields with a message's own text, and their entities."""

_READERS: Mapping[str, Callable[[object], _Part]] = {
    "live_photo": _media("live_photo"),
    "photo": _media("photo"),
    "animation": _media("animation"),
    "video": _media("video"),
    "video_note": _media("video_note"),
    "voice": _media("voice"),
    "audio": _media("audio"),
    "document": _media("document"),
    "paid_media": _paid_media,
    "sticker": _sticker,
    "story": _story,
    "checklist": _checklist,
    "poll": _poll,
    "venue": _venue,
    "location": _location,
    "contact": _contact,
    "dice": _dice,
    "game": _game,
    "invoice": _invoice,
    "giveaway": _giveaway,
    "giveaway_winners": _giveaway_winners,
    "gift": _gift,
    "unique_gift": _unique_gift,
    "gift_upgrade_sent": _gift,
    "suggested_post_info": _suggested_post,
    "reply_markup": _links,
}
"""Readers of other fields, in the order of their text."""

_OWN = frozenset(
    {
        *("text", "caption"),
        *("live_photo", "photo", "animation", "video", "video_note", "voice", "audio", "document"),
        "paid_media",
    }
)
"""Fields with text or files. Other messages in a group must reply to the bot to be for it."""

_REPEATED_BY = {"document": "animation", "photo": "live_photo", "location": "venue"}
"""Fields that Telegram sets for older programs too, and the newer field with the same content."""

NAMES = {
    "text": "the text",
    "caption": "the caption",
    "rich_message": "a rich message",
    "live_photo": "a live photo",
    "photo": "a photo",
    "animation": "an animation",
    "video": "a video",
    "video_note": "a video message",
    "voice": "a voice message",
    "audio": "an audio file",
    "document": "a file",
    "paid_media": "paid media",
    "sticker": "a sticker",
    "story": "a story",
    "checklist": "a checklist",
    "poll": "a poll",
    "venue": "a place",
    "location": "a location",
    "contact": "a contact",
    "dice": "a die",
    "game": "a game",
    "invoice": "an invoice",
    "giveaway": "a giveaway",
    "giveaway_winners": "the winners of a giveaway",
    "gift": "a gift",
    "unique_gift": "a gift",
    "gift_upgrade_sent": "a gift",
    "suggested_post_info": "a suggested post",
    "reply_markup": "buttons",
    "reply_to_message": "the message that is replied to",
    "external_reply": "the message that is replied to",
}
"""What to call a field that cannot be read."""

SURROUNDINGS = frozenset(
    {
        *("message_id", "message_thread_id", "direct_messages_topic", "from", "sender_chat"),
        *("sender_boost_count", "sender_business_bot", "sender_tag", "receiver_user"),
        *("ephemeral_message_id", "date", "guest_query_id", "business_connection_id", "chat"),
        *("forward_origin", "is_topic_message", "is_automatic_forward", "reply_to_message"),
        *("external_reply", "quote", "reply_to_story", "reply_to_checklist_task_id"),
        *("reply_to_poll_option_id", "via_bot", "guest_bot_caller_user", "guest_bot_caller_chat"),
        *("edit_date", "has_protected_content", "is_from_offline", "is_paid_post"),
        *("media_group_id", "author_signature", "paid_star_count", "entities"),
        *("link_preview_options", "effect_id", "caption_entities", "show_caption_above_media"),
        "has_media_spoiler",
    }
)
"""Fields that are not content, such as author, chat, time and display. They do not determine a message's kind."""
