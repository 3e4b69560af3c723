"""Resolves the language of the bot's own messages: chosen, configured, reported by the platform, or written."""

from collections.abc import Mapping

from bus.bounded import BoundedDict
from bus.config import AUTO, BusConfig, ChannelPolicy
from bus.locales import supported_language
from bus.locales.detection import detect_language
from bus.messages import ButtonPress, ConversationKey, InboundMessage, chat_of
from bus.settings.resolver import SettingsResolver

FALLBACK_LANGUAGE = "en"

MAX_REMEMBERED = 10_000
"""Maximum number of conversations and chats whose language is remembered."""


def person_key(key: ConversationKey, user_id: str) -> ConversationKey:
    """Return the key of a person's own settings: a key without a chat.

    >>> person_key(ConversationKey(channel="slack", workspace="T", chat="C"), "U1").chat
    ''
    """
    return ConversationKey(channel=key.channel, workspace=key.workspace, chat="", topic=user_id)


class LanguageResolver:
    """Resolves the language of replies. Remembers the language of the last message in each conversation.

    Args:
        config: The bot's language; `policies` may override it per channel.
        settings: The choices made with /language.
    """

    def __init__(
        self,
        config: BusConfig,
        policies: Mapping[str, ChannelPolicy],
        settings: SettingsResolver,
    ) -> None:
        self._config = config
        self._policies = policies
        self._settings = settings
        self._last = BoundedDict[ConversationKey, str](MAX_REMEMBERED)

    def resolve(self, event: InboundMessage | ButtonPress) -> str:
        """Return the language of a reply, a key of `bus.locales.LANGUAGES`.

        The first of these that is known: the setting of the group; the sender's own setting; the
        configuration; the sender's language by the platform; the script of the message, or of the last
        message that had one; English.
        """
        written = detect_language(event.text) if isinstance(event, InboundMessage) else ""
        if written:
            self._last[event.key] = self._last[chat_of(event.key)] = written
        preferred = self.preference(event)
        if preferred != AUTO:
            return preferred
        return (
            supported_language(event.language)
            or written
            or self._last_seen(event.key)
            or FALLBACK_LANGUAGE
        )

    def preference(self, event: InboundMessage | ButtonPress) -> str:
        """Return the chosen or configured language, or `AUTO`."""
        own = self._settings.get(person_key(event.key, event.sender.user_id)).language
        chat = None if event.is_private else self._settings.get(chat_of(event.key)).language
        chosen = next((setting for setting in (chat, own) if _is_valid(setting)), None)
        return chosen or self._configured(event.key.channel)

    def _configured(self, channel: str) -> str:
        policy = self._policies.get(channel)
        return (policy.language if policy is not None else None) or self._config.language

    def _last_seen(self, key: ConversationKey) -> str:
        return self._last.get(key) or self._last.get(chat_of(key)) or ""


def language_key(inbound: InboundMessage) -> ConversationKey:
    """Return the key of the setting that /language changes: the person's in a private chat, the chat's in a group."""
    if inbound.is_private:
        return person_key(inbound.key, inbound.sender.user_id)
    return chat_of(inbound.key)


def _is_valid(setting: str | None) -> bool:
    """Return whether a setting applies. It does not if its language was removed."""
    return setting == AUTO or bool(supported_language(setting or ""))
