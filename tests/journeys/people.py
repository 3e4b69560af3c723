"""Where people sit: one class for each kind of place, all with the same few verbs."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Self

import anyio
from typing_extensions import override

from bus.locales import LANGUAGES
from tests.fakes.feishu import FakeFeishu
from tests.fakes.slack import FakeSlack
from tests.fakes.slack_state import Message as SlackMessage
from tests.fakes.telegram import TelegramServer

FORUM = -1_001_234_567_890


WORKING = frozenset(words.working for words in LANGUAGES.values())


def answers(shown: Iterable[str]) -> list[str]:
    """Return what a person was told, without the signs that a long turn is still worked on."""
    return [text for text in shown if text not in WORKING]


class Person(ABC):
    """One place on one platform. `heard` is what the bot said there, as it can be read now."""

    name = ""
    channel = ""
    chat = ""

    @abstractmethod
    async def say(self, text: str) -> None:
        """Address the bot, as a person would in this place."""

    @abstractmethod
    def heard(self) -> list[str]:
        """Return the bot's messages here, oldest first, only those in the right place."""

    @abstractmethod
    def stray(self) -> list[str]:
        """Return what the bot said on this platform anywhere else."""

    @abstractmethod
    def lose_next_answer(self) -> None:
        """Let the next answer appear, and the bot never learn that it did."""

    @abstractmethod
    def labels(self) -> list[str]:
        """Return the labels of all buttons that stand here, oldest first."""

    @abstractmethod
    async def press(self, label: str) -> None:
        """Press the newest button with a label."""

    async def presses(self, label: str, *, within_s: float = 20.0) -> None:
        """Wait for a button, and press it."""
        with anyio.move_on_after(within_s):
            while label not in self.labels():  # noqa: ASYNC110 - three platforms, three signals
                await anyio.sleep(0.02)
        assert label in self.labels(), f"{self.name}: no {label!r} in {self.labels()}"
        await self.press(label)

    async def hears(self, *expected: str, within_s: float = 20.0) -> None:
        """Wait until the bot has said exactly this here, and nothing else."""
        with anyio.move_on_after(within_s):
            while self.heard() != list(expected):  # noqa: ASYNC110 - three platforms, three signals
                await anyio.sleep(0.02)
        assert self.heard() == list(expected), f"{self.name}: {self.heard()}"

    async def sees(self, *parts: str, within_s: float = 20.0) -> str:
        """Wait for a message of the bot that holds all these parts; return the first."""
        with anyio.move_on_after(within_s):
            while True:
                for said in self.heard():
                    if all(part in said for part in parts):
                        return said
                await anyio.sleep(0.02)
        raise AssertionError(f"{self.name}: not {parts} in {self.heard()}")


class SlackThread(Person):
    """A channel: a mention, then the thread under it."""

    name, channel = "slack channel", "slack"

    def __init__(self, slack: FakeSlack, *, room: str = "C1") -> None:
        self._slack = slack
        self._room = room
        self._root: SlackMessage | None = None

    @override
    async def say(self, text: str) -> None:
        root = self._root.ts if self._root else ""
        said = self._slack.mention(text, channel=self._room, thread_ts=root)
        self._root = self._root or said

    @override
    def heard(self) -> list[str]:
        if not self._root:
            return []
        return answers(m.words for m in self._slack.replies(self._root))

    @override
    def stray(self) -> list[str]:
        return answers(self._slack.texts(self._room))[len(self.heard()) :]

    @override
    def lose_next_answer(self) -> None:
        self._slack.fail("chat.postMessage", drop="after")

    @override
    def labels(self) -> list[str]:
        shown = self._slack.replies(self._root) if self._root else []
        return [label for message in shown for label in message.buttons]

    @override
    async def press(self, label: str) -> None:
        shown = self._slack.replies(self._root) if self._root else []
        self._slack.press(next(m for m in reversed(shown) if label in m.buttons), label)


class SlackPrivate(Person):
    """A direct message."""

    name, channel = "slack dm", "slack"

    def __init__(self, slack: FakeSlack, *, user: str = "U1ANN") -> None:
        self._slack = slack
        self._user = user
        self.chat = f"D{user}"

    @override
    async def say(self, text: str) -> None:
        self._slack.dm(text, user=self._user)

    @override
    def heard(self) -> list[str]:
        return answers(self._slack.texts(f"D{self._user}", viewer=self._user))

    @override
    def stray(self) -> list[str]:
        return []

    @override
    def lose_next_answer(self) -> None:
        self._slack.fail("chat.postMessage", drop="after")

    @override
    def labels(self) -> list[str]:
        return [label for message in self._slack.messages(self.chat) for label in message.buttons]

    @override
    async def press(self, label: str) -> None:
        shown = reversed(self._slack.messages(self.chat))
        self._slack.press(next(m for m in shown if label in m.buttons), label, user=self._user)


class TelegramPrivate(Person):
    """A private chat."""

    name, channel = "telegram private", "telegram"

    def __init__(self, telegram: TelegramServer, *, user: int = 1001) -> None:
        self._telegram = telegram
        self._user = user
        self.chat = str(user)

    @override
    async def say(self, text: str) -> None:
        self._telegram.dm(text, user=self._user)

    @override
    def heard(self) -> list[str]:
        return answers(m.text for m in self._telegram.answers(self._user))

    @override
    def stray(self) -> list[str]:
        return []

    @override
    def lose_next_answer(self) -> None:
        self._telegram.fail("sendMessage", drop="after")

    @override
    def labels(self) -> list[str]:
        return self._telegram.labels(self._user)

    @override
    async def press(self, label: str) -> None:
        self._telegram.press(self._user, label, user=self._user)


