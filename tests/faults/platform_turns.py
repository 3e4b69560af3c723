"""Turns on the real adapters, between the simulated platforms and a bus on a real journal."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import anyio

from bots.config import FeishuConfig, SlackConfig, TelegramConfig
from bots.feishu.adapter import FeishuAdapter
from bots.slack.adapter import SlackAdapter
from bots.telegram.adapter import TelegramAdapter
from bus import platform
from bus.config import BusConfig, ChannelPolicy, SessionConfig
from bus.errors import unwrapped
from bus.locales.en import ENGLISH
from bus.platform import Adapter, ConnectionState
from store.conversations import ConversationKey
from tests.bots import feishu_rig, slack_rig, telegram_rig
from tests.bus.harness import OPEN, BusHarness, running_bus
from tests.bus.test_bus_approvals import review
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.faults.injection import (
    COMMITS,
    SERVICE,
    AtStep,
    Faults,
    FaultyDatabase,
    ProcessKilled,
    StepPoint,
    with_faults,
)
from tests.people.chat_user import Arrival, ChatUser, SentEvent, ShownMessage
from tests.prove.feishu import FeishuPlatform
from tests.prove.platforms import SimulatedPlatform
from tests.prove.slack import SlackPlatform
from tests.prove.telegram import TelegramPlatform

ANSWER, QUESTION = "Hello you", "Let me."
STEER = OPEN.model_copy(update={"session": SessionConfig(busy="steer")})
WORK_S = 0.1
"""Minimum time that the agent works, seconds."""

PATIENCE_S = 3.0
"""How much longer it works if a fault keeps the turn from showing its work, seconds."""

PEOPLE_S = 15.0
"""How much longer it works if people do not do what it waits for, seconds. Then the test fails."""


ADAPTER_CALLS = frozenset(
    name
    for kind in vars(platform).values()
    if isinstance(kind, type) and (kind is Adapter or kind.__name__.startswith("Supports"))
    for name, _ in inspect.getmembers(kind, inspect.iscoroutinefunction)
) - {"run"}
"""Adapter methods that show something or look it up."""


@dataclass(frozen=True)
class RealPlatform:
    """A platform whose turns fail.

    Attributes:
        simulate: Makes its server, with people.
        adapt: Makes the adapter, for each process.
        calls: The platform's calls that show a turn to people. They fail.
        refusal: A temporary refusal of such a call, as arguments of the platform's `fail`.
        failures: The pending failures.
        revoke: Invalidates the bot's credentials. Returns a function that restores them.
    """

    simulate: Callable[[], SimulatedPlatform]
    adapt: Callable[[Mapping[str, Any]], Adapter]
    calls: tuple[str, ...]
    refusal: Mapping[str, object]
    failures: Callable[[Any], dict[str, Any] | list[Any]]
    revoke: Callable[[Any], Callable[[], object]]


PEOPLE = 20
"""Each turn has its own chat, because a chat accepts one message a second."""


def _simulated_slack() -> SlackPlatform:
    platform = SlackPlatform("slack", people=PEOPLE)
    platform.server.server.limits.on = False  # They need real time. The proof covers them.
    return platform


def _slack(section: Mapping[str, Any]) -> SlackAdapter:
    return SlackAdapter(SlackConfig.model_validate(section), timeouts=slack_rig.FAST)


def _telegram(section: Mapping[str, Any]) -> TelegramAdapter:
    # The bus decides who may write, and the harness lets everyone in.
    config = TelegramConfig.model_validate({**section, "allowed_users": []})
    return TelegramAdapter(
        config, telegram_rig.COMMANDS, timeouts=replace(telegram_rig.FAST, notice_s=0.5)
    )


def _feishu(section: Mapping[str, Any]) -> FeishuAdapter:
    return FeishuAdapter(
        FeishuConfig.model_validate(section),
        commands=feishu_rig.COMMANDS,
        timeouts=feishu_rig.QUICK,
    )


def _revoke_slack(simulated: SlackPlatform) -> Callable[[], object]:
    server = simulated.server.server
    good, server.bot_token = server.bot_token, "xoxb-another"
    return partial(setattr, server, "bot_token", good)


def _revoke_telegram(simulated: TelegramPlatform) -> Callable[[], object]:
    simulated.server.revoke()
    return partial(simulated.server.revoke, revoked=False)


def _revoke_feishu(simulated: FeishuPlatform) -> Callable[[], object]:
    rest = simulated.server.rest
    good, rest._app_secret = rest._app_secret, "another"
    simulated.server.revoke_tokens()
    return partial(setattr, rest, "_app_secret", good)


PLATFORMS: Mapping[str, RealPlatform] = {
    "slack": RealPlatform(
        _simulated_slack,
        _slack,
        ("chat.postMessage", "chat.delete", "reactions.add", "reactions.remove"),
        {"status": 503},
        lambda simulated: simulated.server.server.failures,
        _revoke_slack,
    ),
    "telegram": RealPlatform(
        lambda: TelegramPlatform("telegram", people=PEOPLE, token="123456:PLATFORM-TURNS"),
        _telegram,
        ("sendMessage", "sendChatAction", "editMessageText", "deleteMessage"),
        {"status": 502},
        lambda simulated: simulated.server._failures,
        _revoke_telegram,
    ),
    "feishu": RealPlatform(
        lambda: FeishuPlatform("feishu", people=PEOPLE),
        _feishu,
        ("message.reply", "message.create", "message.patch", "reaction.create", "reaction.delete"),
        {"status": 502, "text": "bad gateway"},
        lambda simulated: simulated.server.state.failures,
        _revoke_feishu,
    ),
}


@dataclass(frozen=True)
class RealTurn:
    """The actions of a person and of the agent in a test.

    Attributes:
        act: Writes to the bot, and waits for the answer to each message. In a second process, writes the remaining
            messages.
        script: What the agent does; None = it answers after `WORK_S`.
        least_answers, most_answers: Minimum and maximum number of answers.
        until: The agent works until the turn reaches this point, because people act meanwhile, or until a process ends.
        is_queued: Whether it works until a second message is queued.
        refusals: Responses of the agent's server to the first requests for a run.
    """

    act: Callable[["PlatformRig"], Coroutine[Any, Any, None]]
    script: Script | None = None
    least_answers: int = 1
    most_answers: int = 1
    until: StepPoint | None = None
    is_queued: bool = False
    refusals: tuple[int, ...] = ()
    policy: ChannelPolicy = OPEN


class PlatformRig:
    """A simulated platform and an agent's server, and successive processes between them.

    Attributes:
        user: The person, in a private chat.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.platform = PLATFORMS[name]
        self.server = FakeLangGraph()
        self.server.accepts_injection = True
        self._name = name
        self._folder = folder
        self._simulated = self.platform.simulate()
        self._faults = Faults()
        self._sent: dict[str, SentEvent] = {}
        self._chats = 0
        self._bus: BusHarness | None = None
        self._process = 0
        self._at_step = AtStep()

    async def __aenter__(self) -> Self:
        SERVICE.set(str(self._folder))
        await self.server.__aenter__()
        await self._simulated.__aenter__()
        self.user: ChatUser = self._simulated.places[0].user
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._simulated.__aexit__(None, None, None)
        await self.server.__aexit__(None, None, None)

    @property
    def bus(self) -> BusHarness:
        """The current process."""
        assert self._bus is not None
        return self._bus

    @asynccontextmanager
    async def process(self, turn: RealTurn, *, max_queue: int = 20) -> AsyncIterator[None]:
        """Run a process inside the block, for a turn."""
        adapter = self.platform.adapt(self._simulated.section)
        async with running_bus(
            self._folder,
            others={self._name: with_faults(adapter, self._faults)},
            server=self.server,
            policy=turn.policy,
            config=BusConfig(drain_s=0.0, max_queue=max_queue),
            wrap=lambda database: FaultyDatabase(database, self._faults),
        ) as bus:
            await eventually(lambda: adapter.health().state is ConnectionState.CONNECTED)
            self._bus = bus
            self._process += 1
            self._at_step = AtStep()
            with self._at_step.installed():
                try:
                    yield
                finally:
                    self._bus = None

    def begin(self, turn: RealTurn) -> None:
        """Forget earlier turns, use another chat, and let the agent follow this turn's script."""
        self._sent, self.user = {}, self._simulated.places[self._chats].user
        self._chats += 1
        self.server.runs.clear()
        self.server.scripts.clear()
        self.server.refusals.extend(turn.refusals)
        self._faults.methods.clear()
        self._let_work(turn)

    def _let_work(self, turn: RealTurn) -> None:
        """Let the agent work until people have seen that it works and have done their part."""
        gate = anyio.Event()
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        reached, process = self._at_step.reached, self._process

        def is_done() -> bool:
            waited_s = loop.time() - began_at - WORK_S
            is_shown = "show_working" in self._faults.methods or self._faults.happened.is_set()
            have_acted = turn.until is None or turn.until in reached
            if turn.is_queued and self._bus is not None:
                have_acted = self._bus.bus.load()[1] > 0
            return self._process > process or (
                (is_shown or waited_s > PATIENCE_S) and (have_acted or waited_s > PEOPLE_S)
            )

        def end() -> None:
            if is_done():
                gate.set()
            else:
                loop.call_later(0.01, end)

        loop.call_later(WORK_S, end)
        self.server.scripts.append(turn.script or Script(gate=gate))

    async def say(self, text: str) -> SentEvent:
        """Write to the bot, only once per turn."""
        if text not in self._sent:
            self._sent[text] = await self.user.enter(text)
        return self._sent[text]

    async def send_file(self) -> None:
        """Send a file without words, only once per turn."""
        if "" not in self._sent:
            self._sent[""] = await self.user.send_file("a.txt", b"content")

    async def edit(self, text: str, edited: str) -> None:
        """Edit the message, only once per turn."""
        if edited not in self._sent:
            self._sent[edited] = await self.user.edit(self._sent[text].message_id, edited)

    def shown(self) -> list[ShownMessage]:
        """Return what the bot has shown in this turn."""
        return self.user.shown()

    def revoke(self) -> Callable[[], object]:
        """Invalidate the bot's credentials. Return a function that restores them."""
        return self.platform.revoke(self._simulated)

    def is_heard(self) -> bool:
        """Return whether the bot has acknowledged everything that the person did in this turn."""
        return all(one.arrival() is not Arrival.WAITING for one in self._sent.values())

    def sent_ids(self) -> list[str]:
        """Return the IDs of the person's messages in this turn."""
        return [one.message_id for one in self._sent.values()]

    def break_calls(self, **how: object) -> None:
        """Make each call that shows a turn fail once."""
        for call in self.platform.calls:
            self._simulated.server.fail(call, **how)  # type: ignore[attr-defined]

    async def run_until_killed(self, turn: RealTurn, point: StepPoint) -> None:
        """Run a turn in a process that is killed at a point of the turn. From then on, it stores and sends nothing."""
        reached = anyio.Event()

        def kill() -> None:
            self._faults.is_killed = True
            reached.set()

        try:
            with unwrapped():
                async with self.process(turn):
                    await self._run_until(turn, point, kill, reached)
                    await anyio.sleep(0.02)  # Let running tasks notice the kill.
                    self._faults.kill()
        except ProcessKilled:
            self._faults.restart()

    async def run_until_killed_at(self, turn: RealTurn, method: str, *, after: bool) -> None:
        """Run a turn in a process that is killed right before or after an adapter method takes effect."""
        faults = self._faults
        try:
            with unwrapped():
                async with self.process(turn):
                    faults.kill_at = (method, after)
                    self.begin(turn)
                    await turn.act(self)
                    with anyio.fail_after(20):
                        await faults.happened.wait()
                    await anyio.sleep(0.02)
                    faults.kill()
        except ProcessKilled:
            faults.restart()

    async def list_calls(self, turn: RealTurn) -> list[str]:
        """Run a turn. Return the adapter methods that it calls."""
        async with self.process(turn):
            self.begin(turn)
            await turn.act(self)
            await self.settle()
            await eventually(lambda: not self.stuck())
        return [name for name in self._faults.methods if name in ADAPTER_CALLS]

    async def run_until_stopped(self, turn: RealTurn, point: StepPoint) -> None:
        """Run a turn in a process that is stopped at a point of its turn."""
        reached = anyio.Event()
        async with self.process(turn):
            await self._run_until(turn, point, reached.set, reached)

    async def _run_until(
        self, turn: RealTurn, point: StepPoint, act: Callable[[], None], reached: anyio.Event
    ) -> None:
        with AtStep(point, act).installed():
            self.begin(turn)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(turn.act, self)
                with anyio.fail_after(20):
                    await reached.wait()
                tasks.cancel_scope.cancel()

    async def run_with_broken_calls(self, turn: RealTurn, point: StepPoint, **how: object) -> None:
        """Run a turn. From a point on, each call that shows it fails once."""
        at = AtStep(point, lambda: self.break_calls(**how))
        with at.installed():
            self.begin(turn)
            await turn.act(self)
            await self.settle()
        assert point in at.reached, f"the turn did not come to {point}"
        self.platform.failures(self._simulated).clear()

    async def run_with_broken_commit(self, turn: RealTurn, point: StepPoint) -> None:
        """Run a turn in which a step's transaction fails once."""
        self._faults.happened = anyio.Event()
        broken = partial(setattr, self._faults, "breaks_once", COMMITS[point.step])
        with AtStep(point, broken).installed():
            self.begin(turn)
            await turn.act(self)
            await self.settle()
        assert self._faults.happened.is_set(), f"the turn did not come to the commit of {point}"
        self._faults.happened = anyio.Event()

    async def settle(self) -> None:
        """Wait until every message is finished and every delivery closed. Waits between retries pass quickly."""
        bus, quiet = self.bus, 0
        with anyio.fail_after(20):
            while quiet < 2:
                rows = await bus.bus.outbox.list_open()
                is_idle = not rows and not await bus.bus.inbox.list_unfinished()
                quiet = quiet + 1 if is_idle and self.is_heard() else 0
                if any(row.not_before > bus.clock() for row in rows):
                    bus.clock.ahead += 1.0
                for key in {row.conversation for row in rows}:
                    self._wake(key)
                await anyio.sleep(0.02)

    def _wake(self, key: ConversationKey) -> None:
        self.bus.bus._context.delivery.notify(key)

    async def check(self, turn: RealTurn) -> None:
        """Finish a turn, and check the chat.

        The message was answered once or the person was told, nothing is stuck, the next message is answered, and no
        request was forbidden.
        """
        await turn.act(self)
        await self.settle()
        texts = [message.text for message in self.shown()]
        told = sum(ANSWER in text or ENGLISH.failed in text for text in texts)
        # If a platform hides the outcome of a send, there may be a copy of an answer or a progress notice.
        doubtful = await self.bus.bus.outbox.list_recent(states=["uncertain"])
        copies = sum(row.key.endswith(":notice") for row in doubtful)
        most = turn.most_answers + len(doubtful) - copies
        assert turn.least_answers <= told <= most, texts
        await eventually(lambda: len(self.stuck()) <= copies)
        for row in doubtful:
            await self.bus.bus.deliveries.discard(row.id)
        self.server.scripts.clear()  # If no run was started, its script is left.
        await self.say("again")
        await eventually(lambda: sum(ANSWER in one.text for one in self.shown()) > told)
        await self.settle()
        await eventually(
            lambda: len(self.stuck()) <= copies
        )  # An indicator disappears after the delivery.
        assert self._simulated.violations == [], self._simulated.violations

    def stuck(self) -> list[str]:
        """Return everything shown that says work continues."""
        messages = [message.text for message in self.shown() if message.unfinished]
        signs = [
            sign
            for one in self._sent.values()
            if not one.message_id.startswith("slash:")
            for sign in self.user.working_signs(one.message_id)
        ]
        return [*messages, *signs]

    async def run_started(self) -> None:
        """Wait for a run."""
        await eventually(lambda: self.server.runs)


