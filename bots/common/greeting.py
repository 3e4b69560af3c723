"""The greeting that a bot sends to a group that it joins, and to a person who opens a private chat."""

from collections.abc import Awaitable, Callable

from bots.common.background import BackgroundTasks
from bus.config import AUTO, ChannelPolicy
from bus.locales import LANGUAGES, Messages, messages_for
from bus.messages import MessageId, ReplyTarget


class Greeting:
    """Greets groups and people once per event, in the background. Logs failures.

    Args:
        policy: Whom to greet, and in which language.
        send: The adapter's `send`. A repeated event has the same idempotency key, so platforms that support such keys
            show one greeting.
        tasks: Runs the sending.
    """

    def __init__(
        self,
        policy: ChannelPolicy,
        send: Callable[..., Awaitable[MessageId]],
        tasks: BackgroundTasks,
    ) -> None:
        self._policy = policy
        self._send = send
        self._tasks = tasks

    def greet_group(self, chat: str, *, event_id: str, language: str = "") -> None:
        """Greet a group that the bot was added to. Returns at once.

        Args:
            chat: The group.
            event_id: ID of the event that reported it.
            language: Language of the person who added the bot, if known. Used if none is configured.
        """
        if self._policy.group_policy != "disabled":
            self.say(
                chat, lambda locale: locale.hello_group, key=f"hello {event_id}", language=language
            )

    def greet_user(self, chat: str, user_id: str, *, language: str = "") -> None:
        """Greet a person who opened a private chat for the first time, if they may use the bot."""
        allowed = self._policy.allowed_users
        open_to_all = self._policy.dm_policy not in ("disabled", "allowlist")
        if user_id in allowed if allowed else open_to_all:
            self.say(chat, lambda locale: locale.hello_private, key="hello", language=language)

    def say(
        self, chat: str, message: Callable[[Messages], str], *, key: str, language: str = ""
    ) -> None:
        """Send one of the locale's messages, in every language if the language is unknown. Returns at once."""
        configured = self._policy.language
        language = configured if configured and configured != AUTO else language
        locales = [messages_for(language)] if language else list(LANGUAGES.values())
        markdown = "\n\n".join(message(locale) for locale in locales)
        self._tasks.start("greeting", lambda: self._send(ReplyTarget(chat=chat), markdown, key=key))
