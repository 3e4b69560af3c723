"""People in Telegram: private chats and topics of a forum."""

import re

from typing_extensions import override

from gateway.playground.telegram.chats import TelegramMessage, TelegramUpload
from gateway.playground.telegram.server import TelegramServer
from tests.people.chat_user import WORKING, Arrival, CallFailure, ChatUser, SentEvent, ShownMessage

FORUM = -1_001_234_567_890
FORUM_PERSON = 1001


def fail_telegram_calls(
    telegram: TelegramServer, method: str, how: CallFailure, *, times: int = 1, seconds: float = 1.0
) -> None:
    """Make the next calls of a method fail. `seconds` is the wait that a refusal names, or a call's duration."""
    match how:
        case CallFailure.REFUSED:
            wait = {"retry_after": max(1, round(seconds))}
            telegram.fail(method, times=times, status=429, parameters=wait)
        case CallFailure.FAILS:
            telegram.fail(method, times=times, status=502)
        case CallFailure.CUT_BEFORE:
            telegram.fail(method, times=times, drop="before")
        case CallFailure.CUT_AFTER:
            telegram.fail(method, times=times, drop="after")
        case CallFailure.SLOW:
            telegram.fail(method, times=times, delay_s=seconds)


class _TelegramUser(ChatUser):
    channel = "telegram"

    def __init__(
        self, telegram: TelegramServer, chat: int, user: int, *, topic: int | None = None
    ) -> None:
        self._telegram = telegram
        self._chat = chat
        self._user = user
        self._topic = topic
        self.chat = str(chat)

    @override
    async def send_file(self, name: str, content: bytes) -> SentEvent:
        before = self._telegram.last_update
        upload = TelegramUpload(name=name, content=content, mime="text/plain")
        return self._sent(self._telegram.send_file(self._chat, upload, user=self._user), before)

    @override
    async def edit(self, message_id: str, text: str) -> SentEvent:
        before = self._telegram.last_update
        self._telegram.edit(self._chat, int(message_id), text)
        return self._sent(int(message_id), before)

    @override
    async def delete(self, message_id: str) -> SentEvent:
        raise AssertionError("Telegram does not tell bots of deleted messages")

    @override
    async def press(self, message: ShownMessage, label: str) -> SentEvent:
        before = self._telegram.last_update
        found = self._telegram.chat(self._chat).messages[int(message.id)]
        self._telegram.press_token(found, message.buttons[label], user=self._user)
        return self._sent(found.message_id, before)

    @override
    def shown(self) -> list[ShownMessage]:
        return [_shown(one) for one in self._telegram.answers(self._chat, thread=self._topic)]

    @override
    def working_signs(self, message_id: str) -> list[str]:
        return self._telegram.chat(self._chat).messages[int(message_id)].reactions

    @override
    def lose_next_response(self) -> None:
        fail_telegram_calls(self._telegram, "sendMessage", CallFailure.CUT_AFTER)

    def _sent(self, message: int, before: int) -> SentEvent:
        update = self._telegram.last_update
        if update == before:
            return SentEvent(str(message), lambda: Arrival.NOT_SENT)

        def arrival() -> Arrival:
            oldest = self._telegram.oldest()
            is_over = oldest is None or oldest["update_id"] > update
            return Arrival.CONFIRMED if is_over else Arrival.WAITING

        return SentEvent(str(message), arrival)


class TelegramPrivateUser(_TelegramUser):
    """A private chat."""

    name = "telegram private"

    def __init__(self, telegram: TelegramServer, *, user: int = FORUM_PERSON) -> None:
        super().__init__(telegram, user, user)

    @override
    async def send(self, text: str, *, aside: bool = False) -> SentEvent:
        before = self._telegram.last_update
        return self._sent(self._telegram.dm(text, user=self._user), before)


class TelegramTopicUser(_TelegramUser):
    """A new topic of a forum."""

    name = "telegram topic"

    def __init__(self, telegram: TelegramServer, *, topic: str = "Travel") -> None:
        telegram.add_forum(FORUM)
        super().__init__(telegram, FORUM, FORUM_PERSON, topic=telegram.add_topic(FORUM, topic))

    @override
    async def send(self, text: str, *, aside: bool = False) -> SentEvent:
        before = self._telegram.last_update
        name, _, rest = text.partition(" ")
        if aside:
            message = self._telegram.say(FORUM, text, thread=self._topic)
        elif re.fullmatch(r"/[a-z]+", name):
            command = f"{name}@{self._telegram.username} {rest}".strip()
            message = self._telegram.say(FORUM, command, thread=self._topic)
        else:
            message = self._telegram.mention(FORUM, text, thread=self._topic)
        return self._sent(message, before)

    @override
    async def edit(self, message_id: str, text: str) -> SentEvent:
        return await super().edit(message_id, f"@{self._telegram.username} {text}")

    @override
    def misplaced_messages(self) -> list[str]:
        everywhere = [one.text for one in self._telegram.answers(FORUM) if one.text not in WORKING]
        return everywhere[len(self.bot_messages()) :]


def _shown(message: TelegramMessage) -> ShownMessage:
    return ShownMessage(
        id=str(message.message_id),
        text=message.text,
        buttons={
            str(button["text"]): str(button["callback_data"])
            for row in message.markup
            for button in row
        },
        file=message.file.name if message.file else "",
        unfinished=message.text in WORKING,
    )
