"""A simulated Feishu: private chats and a group."""

from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from bus.locales import LANGUAGES
from tests.fakes.feishu import FakeFeishu
from tests.fakes.feishu_state import FeishuEvent, FeishuMessage
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

_WORKING = tuple(words.working for words in LANGUAGES.values())
REDELIVER_S = 5.0
"""Pause before an event is sent again; the real ones are 15 s, 5 min, 1 h and 6 h."""

_STOP = frozenset(words.button_stop for words in LANGUAGES.values())
_WORKING_REACTION = "OK"
_OUTCOMES = frozenset({"DONE", "CrossMark"})
_CALLS = (
    "message.reply", "message.reply", "message.patch", "message.patch", "message.create", "reaction.create",
    "reaction.delete", "file.create", "resource", "token", "endpoint", "message.get",
)  # fmt: skip
_RATE_LIMITED = 99991400


class FeishuPlace(Place):
    """A private chat, or a group in which people reply to the bot's last card."""

    def __init__(self, feishu: FakeFeishu, chat: str, user: str, traits: PlaceTraits) -> None:
        super().__init__(chat, traits)
        self._feishu = feishu
        self._user = user

    @override
    async def say(self, text: str, *, aside: bool = False) -> SentEvent:
        if self.traits.private:
            message = await self._feishu.dm(text, user=self._user)
        elif aside:
            message = await self._feishu.say(text, chat=self.chat, user=self._user)
        else:
            cards = self._feishu.answers(self.chat)
            answered = cards[-1].id if cards else ""
            message = await self._feishu.mention(
                text, chat=self.chat, user=self._user, reply_to=answered
            )
        return self._sent(message)

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

    def _shown(self, message: FeishuMessage) -> ShownMessage:
        key = str(message.content.get("file_key", ""))
        text, buttons = message.text, message.buttons
        works = any(text.rstrip().endswith(sign) for sign in _WORKING)
        return ShownMessage(
            id=message.id,
            text=text,
            buttons=buttons,
            file=self._feishu.files[key][1] if key else "",
            unfinished=works or not _STOP.isdisjoint(buttons),
        )

    def _sent(self, message: FeishuMessage) -> SentEvent:
        event = self._feishu.event_of(message)
        return SentEvent(message.id, lambda: _arrival(event))


def _arrival(event: FeishuEvent) -> Arrival:
    if event.acked:
        return Arrival.CONFIRMED
    return Arrival.GIVEN_UP if event.once and event.codes else Arrival.WAITING


class FeishuPlatform(SimulatedPlatform):
    """A Feishu tenant with the app.

    Args:
        channel: The app's name in the configuration.
        people: How many people write to it in private.
        weight: The share of the messages that each of its places gets, relative to those of other bots.
        webhook: Whether Feishu calls the service; otherwise the service connects to it.
        card_entities: Whether the app may use CardKit, so that its cards stream.
        more: Further keys of the channel's section.
    """

    def __init__(
        self,
        channel: str,
        *,
        people: int,
        weight: float = 1.0,
        webhook: bool = False,
        card_entities: bool = False,
        **more: object,
    ) -> None:
        self.channel = channel
        self.calls_webhook = webhook
        self._more = more
        self.server = FakeFeishu(app_id=f"cli_{channel}", redeliver_s=REDELIVER_S)
        if card_entities:
            self.server.allow_cardkit()
        self.places = []
        for number in range(1, people + 1):
            user = f"ou_proof{number}"
            traits = PlaceTraits(
                name=f"{channel} private {number}",
                channel=channel,
                private=True,
                steers=steers(more),
                weight=weight,
                can_edit=False,
            )
            self.places.append(FeishuPlace(self.server, f"oc_dm_{user}", user, traits))
        self.server.outsiders["ou_stranger"] = "tenant_2"
        traits = stranger_traits(channel, can_edit=False)
        self.places.append(FeishuPlace(self.server, "oc_dm_ou_stranger", "ou_stranger", traits))
        traits = PlaceTraits(
            name=f"{channel} group",
            channel=channel,
            private=False,
            steers=steers(more),
            weight=weight,
            can_edit=False,
        )
        self.places.append(FeishuPlace(self.server, "oc_room", "ou_proof1", traits))

    @override
    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        return self

    @override
    def call_at(self, service_url: str) -> None:
        post = self.server.poster
        self._more |= {
            "mode": "webhook",
            "encrypt_key": post.encrypt_key,
            "verification_token": post.token,
        }
        self.server.call_at(f"{service_url}/webhooks/{self.channel}")

    @override
    def forget_requests(self) -> None:
        self.server.state.calls.clear()

    @override
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.server.__aexit__(None, None, None)

    @property
    @override
    def section(self) -> dict[str, Any]:
        return {**self.server.settings, "platform": "feishu", **self._more}

    @property
    @override
    def violations(self) -> list[str]:
        return self.server.violations

    @override
    def fail_calls(self, fault: Fault) -> str:
        method, fail, times = pick(_CALLS, fault.pick), self.server.fail, fault.times
        match fault.kind:
            case FaultKind.CALLS_REFUSED:
                headers = {"x-ogw-ratelimit-reset": str(max(1, round(fault.seconds)))}
                fail(method, times=times, status=429, code=_RATE_LIMITED, headers=headers)
            case FaultKind.CALLS_FAIL:
                fail(method, times=times, status=502, text="bad gateway")
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
        self.server.poster.caller.away = True
        self.server.refuse_connects()
        self.server.disconnect_all()

    @override
    async def come_back(self) -> None:
        self.server.poster.caller.away = False
        self.server.refuse_connects(0)
