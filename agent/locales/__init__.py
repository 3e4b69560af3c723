"""Messages of the agent itself, by language. To add a language, see docs/howto/languages.md."""

from collections.abc import Mapping

from agent.locales.en import ENGLISH
from agent.locales.messages import AgentMessages
from agent.locales.zh import CHINESE

__all__ = ["LANGUAGES", "AgentMessages", "messages_for"]

LANGUAGES: Mapping[str, AgentMessages] = {"en": ENGLISH, "zh": CHINESE}
"""By primary language subtag (BCP 47)."""


def messages_for(language: str | None) -> AgentMessages:
    """Return the messages for a language tag; English if the language is not available.

    >>> messages_for("zh-Hans").default_question, messages_for(None).default_question
    ('接下来我该怎么做？', 'How should I continue?')
    """
    primary = (language or "").replace("_", "-").partition("-")[0].lower()
    return LANGUAGES.get(primary, ENGLISH)
