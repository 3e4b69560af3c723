"""A simulated Telegram: private chats and a forum topic."""

from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from gateway.playground.telegram.server import TelegramServer
from tests.people.chat_user import CallFailure
from tests.people.telegram import (
    FORUM_PERSON,
    TelegramPrivateUser,
    TelegramTopicUser,
    fail_telegram_calls,
)
from tests.prove.plan import PlaceTraits
from tests.prove.platforms import (
    Place,
    SimulatedPlatform,
    steers,
    stranger_traits,
)

FIRST_PERSON = 5000
"""The stranger's ID. People with higher IDs may use the bot."""

TOPIC_WEIGHT = 0.5
PATIENCE_S, RETRY_S = 10.0, 1.0
"""How long Telegram waits for the response to an update, and before it posts it again, seconds.

In reality, each is up to a minute.
"""

WEBHOOK_SECRET = "a-secret-for-the-proof"
CALLS = (
    "sendMessage", "sendMessage", "sendMessage", "editMessageText", "getUpdates", "sendChatAction", "deleteMessage",
    "sendDocument", "getFile", "download", "getMe",
)  # fmt: skip


class TelegramPlatform(SimulatedPlatform):
    """A Telegram with one bot.

    Args:
        channel: The bot's name in the configuration.
        people: Number of people who write to it in private.
        token: The bot's token.
        webhook: Whether Telegram calls the service. Otherwise the service polls.
        more: Further keys of the channel's section.
    """

    def __init__(
        self, channel: str, *, people: int, token: str, webhook: bool = False, **more: object
    ) -> None:
        self.channel, self.calls = channel, CALLS
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
            self.places.append(
                Place(TelegramPrivateUser(self.server, user=FIRST_PERSON + number), traits)
            )
        traits = stranger_traits(channel, can_delete=False)
        self.places.append(Place(TelegramPrivateUser(self.server, user=FIRST_PERSON), traits))
        self._allowed = [FORUM_PERSON, *(FIRST_PERSON + number for number in range(1, people + 1))]

    @override
    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        for name in ("Travel", "Food"):
            traits = PlaceTraits(
                name=f"{self.channel} topic {name}",
                channel=self.channel,
                private=False,
                steers=self._steers,
                can_delete=False,
                weight=TOPIC_WEIGHT,
            )
            self.places.append(Place(TelegramTopicUser(self.server, topic=name), traits))
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
    def fail(self, call: str, how: CallFailure, *, times: int, seconds: float) -> None:
        fail_telegram_calls(self.server, call, how, times=times, seconds=seconds)

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