class TelegramTopic(Person):
    """A topic of a forum."""

    name, channel = "telegram topic", "telegram"

    def __init__(self, telegram: TelegramServer) -> None:
        self._telegram = telegram
        telegram.add_forum(FORUM)
        self._topic = telegram.add_topic(FORUM, "Travel")

    @override
    async def say(self, text: str) -> None:
        bot = self._telegram.username
        name, _, rest = text.partition(" ")
        if re.fullmatch(r"/[a-z]+", name):
            self._telegram.say(FORUM, f"{name}@{bot} {rest}".strip(), thread=self._topic)
        else:
            self._telegram.mention(FORUM, text, thread=self._topic)

    @override
    def heard(self) -> list[str]:
        return answers(m.text for m in self._telegram.answers(FORUM, thread=self._topic))

    @override
    def stray(self) -> list[str]:
        return answers(m.text for m in self._telegram.answers(FORUM))[len(self.heard()) :]

    @override
    def lose_next_answer(self) -> None:
        self._telegram.fail("sendMessage", drop="after")

    @override
    def labels(self) -> list[str]:
        return self._telegram.labels(FORUM)

    @override
    async def press(self, label: str) -> None:
        self._telegram.press(FORUM, label)


class FeishuPrivate(Person):
    """A p2p chat."""

    name, channel = "feishu private", "feishu"

    def __init__(self, feishu: FakeFeishu, *, user: str = "ou_alice") -> None:
        self._feishu = feishu
        self._user = user
        self.chat = f"oc_dm_{user}"

    @override
    async def say(self, text: str) -> None:
        await self._feishu.dm(text, user=self._user)

    @override
    def heard(self) -> list[str]:
        return [m.text for m in self._feishu.answers(f"oc_dm_{self._user}")]

    @override
    def stray(self) -> list[str]:
        return []

    @override
    def lose_next_answer(self) -> None:
        self._feishu.fail("message.patch", drop="after")

    @override
    def labels(self) -> list[str]:
        return [label for message in self._feishu.answers(self.chat) for label in message.buttons]

    @override
    async def press(self, label: str) -> None:
        shown = reversed(self._feishu.answers(self.chat))
        await self._feishu.press(
            next(m for m in shown if label in m.buttons), label, user=self._user
        )


class FeishuGroup(Person):
    """A group: a mention, then a chain of replies to the bot's cards."""

    name, channel = "feishu group", "feishu"
    room = "oc_room"

    def __init__(self, feishu: FakeFeishu) -> None:
        self._feishu = feishu

    @override
    async def say(self, text: str) -> None:
        cards = self._feishu.answers(self.room)
        await self._feishu.mention(text, chat=self.room, reply_to=cards[-1].id if cards else "")

    @override
    def heard(self) -> list[str]:
        return [m.text for m in self._feishu.answers(self.room) if m.reply_to]

    @override
    def stray(self) -> list[str]:
        return [m.text for m in self._feishu.answers(self.room) if not m.reply_to]

    @override
    def lose_next_answer(self) -> None:
        self._feishu.fail("message.patch", drop="after")

    @override
    def labels(self) -> list[str]:
        return [label for message in self._feishu.answers(self.room) for label in message.buttons]

    @override
    async def press(self, label: str) -> None:
        shown = reversed(self._feishu.answers(self.room))
        await self._feishu.press(next(m for m in shown if label in m.buttons), label)


class Town:
    """All three platforms, with a seat of each kind."""

    def __init__(self) -> None:
        self.slack = FakeSlack()
        self.telegram = TelegramServer()
        self.feishu = FakeFeishu()
        self.seats: list[Person] = []

    async def __aenter__(self) -> Self:
        for platform in (self.slack, self.telegram, self.feishu):
            await platform.__aenter__()
        self.seats = [
            SlackThread(self.slack),
            SlackPrivate(self.slack),
            TelegramPrivate(self.telegram),
            TelegramTopic(self.telegram),
            FeishuPrivate(self.feishu),
            FeishuGroup(self.feishu),
        ]
        return self

    async def __aexit__(self, *exc: object) -> None:
        for platform in (self.feishu, self.telegram, self.slack):
            await platform.__aexit__(None, None, None)

    def person(self, number: int) -> list[Person]:
        """Return one person's private chats on all platforms; every number is another person."""
        return [
            SlackPrivate(self.slack, user=f"U{number}SEAT"),
            TelegramPrivate(self.telegram, user=5000 + number),
            FeishuPrivate(self.feishu, user=f"ou_person{number}"),
        ]

    @property
    def channels(self) -> dict[str, Any]:
        """The `channels` section that leads here."""
        slack = {
            "enabled": True,
            "base_url": self.slack.base_url,
            "bot_token": self.slack.bot_token,
            "app_token": self.slack.app_token,
        }
        telegram = {
            "enabled": True,
            "base_url": self.telegram.base_url,
            "base_file_url": self.telegram.base_file_url,
            "bot_token": self.telegram.token,
            "dm_policy": "open",
            "group_policy": "mention",
        }
        return {"slack": slack, "telegram": telegram, "feishu": self.feishu.settings}

    @property
    def violations(self) -> list[str]:
        """What the platforms found wrong with the bot's requests."""
        return [*self.slack.violations, *self.telegram.violations, *self.feishu.violations]
