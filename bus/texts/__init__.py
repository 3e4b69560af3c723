"""What the bot says, by language. docs/howto/languages.md tells how to add one."""

from collections.abc import Mapping

from bus.texts.catalogue import Texts
from bus.texts.chinese import CHINESE
from bus.texts.english import ENGLISH

__all__ = ["LANGUAGES", "Texts", "known", "texts"]

LANGUAGES: Mapping[str, Texts] = {"en": ENGLISH, "zh": CHINESE}
"""The catalogues by primary language subtag (BCP 47); the first is said to whoever reads none of them."""


def known(language: str) -> str:
    """Return the key in `LANGUAGES` of a language tag; "" if it is not spoken here.

    >>> [known(tag) for tag in ("zh-Hans", "zh_CN", "EN-gb", "fr", "")]
    ['zh', 'zh', 'en', '', '']
    """
    primary = language.replace("_", "-").partition("-")[0].lower()
    return primary if primary in LANGUAGES else ""


def texts(language: str) -> Texts:
    """Return the texts for a language tag, in English where there are none.

    >>> texts("zh-CN").stop_done, texts("fr").stop_done
    ('已停止。', 'Stopped.')
    """
    return LANGUAGES.get(known(language), ENGLISH)
