"""Users of the three platforms: one class for each kind of conversation, all with the same methods."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Self

from typing_extensions import override

from bus.locales import LANGUAGES
from tests.eventually import eventually
from tests.fakes.feishu import FakeFeishu
from tests.fakes.slack import FakeSlack
from tests.fakes.slack_state import SlackMessage
from tests.fakes.telegram import TelegramServer

FORUM = -1_001_234_567_890

WORKING = frozenset(words.working for words in LANGUAGES.values())


def without_progress_notices(shown: Iterable[str]) -> list[str]:
    """Drop the messages that only say that a long turn is still being worked on."""
    return [text for text in shown if text not in WORKING]


def own_words(text: str) -> str:
    """Return what a person wrote, or the model repeated, without what they reply to."""
    return text.partition("\n\n> ")[0]


class ChatUser(ABC):
    """A user in one conversation of one platform."""

    name = ""
    channel = ""
    chat = ""

    @abstractmethod
    async def send(self, text: str) -> None:
        """Send a message to the bot, with a mention where one is needed."""

    @abstractmethod
    def bot_messages(self) -> list[str]:
        """Return the bot's messages in this conversation as they read now, oldest first."""

    @abstractmethod
    def misplaced_messages(self) -> list[str]:
        """Return the bot's messages that went elsewhere on this platform."""

    @abstractmethod
    def lose_next_response(self) -> None:
        """Break the connection of the bot's next message after it was posted, before the response."""

    @abstractmethod
    def button_labels(self) -> list[str]:
        """Return the labels of all buttons in this conversation, oldest first."""

    @abstractmethod
    async def press(self, label: str) -> None:
        """Press the newest button with a label."""

    async def wait_and_press(self, label: str, *, within_s: float = 20.0) -> None:
        """Wait for a button, then press it."""
        await eventually(self.button_labels, lambda labels: label in labels, within_s=within_s)
        await self.press(label)

    async def expect_messages(self, *expected: str, within_s: float = 20.0) -> None:
        """Wait until the bot's messages in this conversation are exactly these."""
        await eventually(self.bot_messages, lambda shown: shown == [*expected], within_s=within_s)

    async def wait_for_message(self, *parts: str, within_s: float = 20.0) -> str:
        """Wait for a message of the bot that contains all these parts; return the first."""

        def matching(shown: list[str]) -> list[str]:
            return [text for text in shown if all(part in text for part in parts)]

        return matching(await eventually(self.bot_messages, matching, within_s=within_s))[0]


class SlackThreadUser(ChatUser):
    """A channel: a mention, then the thread under it."""

    name, channel = "slack channel", "slack"

    def __init__(self, slack: FakeSlack, *, room: str = "C1") -> None:
        self._slack = slack
        self._room = room
        self._root: SlackMessage | None = None

    @override
    async def send(self, text: str) -> None:
        root = self._root.ts if self._root else ""
        said = self._slack.mention(text, channel=self._room, thread_ts=root)
        self._root = self._root or said

    @override
    def bot_messages(self) -> list[str]:
        if not self._root:
            return []
        return without_progress_notices(m.words for m in self._slack.replies(self._root))

    @override
    def misplaced_messages(self) -> list[str]:
        return without_progress_notices(self._slack.texts(self._room))[len(self.bot_messages()) :]

    @override
    def lose_next_response(self) -> None:
        self._slack.fail("chat.postMessage", drop="after")

    @override
    def button_labels(self) -> list[str]:
        shown = self._slack.replies(self._root) if self._root else []
        return [label for message in shown for label in message.buttons]

    @override
    async def press(self, label: str) -> None:
        shown = self._slack.replies(self._root) if self._root else []
        self._slack.press(next(m for m in reversed(shown) if label in m.buttons), label)


class SlackDirectUser(ChatUser):
    """A direct message."""

    name, channel = "slack dm", "slack"

    def __init__(self, slack: FakeSlack, *, user: str = "U1ANN") -> None:
        self._slack = slack
        self._user = user
        self.chat = f"D{user}"

    @override
    async def send(self, text: str) -> None:
        self._slack.dm(text, user=self._user)

    @override
    def bot_messages(self) -> list[str]:
        return without_progress_notices(self._slack.texts(f"D{self._user}", viewer=self._user))

    @override
    def misplaced_messages(self) -> list[str]:
        return []

    @override
    def lose_next_response(self) -> None:
        self._slack.fail("chat.postMessage", drop="after")

    @override
    def button_labels(self) -> list[str]:
        return [label for message in self._slack.messages(self.chat) for label in message.buttons]

    @override
    async def press(self, label: str) -> None:
        shown = reversed(self._slack.messages(self.chat))
        self._slack.press(next(m for m in shown if label in m.buttons), label, user=self._user)


