"""Which language the bot speaks to whom: what was chosen, configured, told by the platform, or written."""

from collections import OrderedDict
from collections.abc import Mapping

from bus.config import AUTO, BusConfig, ChannelPolicy
from bus.locales import supported_language
from bus.locales.detection import detect_language
from bus.messages import ButtonPress, ConversationKey, InboundMessage, chat_of
from bus.settings.resolver import SettingsResolver

FALLBACK_LANGUAGE = "en"

MAX_REMEMBERED = 10_000
"""Conversations and chats whose language is remembered; of more, those that were quiet for longest are dropped."""


def person_key(key: ConversationKey, user_id: str) -> ConversationKey:
    """Return the key under which a person's own choice is kept: that of a chat without a name.

    >>> person_key(ConversationKey(channel="slack", workspace="T", chat="C"), "U1").chat
    ''
    """
    return ConversationKey(channel=key.channel, workspace=key.workspace, chat="", topic=user_id)


class LanguageResolver:
    """Tells the language of messages and presses, and remembers what was written last.

    Args:
        config: The bot's language; `policies` have those of single channels.
        choices: What people chose by /language.
    """

    def __init__(
        self,
        config: BusConfig,
        policies: Mapping[str, ChannelPolicy],
        choices: SettingsResolver,
    ) -> None:
        self._config = config
        self._policies = policies
        self._choices = choices
        self._last: OrderedDict[ConversationKey, str] = OrderedDict()

    def resolve(self, heard: InboundMessage | ButtonPress) -> str:
        """Return the key in `bus.locales.LANGUAGES` of what is said to whoever wrote or pressed.

        The first of these that is known: the choice of a private chat's person or of a group, in a group
        also its sender's own; the configuration; what the platform tells; the script of the message, or of
        the last one before it; English.
        """
        written = detect_language(heard.text) if isinstance(heard, InboundMessage) else ""
        if written:
            self._remember(heard.key, written)
        settled = self.preference(heard)
        if settled != AUTO:
            return settled
        return (
            supported_language(heard.language)
            or written
            or self._last_seen(heard.key)
            or FALLBACK_LANGUAGE
        )

    def preference(self, heard: InboundMessage | ButtonPress) -> str:
        """Return what was chosen or configured: a language, or `AUTO`."""
        own = self._choices.get(person_key(heard.key, heard.sender.user_id)).language
        chat = None if heard.private else self._choices.get(chat_of(heard.key)).language
        chosen = next((choice for choice in (chat, own) if _is_choice(choice)), None)
        return chosen or self._configured(heard.key.channel)

    def _configured(self, channel: str) -> str:
        policy = self._policies.get(channel)
        return (policy.language if policy is not None else None) or self._config.language

    def _remember(self, key: ConversationKey, language: str) -> None:
        for place in (key, chat_of(key)):
            self._last[place] = language
            self._last.move_to_end(place)
        while len(self._last) > MAX_REMEMBERED:
            self._last.popitem(last=False)

    def _last_seen(self, key: ConversationKey) -> str:
        return self._last.get(key) or self._last.get(chat_of(key)) or ""


def language_key(inbound: InboundMessage) -> ConversationKey:
    """Return whose language a /language sets: in private the person's, in a group the chat's."""
    if inbound.private:
        return person_key(inbound.key, inbound.sender.user_id)
    return chat_of(inbound.key)


def _is_choice(choice: str | None) -> bool:
    """Tell a choice that holds; one of a language that was since taken out does not."""
    return choice == AUTO or bool(supported_language(choice or ""))
