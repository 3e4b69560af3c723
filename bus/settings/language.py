"""Resolves the language of the bot's own messages: chosen, configured, reported by the platform, or detected."""

from collections.abc import Mapping

from bus.bounded import BoundedDict
from bus.config import AUTO, BusConfig, ChannelPolicy
from bus.locales import supported_language
from bus.locales.detection import detect_language
from bus.messages import ButtonPress, ConversationKey, InboundMessage, chat_of
from bus.settings.resolver import Setting, SettingSource, SettingsResolver

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
        """Return the language of a reply, a key of `bus.locales.LANGUAGES`."""
        written = detect_language(event.text) if isinstance(event, InboundMessage) else ""
        if written:
            self._last[event.key] = self._last[chat_of(event.key)] = written
        return str(self._explain(event, written).value)

    def explain(self, event: InboundMessage | ButtonPress) -> Setting:
        """Return the language of a reply with its source.

        It is the first of these that is known: the setting of the group; the sender's own setting; the configuration;
        the sender's language according to the platform; the script of the message, or of the last message that had one;
        English.
        """
        return self._explain(event, "")

    def _explain(self, event: InboundMessage | ButtonPress, written: str) -> Setting:
        preferred = self.preference(event)
        if preferred.value != AUTO:
            return preferred
        if told := supported_language(event.language):
            return Setting(value=told, source="platform")
        if seen := written or self._last_seen(event.key):
            return Setting(value=seen, source="message")
        return Setting(value=FALLBACK_LANGUAGE, source="default")

    def preference(self, event: InboundMessage | ButtonPress) -> Setting:
        """Return the chosen or configured language, or `AUTO`."""
        own = person_key(event.key, event.sender.user_id)
        for key in (own,) if event.is_private else (chat_of(event.key), own):
            if _is_valid(chosen := self._settings.get(key).language):
                return Setting(value=chosen, source="command", place=key)
        return self._configured(event.key.channel)

    def _configured(self, channel: str) -> Setting:
        policy = self._policies.get(channel)
        if policy is not None and policy.language is not None:
            key = f"channels.{channel}.language"
            return Setting(value=policy.language, source="channel", key=key)
        is_given = "language" in self._config.model_fields_set
        source: SettingSource = "service" if is_given else "default"
        return Setting(value=self._config.language, source=source, key="channels.language")

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
