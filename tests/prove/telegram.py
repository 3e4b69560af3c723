"""A simulated Telegram: private chats and a forum topic."""

from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from bus.locales import LANGUAGES
from tests.fakes.telegram import TelegramServer
from tests.fakes.telegram_chats import TelegramMessage, TelegramUpload
from tests.prove.plan import Fault, FaultKind, PlaceTraits
from tests.prove.platforms import (
    Arrival,
    Place,
    SentEvent,
    ShownMessage,
    SimulatedPlatform,
    pick,
    steers,
    stranger_traits,
)

FORUM = -1_001_234_567_890
FORUM_PERSON = 1001
FIRST_PERSON = 5000
"""The stranger; those after them may use the bot."""

TOPIC_WEIGHT = 0.5
PATIENCE_S, RETRY_S = 10.0, 1.0
"""How long Telegram waits for an answer to an update, and before it is posted again; really up to a minute each."""

WEBHOOK_SECRET = "a-secret-for-the-proof"
_WORKING = frozenset(words.working for words in LANGUAGES.values())
_CALLS = (
    "sendMessage", "sendMessage", "sendMessage", "editMessageText", "getUpdates", "sendChatAction", "deleteMessage",
    "sendDocument", "getFile", "download", "getMe",
)  # fmt: skip


class TelegramPlace(Place):
    """A private chat, or a topic of a forum."""

    def __init__(
        self, server: TelegramServer, chat: int, traits: PlaceTraits, *, topic: int | None = None
    ) -> None:
        super().__init__(str(chat), traits)
        self._server = server
        self._chat = chat
        self._topic = topic
        self._user = chat if chat > 0 else FORUM_PERSON

    @override
    async def say(self, text: str, *, aside: bool = False) -> SentEvent:
        before = self._server.last_update
        name, _, rest = text.partition(" ")
        if self._topic is None:
            message = self._server.dm(text, user=self._user)
        elif aside:
            message = self._server.say(self._chat, text, thread=self._topic)
        elif name.startswith("/"):
            command = f"{name}@{self._server.username} {rest}".strip()
            message = self._server.say(self._chat, command, thread=self._topic)
        else:
            message = self._server.mention(self._chat, text, thread=self._topic)
        return self._sent(message, before)

    @override
    async def send_file(self, name: str, content: bytes) -> SentEvent:
        before = self._server.last_update
        upload = TelegramUpload(name=name, content=content, mime="text/plain")
        return self._sent(self._server.send_file(self._chat, upload, user=self._user), before)

    @override
    async def edit(self, message_id: str, text: str) -> SentEvent:
        before = self._server.last_update
        if self._topic is not None:
            text = f"@{self._server.username} {text}"
        self._server.edit(self._chat, int(message_id), text)
        return self._sent(int(message_id), before)

    @override
    async def delete(self, message_id: str) -> SentEvent:
        raise AssertionError("Telegram does not tell bots of deleted messages")

    @override
    async def press(self, message: ShownMessage, label: str) -> SentEvent:
        before = self._server.last_update
        found = self._server.chat(self._chat).messages[int(message.id)]
        self._server.press_token(found, message.buttons[label], user=self._user)
        return self._sent(found.message_id, before)

    @override
    def shown(self) -> list[ShownMessage]:
        return [_shown(one) for one in self._server.answers(self._chat, thread=self._topic)]

    @override
    def working_signs(self, message_id: str) -> list[str]:
        return self._server.chat(self._chat).messages[int(message_id)].reactions

    def _sent(self, message: int, before: int) -> SentEvent:
        update = self._server.last_update
        if update == before:
            return SentEvent(str(message), lambda: Arrival.NOT_SENT)

        def arrival() -> Arrival:
            oldest = self._server.oldest()
            is_over = oldest is None or oldest["update_id"] > update
            return Arrival.CONFIRMED if is_over else Arrival.WAITING

        return SentEvent(str(message), arrival)


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
        unfinished=message.text in _WORKING,
    )


class TelegramPlatform(SimulatedPlatform):
    """A Telegram with one bot.

    Args:
        channel: The bot's name in the configuration.
        people: How many people write to it in private.
        token: The bot's.
        webhook: Whether Telegram calls the service; otherwise the service polls.
        more: Further keys of the channel's section.
    """

    def __init__(
        self, channel: str, *, people: int, token: str, webhook: bool = False, **more: object
    ) -> None:
        self.channel = channel
        self.calls_webhook = webhook
        self._more = more
        self._steers = steers(more)
        self.server = TelegramServer(token=token)
        self.server.pusher.caller.patience_s = PATIENCE_S
        self.server.pusher.retry_s = RETRY_S
        self.places: list[Place] = []
        for number in range(1, people + 1):
            name = f"{channel} private {number}"
            traits = PlaceTraits(
                name=name, channel=channel, private=True, steers=self._steers, can_delete=False
            )
            self.places.append(TelegramPlace(self.server, FIRST_PERSON + number, traits))
        traits = stranger_traits(channel, can_delete=False)
        self.places.append(TelegramPlace(self.server, FIRST_PERSON, traits))
        self._allowed = [FORUM_PERSON, *(FIRST_PERSON + number for number in range(1, people + 1))]

    @override
    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        self.server.add_forum(FORUM)
        for name in ("Travel", "Food"):
            topic = self.server.add_topic(FORUM, name)
            traits = PlaceTraits(
                name=f"{self.channel} topic {name}",
                channel=self.channel,
                private=False,
                steers=self._steers,
                can_delete=False,
                weight=TOPIC_WEIGHT,
            )
            self.places.append(TelegramPlace(self.server, FORUM, traits, topic=topic))
        return self

    @override
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.server.__aexit__(kind, error, trace)

    @property
    @override
    def section(self) -> dict[str, Any]:
        return {
            "enabled": True,
            "platform": "telegram",
            "base_url": self.server.base_url,
            "base_file_url": self.server.base_file_url,
            "bot_token": self.server.token,
            "dm_policy": "pairing",
            "allowed_users": self._allowed,
            "group_policy": "mention",
            **self._more,
        }

    @override
    def call_at(self, service_url: str) -> None:
        self._more |= {
            "mode": "webhook",
            "webhook_url": f"{service_url}/webhooks/{self.channel}",
            "webhook_secret": WEBHOOK_SECRET,
        }

    @override
    def forget_requests(self) -> None:
        self.server.requests.clear()
        self.server.log.clear()
        self.server.drafts.clear()
        self.server.confirmed.clear()

    @property
    @override
    def violations(self) -> list[str]:
        return self.server.violations

    @override
    def fail_calls(self, fault: Fault) -> str:
        method, fail, times = pick(_CALLS, fault.pick), self.server.fail, fault.times
        wait_s = max(1, round(fault.seconds))
        match fault.kind:
            case FaultKind.CALLS_REFUSED:
                fail(method, times=times, status=429, parameters={"retry_after": wait_s})
            case FaultKind.CALLS_FAIL:
                fail(method, times=times, status=502)
            case FaultKind.CALLS_CUT_BEFORE:
                fail(method, times=times, drop="before")
            case FaultKind.CALLS_CUT_AFTER:
                fail(method, times=times, drop="after")
            case _:
                fail(method, times=times, delay_s=fault.seconds)
        return method

    @override
    async def cut_connections(self) -> None:
        self.server.disconnect_all()

    @override
    async def go_offline(self) -> None:
        self.server.pusher.caller.away = True
        await self.server.refuse()

    @override
    async def come_back(self) -> None:
        self.server.pusher.caller.away = False
        await self.server.accept()