class TelegramPrivateUser(ChatUser):
    """A private chat."""

    name, channel = "telegram private", "telegram"

    def __init__(self, telegram: TelegramServer, *, user: int = 1001) -> None:
        self._telegram = telegram
        self._user = user
        self.chat = str(user)

    @override
    async def send(self, text: str) -> None:
        self._telegram.dm(text, user=self._user)

    @override
    def bot_messages(self) -> list[str]:
        return without_progress_notices(m.text for m in self._telegram.answers(self._user))

    @override
    def misplaced_messages(self) -> list[str]:
        return []

    @override
    def lose_next_response(self) -> None:
        self._telegram.fail("sendMessage", drop="after")

    @override
    def button_labels(self) -> list[str]:
        return self._telegram.labels(self._user)

    @override
    async def press(self, label: str) -> None:
        self._telegram.press(self._user, label, user=self._user)


class TelegramTopicUser(ChatUser):
    """A topic of a forum."""

    name, channel = "telegram topic", "telegram"

    def __init__(self, telegram: TelegramServer) -> None:
        self._telegram = telegram
        telegram.add_forum(FORUM)
        self._topic = telegram.add_topic(FORUM, "Travel")

    @override
    async def send(self, text: str) -> None:
        bot = self._telegram.username
        name, _, rest = text.partition(" ")
        if re.fullmatch(r"/[a-z]+", name):
            self._telegram.say(FORUM, f"{name}@{bot} {rest}".strip(), thread=self._topic)
        else:
            self._telegram.mention(FORUM, text, thread=self._topic)

    @override
    def bot_messages(self) -> list[str]:
        return without_progress_notices(
            m.text for m in self._telegram.answers(FORUM, thread=self._topic)
        )

    @override
    def misplaced_messages(self) -> list[str]:
        return without_progress_notices(m.text for m in self._telegram.answers(FORUM))[
            len(self.bot_messages()) :
        ]

    @override
    def lose_next_response(self) -> None:
        self._telegram.fail("sendMessage", drop="after")

    @override
    def button_labels(self) -> list[str]:
        return self._telegram.labels(FORUM)

    @override
    async def press(self, label: str) -> None:
        self._telegram.press(FORUM, label)


class FeishuPrivateUser(ChatUser):
    """A p2p chat."""

    name, channel = "feishu private", "feishu"

    def __init__(self, feishu: FakeFeishu, *, user: str = "ou_alice") -> None:
        self._feishu = feishu
        self._user = user
        self.chat = f"oc_dm_{user}"

    @override
    async def send(self, text: str) -> None:
        await self._feishu.dm(text, user=self._user)

    @override
    def bot_messages(self) -> list[str]:
        return [m.text for m in self._feishu.answers(f"oc_dm_{self._user}")]

    @override
    def misplaced_messages(self) -> list[str]:
        return []

    @override
    def lose_next_response(self) -> None:
        self._feishu.fail("message.patch", drop="after")

    @override
    def button_labels(self) -> list[str]:
        return [label for message in self._feishu.answers(self.chat) for label in message.buttons]

    @override
    async def press(self, label: str) -> None:
        shown = reversed(self._feishu.answers(self.chat))
        await self._feishu.press(
            next(m for m in shown if label in m.buttons), label, user=self._user
        )


class FeishuGroupUser(ChatUser):
    """A group: a mention, then a chain of replies to the bot's cards."""

    name, channel = "feishu group", "feishu"
    room = "oc_room"

    def __init__(self, feishu: FakeFeishu) -> None:
        self._feishu = feishu

    @override
    async def send(self, text: str) -> None:
        cards = self._feishu.answers(self.room)
        await self._feishu.mention(text, chat=self.room, reply_to=cards[-1].id if cards else "")

    @override
    def bot_messages(self) -> list[str]:
        return [own_words(m.text) for m in self._feishu.answers(self.room) if m.reply_to]

    @override
    def misplaced_messages(self) -> list[str]:
        return [m.text for m in self._feishu.answers(self.room) if not m.reply_to]

    @override
    def lose_next_response(self) -> None:
        self._feishu.fail("message.patch", drop="after")

    @override
    def button_labels(self) -> list[str]:
        return [label for message in self._feishu.answers(self.room) for label in message.buttons]

    @override
    async def press(self, label: str) -> None:
        shown = reversed(self._feishu.answers(self.room))
        await self._feishu.press(next(m for m in shown if label in m.buttons), label)


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
        """Return one person's private chats on all platforms; each number is another person."""
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
        """What the platforms found wrong with the bot's requests."""
        return [*self.slack.violations, *self.telegram.violations, *self.feishu.violations]
