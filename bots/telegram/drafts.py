"""Drafts, which show an unfinished answer in a private chat without sending it."""

from hashlib import blake2b

from telegram import Bot
from telegram.error import InvalidToken

from bots.telegram.errors import is_unknown_method
from bots.telegram.format import FormattedText
from bots.telegram.message_calls import TelegramTarget, call_api, sdk_entities, target_of
from bus.bounded import BoundedDict
from bus.errors import DeliveryError
from bus.messages import Button, ReplyTarget

_MAX_DRAFTS = 1_000
"""Maximum number of drafts whose stop button is remembered. A draft lasts 30 s after its last change."""


class TelegramDrafts:
    """Sends drafts, and remembers the stop button of each.

    Attributes:
        available: Whether the server supports drafts. False once the server has said that it does not know the method.
    """

    def __init__(self) -> None:
        self.available = True
        self._tokens = BoundedDict[tuple[str, int], str](_MAX_DRAFTS)

    def begin(self, reply_target: ReplyTarget, key: str, stop: Button) -> int:
        """Return the ID of a draft, and remember its stop button."""
        number = draft_id_of(key)
        self._tokens[reply_target.chat, number] = stop.token
        return number

    async def show(
        self,
        bot: Bot,
        reply_target: ReplyTarget,
        formatted: FormattedText,
        number: int,
        *,
        within_s: float,
    ) -> None:
        """Show or replace a draft. An empty text shows that the bot is thinking.

        Raises:
            DeliveryError: The draft was not shown. Not retryable if the server or the chat does not support drafts.
        """

        async def request(target: TelegramTarget) -> bool:
            if not isinstance(target.chat_id, int):
                raise DeliveryError("Drafts are for private chats")
            try:
                return await bot.send_message_draft(
                    target.chat_id,
                    number,
                    formatted.text,
                    message_thread_id=target.thread_id,
                    entities=sdk_entities(formatted),
                    api_kwargs={"can_stop": True},
                )
            except InvalidToken as error:
                self.available = not is_unknown_method(error)
                raise

        try:
            await call_api(request, target_of(reply_target), within_s=within_s)
        except DeliveryError:
            if not self.available:
                raise DeliveryError("This Bot API server has no drafts") from None
            raise

    def stop_token(self, chat: str, number: int) -> str:
        """Return the token of a draft's stop button; "" if the draft is not in progress."""
        return self._tokens.get((chat, number), "")


def draft_id_of(key: str) -> int:
    """Return the draft ID for a key. It is never 0 (Bot API: sendMessageDraft), and stays the same after a restart.

    >>> 0 < draft_id_of("12:preview") < 2**31, draft_id_of("12:preview") == draft_id_of("12:preview")
    (True, True)
    """
    digest = blake2b(key.encode(), digest_size=4).digest()
    return (int.from_bytes(digest) & 0x7FFFFFFF) or 1
