"""People in Feishu: private chats and groups."""

from typing_extensions import override

from bus.locales import LANGUAGES
from gateway.playground.feishu.server import FakeFeishu
from gateway.playground.feishu.state import FeishuEvent, FeishuMessage
from tests.people.chat_user import WORKING, Arrival, CallFailure, ChatUser, SentEvent, ShownMessage

_STOP = frozenset(words.button_stop for words in LANGUAGES.values())
RATE_LIMITED = 99991400
_WORKING_REACTION = "OK"
_OUTCOMES = frozenset({"DONE", "CrossMark"})


def own_words(text: str) -> str:
    """Return a person's own words, or the model's repetition of those, without the quoted message."""
    return text.partition("\n\n> ")[0]


def fail_feishu_calls(
    feishu: FakeFeishu, method: str, how: CallFailure, *, times: int = 1, seconds: float = 1.0
) -> None:
    """Make the next calls of a method fail. `seconds` is the wait that a refusal names, or a call's duration."""
    match how:
        case CallFailure.REFUSED:
            headers = {"x-ogw-ratelimit-reset": str(max(1, round(seconds)))}
            feishu.fail(method, times=times, status=429, code=RATE_LIMITED, headers=headers)
        case CallFailure.FAILS:
            feishu.fail(method, times=times, status=502, text="bad gateway")
        case CallFailure.CUT_BEFORE:
            feishu.fail(method, times=times, drop="before")
        case CallFailure.CUT_AFTER:
            feishu.fail(method, times=times, drop="after")
        case CallFailure.SLOW:
            feishu.fail(method, times=times, delay_s=seconds)


class _FeishuUser(ChatUser):
    channel = "feishu"

    def __init__(self, feishu: FakeFeishu, chat: str, user: str) -> None:
        self._feishu = feishu
        self._user = user
        self.chat = chat

    @override
    async def send_file(self, name: str, content: bytes) -> SentEvent:
        return self._sent(
            await self._feishu.file(name, content, mime="text/plain", user=self._user)
        )

    @override
    async def edit(self, message_id: str, text: str) -> SentEvent:
        raise AssertionError("Feishu does not tell bots of edited messages")

    @override
    async def delete(self, message_id: str) -> SentEvent:
        event = await self._feishu.withdraw(self._feishu.state.messages[message_id])
        return SentEvent(message_id, lambda: _arrival(event))

    @override
    async def press(self, message: ShownMessage, label: str) -> SentEvent:
        found = self._feishu.state.messages[message.id]
        event = await self._feishu.press_value(found, message.buttons[label], user=self._user)
        return SentEvent(message.id, lambda: _arrival(event))

    @override
    def shown(self) -> list[ShownMessage]:
        return [self._shown(one) for one in self._feishu.answers(self.chat)]

    @override
    def working_signs(self, message_id: str) -> list[str]:
        message = self._feishu.state.messages.get(message_id)
        emojis = message.emojis if message and not message.gone else []
        is_over = not _OUTCOMES.isdisjoint(emojis)
        return [] if is_over else [name for name in emojis if name == _WORKING_REACTION]

    @override
    def has_failed_sign(self, message_id: str) -> bool:
        message = self._feishu.state.messages.get(message_id)
        return message is not None and "CrossMark" in message.emojis

    @override
    def lose_next_response(self) -> None:
        fail_feishu_calls(self._feishu, "message.patch", CallFailure.CUT_AFTER)

    def _is_misplaced(self, message: FeishuMessage) -> bool:
        del message
        return False

    def _shown(self, message: FeishuMessage) -> ShownMessage:
        key = str(message.content.get("file_key", ""))
        text, buttons = message.text, message.buttons
        works = any(text.rstrip().endswith(sign) for sign in WORKING)
        return ShownMessage(
            id=message.id,
            text=text,
            buttons=buttons,
            file=self._feishu.files[key][1] if key else "",
            unfinished=works or not _STOP.isdisjoint(buttons),
            misplaced=self._is_misplaced(message),
        )

    def _sent(self, message: FeishuMessage) -> SentEvent:
        event = self._feishu.event_of(message)
        return SentEvent(message.id, lambda: _arrival(event))


class FeishuPrivateUser(_FeishuUser):
    """A p2p chat."""

    name = "feishu private"

    def __init__(self, feishu: FakeFeishu, *, user: str = "ou_alice") -> None:
        super().__init__(feishu, f"oc_dm_{user}", user)

    @override
    async def send(self, text: str, *, aside: bool = False) -> SentEvent:
        return self._sent(await self._feishu.dm(text, user=self._user))


class FeishuGroupUser(_FeishuUser):
    """A group: a mention, then a chain of replies to the bot's cards."""

    name = "feishu group"

    def __init__(self, feishu: FakeFeishu, *, user: str = "ou_alice") -> None:
        super().__init__(feishu, "oc_room", user)

    @override
    async def send(self, text: str, *, aside: bool = False) -> SentEvent:
        if aside:
            return self._sent(await self._feishu.say(text, chat=self.chat, user=self._user))
        cards = self._feishu.answers(self.chat)
        answered = cards[-1].id if cards else ""
        message = await self._feishu.mention(
            text, chat=self.chat, user=self._user, reply_to=answered
        )
        return self._sent(message)

    @override
    def bot_messages(self) -> list[str]:
        return [own_words(text) for text in super().bot_messages()]

    @override
    def _is_misplaced(self, message: FeishuMessage) -> bool:
        return not message.reply_to


def _arrival(event: FeishuEvent) -> Arrival:
    if event.acked:
        return Arrival.CONFIRMED
    return Arrival.GIVEN_UP if event.once and event.codes else Arrival.WAITING
