"""A simulated Slack: private chats and channel threads."""

from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from gateway.playground.slack.server import FakeSlack
from tests.people.chat_user import CallFailure
from tests.people.slack import SlackDirectUser, SlackThreadUser, fail_slack_calls
from tests.prove.plan import PlaceTraits
from tests.prove.platforms import (
    Place,
    SimulatedPlatform,
    steers,
    stranger_traits,
)

RETRIES_S = (1.0, 15.0, 45.0)
"""Pauses before Slack sends an event again. The real ones are 0, 60 and 300 s."""

CALLS = (
    "chat.postMessage", "chat.postMessage", "chat.postMessage", "chat.update", "chat.delete", "reactions.add",
    "reactions.remove", "conversations.history", "conversations.replies", "upload",
    "files.completeUploadExternal", "auth.test", "apps.connections.open",
)  # fmt: skip


class SlackPlatform(SimulatedPlatform):
    """A Slack workspace with the app.

    Args:
        channel: The app's name in the configuration.
        people: Number of people who write to it in private.
        weight: Each of its places' share of the messages, relative to the places of other bots.
        webhook: Whether Slack calls the service. Otherwise the service connects to it.
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
        self.channel, self.calls = channel, CALLS
        self.calls_webhook = webhook
        self._more = more
        self.server = FakeSlack(retries_s=RETRIES_S)
        self.places = []
        for number in range(1, people + 1):
            name = f"{channel} private {number}"
            traits = PlaceTraits(
                name=name, channel=channel, private=True, steers=steers(more), weight=weight
            )
            self.places.append(Place(SlackDirectUser(self.server, user=f"U{number}PROOF"), traits))
        self.server.person("U0STRANGER", is_restricted=True)
        stranger = SlackDirectUser(self.server, user="U0STRANGER")
        self.places.append(Place(stranger, stranger_traits(channel)))
        for number in range(1, 3):
            # Deleting a root message removes its thread, so people there delete nothing.
            traits = PlaceTraits(
                name=f"{channel} thread {number}",
                channel=channel,
                private=False,
                steers=steers(more),
                weight=weight,
                can_delete=False,
            )
            user = SlackThreadUser(self.server, room=f"C{number}PROOF", user=f"U{number}PROOF")
            self.places.append(Place(user, traits))

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
    def fail(self, call: str, how: CallFailure, *, times: int, seconds: float) -> None:
        fail_slack_calls(self.server, call, how, times=times, seconds=seconds)

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
