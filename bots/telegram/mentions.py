"""Mentions of the bot and commands for it in a message's text. Pure.

Telegram's entities count UTF-16 code units, and only they tell a mention from a look-alike: what a
person writes inside code, or with a similar name, has no entity.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from telegram import MessageEntity

from bots.text.characters import clean


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramIdentity:
    """The bot account, as getMe returns it.

    Attributes:
        channel: Instance name of the adapter.
    """

    user_id: int
    username: str
    channel: str = "telegram"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedText:
    """A text without mentions of the bot.

    Attributes:
        text: Without mentions of the bot and `@bot` suffixes of its commands.
        mentioned: Whether the bot was named.
        command: The command that the text begins with, lower case; "" for none.
        for_other: Whether that command is another bot's.
    """

    text: str
    mentioned: bool = False
    command: str = ""
    for_other: bool = False


class _Utf16Text:
    """A text that can be sliced by UTF-16 code units."""

    def __init__(self, text: str) -> None:
        self._bytes = text.encode("utf-16-le", "surrogatepass")

    def __len__(self) -> int:
        return len(self._bytes) // 2

    def part(self, start: int, end: int) -> str:
        return self._bytes[2 * start : 2 * end].decode("utf-16-le", "surrogatepass")


def parse_text(
    text: str, entities: Sequence[MessageEntity], identity: TelegramIdentity
) -> ParsedText:
    """Parse a text or caption.

    >>> entity = MessageEntity(MessageEntity.BOT_COMMAND, offset=0, length=9)
    >>> parse_text("/help@bob now", [entity], TelegramIdentity(user_id=1, username="Bob"))
    ParsedText(text='/help now', mentioned=True, command='help', for_other=False)
    """
    units = _Utf16Text(text)
    kept: list[str] = []
    cursor, mentioned, command, for_other = 0, False, "", False
    for entity in sorted(entities, key=lambda entity: entity.offset):
        end = entity.offset + entity.length
        if entity.offset < cursor or entity.length <= 0 or end > len(units):
            continue
        shown = units.part(entity.offset, end)
        if _is_mention(entity, shown, identity):
            kept.append(units.part(cursor, entity.offset))
            cursor, mentioned = _after_space(units, kept, end), True
        elif entity.type == MessageEntity.BOT_COMMAND:
            name, _, owner = shown.removeprefix("/").partition("@")
            ours = owner.casefold() == identity.username.casefold()
            kept.append(units.part(cursor, entity.offset))
            if _is_blank(kept) and not command:
                command, for_other = name.lower(), bool(owner) and not ours
            kept.append(f"/{name}" if ours else shown)
            cursor, mentioned = end, mentioned or ours
        elif entity.type == MessageEntity.TEXT_LINK:
            kept.append(units.part(cursor, end) + _address(shown, entity.url or ""))
            cursor = end
    kept.append(units.part(cursor, len(units)))
    return ParsedText(
        text=clean("".join(kept)).strip(),
        mentioned=mentioned,
        command=command,
        for_other=for_other,
    )


def _is_mention(entity: MessageEntity, shown: str, identity: TelegramIdentity) -> bool:
    if entity.type == MessageEntity.MENTION:
        return shown.casefold() == f"@{identity.username}".casefold()
    named = entity.user if entity.type == MessageEntity.TEXT_MENTION else None
    return named is not None and named.id == identity.user_id


def _address(label: str, url: str) -> str:
    """Return the address behind a label, unless the label says it.

    >>> _address("docs", "https://a.example/docs"), _address("a.example", "http://a.example/")
    (' (https://a.example/docs)', '')
    """
    plain = url.rstrip("/")
    is_said = label.strip().rstrip("/") in (plain, plain.partition("://")[2])
    return "" if is_said or not url else f" ({url})"


def _after_space(units: _Utf16Text, kept: list[str], end: int) -> int:
    """Return where the text continues after a removed mention: its space is removed too."""
    before = kept[-1][-1:] if kept else ""
    lonely = not before or before.isspace()
    return end + 1 if lonely and units.part(end, end + 1) == " " else end


def _is_blank(kept: Sequence[str]) -> bool:
    return not any(part and not part.isspace() for part in kept)
