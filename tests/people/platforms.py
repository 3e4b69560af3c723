"""The servers of all three platforms, with people in each kind of conversation."""

from typing import Any, Self

from gateway.playground.feishu.server import FakeFeishu
from gateway.playground.slack.server import FakeSlack
from gateway.playground.telegram.server import TelegramServer
from tests.people.chat_user import ChatUser
from tests.people.feishu import FeishuGroupUser, FeishuPrivateUser
from tests.people.slack import SlackDirectUser, SlackThreadUser
from tests.people.telegram import TelegramPrivateUser, TelegramTopicUser


class PlatformServers:
    """The servers of all three platforms, with a user in each kind of conversation."""

    def __init__(self) -> None:
        self.slack = FakeSlack()
        self.telegram = TelegramServer()
        self.feishu = FakeFeishu()
        self.users: list[ChatUser] = []

    async def __aenter__(self) -> Self:
        for platform in (self.slack, self.telegram, self.feishu):
            await platform.__aenter__()
        self.users = [
            SlackThreadUser(self.slack),
            SlackDirectUser(self.slack),
            TelegramPrivateUser(self.telegram),
            TelegramTopicUser(self.telegram),
            FeishuPrivateUser(self.feishu),
            FeishuGroupUser(self.feishu),
        ]
        return self

    async def __aexit__(self, *exc: object) -> None:
        for platform in (self.feishu, self.telegram, self.slack):
            await platform.__aexit__(None, None, None)

    def private_users(self, number: int) -> list[ChatUser]:
        """Return one person's private chats on all platforms. Each number is a different person."""
        return [
            SlackDirectUser(self.slack, user=f"U{number}USER"),
            TelegramPrivateUser(self.telegram, user=5000 + number),
            FeishuPrivateUser(self.feishu, user=f"ou_person{number}"),
        ]

    @property
    def channels(self) -> dict[str, Any]:
        """The `channels` section of a configuration that uses these servers."""
        slack = {
            "enabled": True,
            "base_url": self.slack.base_url,
            "bot_token": self.slack.bot_token,
            "app_token": self.slack.app_token,
        }
        telegram = {**self.telegram.settings, "group_policy": "mention"}
        return {"slack": slack, "telegram": telegram, "feishu": self.feishu.settings}

    @property
    def violations(self) -> list[str]:
        """Violations that the platforms found in the bot's requests."""
        return [*self.slack.violations, *self.telegram.violations, *self.feishu.violations]
