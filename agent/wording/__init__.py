"""What the agent itself says, by language. docs/howto/languages.md tells how to add one."""

from collections.abc import Mapping

from agent.wording.catalogue import Wording
from agent.wording.chinese import CHINESE
from agent.wording.english import ENGLISH

__all__ = ["LANGUAGES", "Wording", "wording"]

LANGUAGES: Mapping[str, Wording] = {"en": ENGLISH, "zh": CHINESE}
"""By primary language subtag (BCP 47)."""


def wording(language: str | None) -> Wording:
    """Return the words for a language tag, in English where there are none.

    >>> wording("zh-Hans").bare_question, wording(None).bare_question
    ('接下来我该怎么做？', 'How shall I go on?')
    """
    primary = (language or "").replace("_", "-").partition("-")[0].lower()
    return LANGUAGES.get(primary, ENGLISH)
