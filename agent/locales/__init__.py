"""Messages and prompts of the agent itself, by language. To add a language, see docs/howto/languages.md."""

from collections.abc import Mapping

from agent.locales.en import ENGLISH
from agent.locales.messages import AgentMessages
from agent.locales.prompt_en import ENGLISH_PROMPT
from agent.locales.prompt_texts import PromptTexts
from agent.locales.prompt_zh import CHINESE_PROMPT
from agent.locales.zh import CHINESE

__all__ = ["LANGUAGES", "PROMPTS", "AgentMessages", "PromptTexts", "language_key", "messages_for"]

LANGUAGES: Mapping[str, AgentMessages] = {"en": ENGLISH, "zh": CHINESE}
"""By primary language subtag (BCP 47)."""

PROMPTS: Mapping[str, PromptTexts] = {"en": ENGLISH_PROMPT, "zh": CHINESE_PROMPT}
"""The system prompt, with the same keys."""

_FALLBACK = "en"


def messages_for(language: str | None) -> AgentMessages:
    """Return the messages for a language tag; English if the language is not available.

    >>> messages_for("zh-Hans").default_question, messages_for(None).default_question
    ('接下来我该怎么做？', 'How should I continue?')
    """
    return LANGUAGES[language_key(language)]


def language_key(language: str | None) -> str:
    """Return the key of a language tag; English's key if the language is not available.

    >>> language_key("zh_CN"), language_key("fr"), language_key(None)
    ('zh', 'en', 'en')
    """
    primary = (language or "").replace("_", "-").partition("-")[0].lower()
    return primary if primary in LANGUAGES else _FALLBACK
