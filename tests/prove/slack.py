"""A simulated Slack: private chats and channel threads."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from bus.locales import LANGUAGES
from tests.fakes.slack import FakeSlack
from tests.fakes.slack_sockets import SlackEnvelope
from tests.fakes.slack_state import SlackMessage
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

RETRIES_S = (1.0, 15.0, 45.0)
"""Pauses before Slack sends an event again; the real ones are 0, 60 and 300 s."""

_WORKING = frozenset(words.working for words in LANGUAGES.values())
_WORKING_REACTION = "eyes"
_OUTCOMES = frozenset({"white_check_mark", "x"})
_CALLS = (
    "chat.postMessage", "chat.postMessage", "chat.postMessage", "chat.update", "chat.delete", "reactions.add",
    "reactions.remove", "conversations.history", "conversations.replies", "upload",
    "files.completeUploadExternal", "auth.test", "apps.connections.open",
)  # fmt: skip


class SlackPlace(Place):
    """A private chat, or a channel with one thread that people write in."""

    def __init__(
        self,
        slack: FakeSlack,
        chat: str,
        user: str,
        traits: PlaceTraits,
        *,
        in_thread: bool = False,
    ) -> None:
        super().__init__(chat, traits)
        self._slack = slack
        self._user = user
        self._in_thread = in_thread
        self._root = ""
        self._written: dict[str, SlackMessage] = {}

    @override
    async def say(self, text: str, *, aside: bool = False) -> SentEvent:
        before = len(self._slack.sockets.envelopes)
        if not self._in_thread and text.startswith("/"):
            # Slack takes it for a slash command, and shows an error if no app has one of that name.
            return self._slash(text.removeprefix("/"))
        if not self._in_thread:
            said = self._slack.dm(text, user=self._user)
        else:
            write = self._slack.say if aside else self._slack.mention
            # What is said aside in the bot's own thread would be for the bot.
            root = "" if aside else self._root
            said = write(text, channel=self.chat, user=self._user, thread_ts=root)
            self._root = self._root or ("" if aside else said.ts)
        return self._sent(said, before)

    def _slash(self, text: str) -> SentEvent:
        envelope = self._slack.slash(text, channel=self.chat, user=self._user)
        name = str(envelope.payload["response_url"]).rpartition("/")[2]
        callback = self._slack.workspace.callbacks[name]
        return SentEvent(
            f"slash:{envelope.payload['trigger_id']}",
            lambda: _arrival([envelope]),
            lambda: [_shown(one) for one in callback.answers],
        )

    @override
    async def send_file(self, name: str, content: bytes) -> SentEvent:
        before = len(self._slack.sockets.envelopes)
        file = self._slack.file(name, content, "text/plain")
        said = self._slack.dm("", user=self._user, files=[file], subtype="file_share")
        return self._sent(said, before)

    @override
    async def edit(self, message_id: str, text: str) -> SentEvent:
        before = len(self._slack.sockets.envelopes)
        message = self._message(message_id)
        self._slack.edit(message, text)
        return self._sent(message, before)

    @override
    async def delete(self, message_id: str) -> SentEvent:
        before = len(self._slack.sockets.envelopes)
        message = self._message(message_id)
        self._slack.delete(message)
        sent = self._sent(message, before)
        del self._written[message_id]
        return sent

    @override
    async def press(self, message: ShownMessage, label: str) -> SentEvent:
        before = len(self._slack.sockets.envelopes)
        found = self._slack.workspace.find(self.chat, message.id) or SlackMessage(
            channel=self.chat, ts=message.id, user=self._slack.workspace.bot_user, text=message.text
        )
        number = [*message.buttons].index(label)
        self._slack.act(found, f"parley.{number}", message.buttons[label], user=self._user)
        return self._sent(found, before)

    @override
    def shown(self) -> list[ShownMessage]:
        bot = self._slack.workspace.bot_id
        found = self._slack.messages(self.chat, viewer=self._user)
        return [_shown(one) for one in found if one.bot_id == bot]

    @override
    def working_signs(self, message_id: str) -> list[str]:
        message = self._written.get(message_id)
        reactions = self._slack.reactions(message) if message else set()
        is_over = not _OUTCOMES.isdisjoint(reactions)
        return [] if is_over else [name for name in reactions if name == _WORKING_REACTION]

    @override
    def has_failed_sign(self, message_id: str) -> bool:
        message = self._written.get(message_id)
        return message is not None and "x" in self._slack.reactions(message)

    def _message(self, ts: str) -> SlackMessage:
        found = self._slack.workspace.find(self.chat, ts)
        assert found is not None, f"no message {ts} in {self.chat}"
        return found

    def _sent(self, message: SlackMessage, before: int) -> SentEvent:
        envelopes = self._slack.sockets.envelopes[before:]
        if message.user == self._user:
            self._written[message.ts] = message
        return SentEvent(message.ts, lambda: _arrival(envelopes))


def _arrival(envelopes: Sequence[SlackEnvelope]) -> Arrival:
    """Return what became of something that Slack told in one event or two."""
    if any(one.acked for one in envelopes):
        return Arrival.CONFIRMED
    return Arrival.GIVEN_UP if all(one.dropped for one in envelopes) else Arrival.WAITING


def _shown(message: SlackMessage) -> ShownMessage:
    return ShownMessage(
        id=message.ts,
        text=message.words,
        buttons=dict(message.buttons),
        file=str(message.files[0]["name"]) if message.files else "",
        unfinished=message.words in _WORKING or message.streams,
    )


class SlackPlatform(SimulatedPlatform):
    """A Slack workspace with the app.

    Args:
        channel: The app's name in the configuration.
        people: How many people write to it in private.
        weight: The share of the messages that each of its places gets, relative to those of other bots.
        webhook: Whether Slack calls the service; otherwise the service connects to it.
        more: Further keys of the channel's section.
    """

    def __init__(
        self,
        channel: str,
        *,
        people: int,
        weight: float = 1.0,
        webhook: bool = False,
        **more: object,
    ) -> None:
        self.channel = channel
        self.calls_webhook = webhook
        self._more = more
        self.server = FakeSlack(retries_s=RETRIES_S)
        self.places = []
        for number in range(1, people + 1):
            user = f"U{number}PROOF"
            name = f"{channel} private {number}"
            traits = PlaceTraits(
                name=name, channel=channel, private=True, steers=steers(more), weight=weight
            )
            self.places.append(SlackPlace(self.server, f"D{user}", user, traits))
        self.server.person("U0STRANGER", is_restricted=True)
        stranger = SlackPlace(self.server, "DU0STRANGER", "U0STRANGER", stranger_traits(channel))
        self.places.append(stranger)
        for number in range(1, 3):
            # A root that is deleted takes its thread away: people there delete nothing.
            traits = PlaceTraits(
                name=f"{channel} thread {number}",
                channel=channel,
                private=False,
                steers=steers(more),
                weight=weight,
                can_delete=False,
            )
            place = SlackPlace(
                self.server, f"C{number}PROOF", f"U{number}PROOF", traits, in_thread=True
            )
            self.places.append(place)

    @override
    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        return self

    @override
    def call_at(self, service_url: str) -> None:
        self._more |= {"mode": "http", "signing_secret": self.server.events.secret}
        self.server.call_at(f"{service_url}/webhooks/{self.channel}")

    @override
    def forget_requests(self) -> None:
        self.server.server.calls.clear()
        self.server.events.replies.clear()

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
        return {
            "enabled": True,
            "platform": "slack",
            "base_url": self.server.base_url,
            "bot_token": self.server.bot_token,
            **({} if self.calls_webhook else {"app_token": self.server.app_token}),
            **self._more,
        }

    @property
    @override
    def violations(self) -> list[str]:
        return self.server.violations

    @override
    def fail_calls(self, fault: Fault) -> str:
        method, fail, times = pick(_CALLS, fault.pick), self.server.fail, fault.times
        match fault.kind:
            case FaultKind.CALLS_REFUSED:
                headers = {"Retry-After": str(max(1, round(fault.seconds)))}
                fail(method, times=times, status=429, error="ratelimited", headers=headers)
            case FaultKind.CALLS_FAIL:
                fail(method, times=times, status=503)
            case FaultKind.CALLS_CUT_BEFORE:
                fail(method, times=times, drop="before")
            case FaultKind.CALLS_CUT_AFTER:
                fail(method, times=times, drop="after")
            case _:
                fail(method, times=times, delay_s=fault.seconds)
        return method

    @override
    async def cut_connections(self) -> None:
        self.server.cut_all()

    @override
    async def go_offline(self) -> None:
        self.server.events.caller.away = True
        await self.server.go_offline()

    @override
    async def come_back(self) -> None:
        self.server.events.caller.away = False
        await self.server.come_back()
