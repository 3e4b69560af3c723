"""A simulated Feishu: private chats and a group."""

from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from gateway.playground.feishu.server import FakeFeishu
from tests.people.chat_user import CallFailure
from tests.people.feishu import FeishuGroupUser, FeishuPrivateUser, fail_feishu_calls
from tests.prove.plan import PlaceTraits
from tests.prove.platforms import (
    Place,
    SimulatedPlatform,
    steers,
    stranger_traits,
)

REDELIVER_S = 5.0
"""Pause before Feishu sends an event again. The real ones are 15 s, 5 min, 1 h and 6 h."""

CALLS = (
    "message.reply", "message.reply", "message.patch", "message.patch", "message.create", "reaction.create",
    "reaction.delete", "file.create", "resource", "token", "endpoint", "message.get",
)  # fmt: skip


class FeishuPlatform(SimulatedPlatform):
    """A Feishu tenant with the app.

    Args:
        channel: The app's name in the configuration.
        people: Number of people who write to it in private.
        weight: Each of its places' share of the messages, relative to the places of other bots.
        webhook: Whether Feishu calls the service. Otherwise the service connects to it.
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
        self.channel, self.calls = channel, CALLS
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
            self.places.append(Place(FeishuPrivateUser(self.server, user=user), traits))
        self.server.outsiders["ou_stranger"] = "tenant_2"
        traits = stranger_traits(channel, can_edit=False)
        self.places.append(Place(FeishuPrivateUser(self.server, user="ou_stranger"), traits))
        traits = PlaceTraits(
            name=f"{channel} group",
            channel=channel,
            private=False,
            steers=steers(more),
            weight=weight,
            can_edit=False,
        )
        self.places.append(Place(FeishuGroupUser(self.server, user="ou_proof1"), traits))

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
    def fail(self, call: str, how: CallFailure, *, times: int, seconds: float) -> None:
        fail_feishu_calls(self.server, call, how, times=times, seconds=seconds)

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
