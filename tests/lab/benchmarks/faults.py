"""kill -9 twenty times at random while people write on all platforms. Counts lost, doubled and uncertain answers."""

import logging
import random
import re
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from anyio.abc import TaskStatus

from gateway.playground.slack.server import FakeSlack
from gateway.playground.telegram.server import TelegramServer
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.journeys.service import Service, serving, with_model
from tests.lab.benchmarks.figures import Figure
from tests.people.chat_user import ChatUser
from tests.people.feishu import FeishuPrivateUser
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackDirectUser
from tests.people.telegram import TelegramPrivateUser

KILLS = 20
PEOPLE = 8
PAUSE_S = 0.3
"""Pause between two messages, over all platforms, seconds."""

LIFE_S = (0.1, 2.0)
"""How long the service lives after its channels are connected, seconds."""

SETTLE_S = 40.0
SEED = 20_260_401
APOLOGIES = {
    "refused, the queue was full": "I still have",
    "given up, interrupted too often": "interrupted too often",
    "failed": "Something went wrong",
}
NUMBER = re.compile(r"You said: (\w+-\d+)\b")


class PatientServers(PlatformServers):
    """Platform servers whose Slack resends an event for minutes, as Slack does, with pauses that fit a short run."""

    def __init__(self) -> None:
        super().__init__()
        self.slack = FakeSlack(ack_window_s=1.0, retries_s=(0.1, 1.0, 2.0, 3.0, 5.0, 10.0))
        self.telegram = TelegramServer()


class _Ledger:
    """The messages that people sent, and where their answers must appear."""

    def __init__(self, platforms: PlatformServers) -> None:
        self._town = platforms
        self.users: list[ChatUser] = []
        for number in range(PEOPLE):
            self.users.append(SlackDirectUser(platforms.slack, user=f"U{number}BENCH"))
            self.users.append(TelegramPrivateUser(platforms.telegram, user=7000 + number))
            self.users.append(FeishuPrivateUser(platforms.feishu, user=f"ou_bench{number}"))
        self.said: dict[str, ChatUser] = {}

    async def talk(self, *, task_status: TaskStatus[None]) -> None:
        """Send one message after another, each person in turn."""
        task_status.started()
        while True:
            user = self.users[len(self.said) % len(self.users)]
            text = f"{user.channel}-{len(self.said)}"
            self.said[text] = user
            await user.send(text)
            await anyio.sleep(PAUSE_S)

    def answers(self) -> Counter[str]:
        """Return how often each message was answered, as people see it."""
        found: Counter[str] = Counter()
        for user in self.users:
            for text in user.bot_messages():
                found.update(NUMBER.findall(text))
        return found

    def seen(self) -> int:
        """Return the number of answers on all platforms. Cheap, because it is called while the service starts."""
        platforms = self._town
        words = [m.text for m in platforms.slack.workspace.posted if m.bot_id]
        words += [m.text for m in platforms.feishu.state.messages.values() if m.by_bot]
        words += [
            m.text
            for c in platforms.telegram.chats.values()
            for m in c.messages.values()
            if m.by_bot
        ]
        return sum(text.startswith("You said") for text in words)

    def open(self) -> list[str]:
        """Return the messages without an answer."""
        answered = self.answers()
        return [text for text in self.said if not answered[text]]

    def apologies(self) -> Counter[str]:
        """Return how often the bot reported that it refused or gave up on a message."""
        heard = [text for user in self.users for text in user.bot_messages()]
        return Counter(
            {why: sum(words in text for text in heard) for why, words in APOLOGIES.items()}
        )


def run() -> list[Figure]:
    """Measure and return the figures."""
    logging.getLogger("aiohttp.server").setLevel(
        logging.CRITICAL
    )  # a request ends when its client is killed
    return anyio.run(_measure)


async def _measure() -> list[Figure]:
    dice = random.Random(SEED)  # noqa: S311 - a repeatable schedule, no secret
    with TemporaryDirectory() as folder:
        async with PatientServers() as platforms, FakeModelServer() as model:
            model.answer = _slowly
            ledger = _Ledger(platforms)
            config = {**with_model(model.base_url), "channels": platforms.channels}
            async with serving(Path(folder), config, *platforms.channels) as service:
                returns = await _under_fire(service, ledger, dice, tuple(platforms.channels))
                with anyio.move_on_after(SETTLE_S):
                    while ledger.open():  # noqa: ASYNC110 - three platforms, three signals
                        await anyio.sleep(0.5)
                uncertain = await _uncertain(service)
            broken = len(platforms.violations)
    answers = ledger.answers()
    twice = Counter(text.partition("-")[0] for text in ledger.said if answers[text] > 1)
    given_up = sum(envelope.dropped for envelope in platforms.slack.sockets.envelopes)
    sorry = ledger.apologies()
    lost = len(ledger.open()) - given_up - sorry.total()
    certain = twice["slack"] + twice["feishu"]
    return [
        Figure("faults: messages under 20 kills", len(ledger.said), ""),
        Figure("faults: lost without a word", max(0, lost), "", "= 0"),
        *[Figure(f"faults: {why}, and said so", count, "") for why, count in sorry.items()],
        Figure("faults: not delivered to us by Slack, retries used up", given_up, ""),
        Figure("faults: doubled on Slack and Feishu", certain, "", "= 0"),
        Figure("faults: doubled on Telegram", twice["telegram"], ""),
        Figure("faults: marked uncertain on Telegram, a kill", uncertain / KILLS, "", "<= 1"),
        Figure("faults: requests that a platform forbids", broken, "", "= 0"),
        Figure("faults: first answer after a restart, median", returns[KILLS // 2], "s"),
        Figure("faults: first answer after a restart, slowest", returns[-1], "s", "<= 3"),
    ]


async def _under_fire(
    service: Service, ledger: _Ledger, dice: random.Random, channels: tuple[str, ...]
) -> list[float]:
    """Kill and restart the service. Return the seconds from each start to the next answer, sorted."""
    returns: list[float] = []
    async with anyio.create_task_group() as people:
        await people.start(ledger.talk)
        for _ in range(KILLS):
            await anyio.sleep(dice.uniform(*LIFE_S))
            await service.kill()
            before, began = ledger.seen(), time.perf_counter()
            await service.start()
            with anyio.fail_after(30):
                while ledger.seen() <= before:  # noqa: ASYNC110 - three platforms
                    await anyio.sleep(0.05)
            returns.append(time.perf_counter() - began)
            await service.until_connected(*channels)
        people.cancel_scope.cancel()
    return sorted(returns)


async def _uncertain(service: Service) -> int:
    async with service.client() as client:
        rows = (await client.get("/api/channels/outbox", params={"limit": 1000})).json()["rows"]
    return sum(row["state"] == "uncertain" and row["channel"] == "telegram" for row in rows)


def _slowly(request: ModelRequest) -> ModelReply:
    return ModelReply(text=f"You said: {request.last_user_text}", first_token_delay_s=0.15)
