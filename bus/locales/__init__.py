"""What the bot says, by language. docs/howto/languages.md tells how to add one."""

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache

from bus.locales.catalog import Messages
from bus.locales.en import ENGLISH
from bus.locales.zh import CHINESE

__all__ = ["LANGUAGES", "Messages", "messages_for", "supported_language"]

LANGUAGES: Mapping[str, Messages] = {"en": ENGLISH, "zh": CHINESE}
"""The catalogues by primary language subtag (BCP 47); the first is said to whoever reads none of them."""


def supported_language(language: str) -> str:
    """Return the key in `LANGUAGES` of a language tag; "" if it is not spoken here.

    >>> [supported_language(tag) for tag in ("zh-Hans", "zh_CN", "EN-gb", "fr", "")]
    ['zh', 'zh', 'en', '', '']
    """
    primary = language.replace("_", "-").partition("-")[0].lower()
    return primary if primary in LANGUAGES else ""


def messages_for(language: str, command_sign: str = "/") -> Messages:
    """Return the texts for a language tag, in English where there are none.

    Args:
        language: The tag.
        command_sign: What a command begins with where the texts are read.

    >>> messages_for("zh-CN").stop_done, messages_for("fr").stop_done
    ('已停止。', 'Stopped.')
    >>> messages_for("en", "@parley /").exchange_busy
    'Something is running: send @parley /stop first.'
    """
    catalogue = LANGUAGES.get(supported_language(language), ENGLISH)
    return catalogue if command_sign == "/" else _signed(catalogue, command_sign)


@lru_cache(maxsize=64)
def _signed(catalogue: Messages, command_sign: str) -> Messages:
    """Return a catalogue that names commands as they are written at one place."""
    said = {field.name: str(getattr(catalogue, field.name)) for field in fields(catalogue)}
    names = [name.removeprefix("help_") for name in said if name.startswith("help_")]
    command = re.compile(rf"(?<![\w/@])/(?=(?:{'|'.join(names)})\b)")
    # Braces would be taken for the place of a value.
    sign = command_sign.replace("{", "").replace("}", "")
    return Messages(**{name: command.sub(lambda _: sign, text) for name, text in said.items()})
