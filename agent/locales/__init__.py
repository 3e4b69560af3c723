"""What the agent itself says, by language. docs/howto/languages.md tells how to add one."""

from collections.abc import Mapping

from agent.locales.en import ENGLISH
from agent.locales.messages import AgentMessages
from agent.locales.zh import CHINESE

__all__ = ["LANGUAGES", "AgentMessages", "messages_for"]

LANGUAGES: Mapping[str, AgentMessages] = {"en": ENGLISH, "zh": CHINESE}
"""By primary language subtag (BCP 47)."""


def messages_for(language: str | None) -> AgentMessages:
    """Return the words for a language tag, in English where there are none.

    >>> messages_for("zh-Hans").bare_question, messages_for(None).bare_question
    ('接下来我该怎么做？', 'How shall I go on?')
    """
    primary = (language or "").replace("_", "-").partition("-")[0].lower()
    return LANGUAGES.get(primary, ENGLISH)