async def _with_a_file(rig: PlatformRig) -> None:
    await rig.send_file()


async def _one_message(rig: PlatformRig) -> None:
    await rig.say("hi")


async def _approval(rig: PlatformRig) -> None:
    await rig.say("release it")
    await eventually(lambda: any(QUESTION in one.text for one in rig.shown()))
    await rig.settle()
    await rig.say("approve")


async def _two_messages(rig: PlatformRig) -> None:
    await rig.say("do this")
    await rig.run_started()
    await rig.say("and that")


async def _one_after_the_other(rig: PlatformRig) -> None:
    """Let the second message wait for the first, so that its turn starts in a separate transaction."""
    await rig.say("do this")
    await rig.run_started()
    await rig.say("and that")


async def _stopped(rig: PlatformRig) -> None:
    await rig.say("write")
    await rig.run_started()
    await rig.say("/stop")


async def _edited(rig: PlatformRig) -> None:
    await rig.say("write")
    await rig.run_started()
    await rig.edit("write", "write better")


ASKS = Script(words=(QUESTION,), interrupts=(review(command="make release"),))

INJECTED = StepPoint("inject", is_after=True)
CANCEL = StepPoint("cancel")

REAL_TURNS: Mapping[str, RealTurn] = {
    "file": RealTurn(_with_a_file),
    "approval": RealTurn(_approval, ASKS),
    "steering": RealTurn(_two_messages, most_answers=2, until=INJECTED, policy=STEER),
    "second": RealTurn(_one_after_the_other, most_answers=2, is_queued=True),
    "stopped": RealTurn(_stopped, least_answers=0, until=CANCEL),
    "edited": RealTurn(_edited, until=CANCEL),
    "refused": RealTurn(_one_message, refusals=(503,)),
}
