"""The bot's own messages by language. To add one, see docs/howto/languages.md."""

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache

from bus.locales.en import ENGLISH, Messages
from bus.locales.zh import CHINESE

__all__ = ["LANGUAGES", "Messages", "messages_for", "supported_language"]

LANGUAGES: Mapping[str, Messages] = {"en": ENGLISH, "zh": CHINESE}
"""The messages by primary language subtag (BCP 47). The first one is the fallback."""


def supported_language(language: str) -> str:
    """Return the key in `LANGUAGES` for a language tag; "" if the language is not supported.

    >>> [supported_language(tag) for tag in ("zh-Hans", "zh_CN", "EN-gb", "fr", "")]
    ['zh', 'zh', 'en', '', '']
    """
    primary = language.replace("_", "-").partition("-")[0].lower()
    return primary if primary in LANGUAGES else ""


def messages_for(language: str, command_prefix: str = "/") -> Messages:
    """Return the messages for a language tag, in English if the language is not supported.

    Args:
        language: The tag.
        command_prefix: The beginning of commands on the reader's platform.

    >>> messages_for("zh-CN").stop_done, messages_for("fr").stop_done
    ('已停止。', 'Stopped.')
    >>> messages_for("en", "@parley /").rewind_busy
    'Something is running: send @parley /stop first.'
    """
    catalog = LANGUAGES.get(supported_language(language), ENGLISH)
    return catalog if command_prefix == "/" else _prefixed(catalog, command_prefix)


@lru_cache(maxsize=64)
def _prefixed(catalog: Messages, command_prefix: str) -> Messages:
    """Return the messages with a prefix before each command."""
    texts = {field.name: str(getattr(catalog, field.name)) for field in fields(catalog)}
    names = [name.removeprefix("help_") for name in texts if name.startswith("help_")]
    command = re.compile(rf"(?<![\w/@])/(?=(?:{'|'.join(names)})\b)")
    # Unescaped braces would be placeholders.
    prefix = command_prefix.replace("{", "").replace("}", "")
    return Messages(**{name: command.sub(lambda _: prefix, text) for name, text in texts.items()})
