"""A proof from start to end: servers, service, people and chaos, then quiet, then the verdict."""

import resource
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from tests.fakes.model import FakeModelServer
from tests.journeys.service import free_port, with_model
from tests.prove.chaos import Chaos
from tests.prove.clock import MovableClock
from tests.prove.feishu import FeishuPlatform
from tests.prove.journal import count_open_rows, read_journal
from tests.prove.model import HANG_TIMEOUT_S, ProofModel
from tests.prove.people import People
from tests.prove.plan import BURST_SHARE, Fault, Plan, make_plan
from tests.prove.platforms import SimulatedPlatform, interrupts
from tests.prove.service import ProvenService, SmallDisk, Timeline
from tests.prove.slack import SlackPlatform
from tests.prove.telegram import TelegramPlatform
from tests.prove.verdict import Evidence, Verdict, judge

CHAOS_SHARE = 0.7
"""Share of the time in which people write and things break; the rest is for what waits."""

FORGET_S = 5.0
"""How often the records of requests are dropped."""

MESSAGES_PER_S = 1.5
SECONDS_PER_FAULT = 4.0
PEOPLE = 2
DENSE_RUNS = 64
"""Runs at once where a rate is named: the model takes two seconds on average, so 16 answer eight messages a second."""

QUIET_S = 3.0
"""How long nothing may be open before everything counts as quiet."""

MAX_SIGNS_WAIT_S = 90.0
"""How long the last reactions are waited for: platforms ask to wait up to a minute."""

MAX_STANDSTILL_S = 300.0
"""How long nothing may be done before what is open counts as stuck: the last repetitions and retries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How large a proof is.

    Attributes:
        rate: Messages a second for which the weights of the places are made; 0 = all as few messages allow.
        people: How many people write in private to each bot.
        burst_share: Share of messages that follow the previous one of the same place within a second.
        fault_every_s: A fault comes so often, on average.
    """

    seed: int
    minutes: float
    messages: int
    rate: float = 0.0
    people: int = PEOPLE
    burst_share: float = BURST_SHARE
    fault_every_s: float = SECONDS_PER_FAULT

    @property
    def command(self) -> str:
        """The command that runs the same plan again."""
        number = f"--rate {self.rate:g}" if self.rate else f"--messages {self.messages}"
        text = f"parley prove --seed {self.seed} --minutes {self.minutes:g} {number}"
        given = {
            "--people": (self.people, PEOPLE),
            "--bursts": (self.burst_share, BURST_SHARE),
            "--fault-every": (self.fault_every_s, SECONDS_PER_FAULT),
        }
        more = [f"{name} {value:g}" for name, (value, usual) in given.items() if value != usual]
        return " ".join([text, *more])


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a proof found.

    Attributes:
        places: Name and chat of each place.
        counts: Totals, by name.
        left_out: Faults that this machine cannot do, with the reason.
    """

    options: Options
    plan: Plan
    verdict: Verdict
    timeline: Timeline
    counts: Mapping[str, int]
    left_out: Mapping[str, str]
    seconds: float
    quiet_s: float
    log: Path
    notes: Sequence[str] = field(default=())


def make_platforms(people: int, rate: float = 0.0) -> list[SimulatedPlatform]:
    """Return several bots of each platform: with connections and webhooks, in all modes of a busy conversation.

    At a high rate, fewer of the messages go to Slack: a workspace allows 50 reactions and 20 streams a minute.
    """
    slack = min(1.0, MESSAGES_PER_S / rate) if rate else 1.0
    steer, interrupt = {"busy": "steer"}, {"busy": "interrupt"}
    return [
        TelegramPlatform("telegram", people=people, token="700700:fake-token"),
        TelegramPlatform(
            "telegram-support", people=people, token="900900:support", streaming=True, session=steer
        ),
        TelegramPlatform(
            "telegram-news", people=people, token="800800:news", webhook=True, session=interrupt
        ),
        SlackPlatform("slack", people=people, weight=slack),
        SlackPlatform(
            "slack-support",
            people=people,
            weight=slack,
            webhook=True,
            streaming=True,
            session=steer,
        ),
        FeishuPlatform("feishu", people=people, card_entities=True),
        FeishuPlatform("feishu-support", people=people, webhook=True, session=interrupt),
    ]


def service_config(
    model_url: str, platforms: Sequence[SimulatedPlatform], *, rate: float = 0.0
) -> dict[str, Any]:
    """Return the configuration of the service."""
    config = with_model(model_url)
    config["models"][0] |= {"timeout": HANG_TIMEOUT_S, "max_retries": 1}
    return {
        **config,
        "title": {"enabled": False},
        "llm_retry": {"first_wait_s": 0.2},
        "circuit_breaker": {
            "failure_threshold": 0
        },  # the plan breaks each message's model by itself
        "channels": {
            **({"max_concurrent_runs": DENSE_RUNS} if rate else {}),
            **{platform.channel: platform.section for platform in platforms},
        },
    }


async def run_proof(
    options: Options, folder: Path, platforms: Sequence[SimulatedPlatform] | None = None
) -> Proof:
    """Run a proof in an empty folder, on all platforms unless some are named."""
    duration_s = options.minutes * 60 * CHAOS_SHARE
    timeline = Timeline()
    async with AsyncExitStack() as stack:
        platforms = make_platforms(options.people, options.rate) if platforms is None else platforms
        port = free_port()
        for platform in platforms:
            await stack.enter_async_context(platform)
            if platform.calls_webhook:
                platform.call_at(f"http://127.0.0.1:{port}")
        places = {place.name: place for platform in platforms for place in platform.places}
        plan = make_plan(
            options.seed,
            duration_s=duration_s,
            messages=options.messages,
            places=[place.traits for place in places.values()],
            faults=int(duration_s / options.fault_every_s),
            burst_share=options.burst_share,
        )
        steered = [name for name, place in places.items() if place.traits.steers]
        model = ProofModel(plan.messages, steered)
        server = await stack.enter_async_context(FakeModelServer(answer=model.answer))
        disk = stack.enter_context(SmallDisk(folder / "home"))
        clock = MovableClock(folder)
        config = service_config(server.base_url, platforms, rate=options.rate) | {
            "gateway": {"port": port}
        }
        service = ProvenService(folder, config, timeline, clock.environment)
        stack.push_async_callback(service.kill_at_exit)
        chaos = Chaos(service, {one.channel: one for one in platforms}, model, disk, clock)
        people = People(plan, places)
        records = [server.requests.clear, *(one.forget_requests for one in platforms)]
        quiet_s = await _perform(plan, service, chaos, people, records)
        journal = await to_thread.run_sync(read_journal, service.home)
        for file in service.home.glob("*.db"):
            shutil.copy(file, folder)  # the small disk goes away
        evidence = Evidence(
            messages=people.sent_messages(),
            shown={name: place.shown() for name, place in places.items()},
            journal=journal,
            chats={name: (place.traits.channel, place.chat) for name, place in places.items()},
            stops=people.stops,
            interrupting=[one.channel for one in platforms if interrupts(one.section)],
            platform_violations=[
                f"{one.channel}: {text}" for one in platforms for text in one.violations
            ],
            service_failures=service.failures,
        )
    verdict = judge(evidence)
    counts = {
        "messages sent": len(evidence.messages),
        "edits": sum(len(message.edits) for message in evidence.messages),
        "deletions": sum(message.deletion is not None for message in evidence.messages),
        "buttons pressed": people.presses,
        "requests to the model": model.requests,
        "kills": service.kills,
        "starts": service.starts,
        "seconds of CPU of the service": _cpu_s(resource.RUSAGE_CHILDREN),
        "seconds of CPU of the harness": _cpu_s(resource.RUSAGE_SELF),
        **{f"fault: {kind}": count for kind, count in sorted(chaos.counts.items())},
    }
    return Proof(
        options=options,
        plan=plan,
        verdict=verdict,
        timeline=timeline,
        counts=counts,
        left_out=chaos.left_out,
        seconds=time.time() - timeline.started_at,
        quiet_s=quiet_s,
        log=service.service.log,
    )


def _cpu_s(who: int) -> int:
    used = resource.getrusage(who)
    return round(used.ru_utime + used.ru_stime)


async def _perform(
    plan: Plan,
    service: ProvenService,
    chaos: Chaos,
    people: People,
    records: Sequence[Callable[[], None]],
) -> float:
    """Let everything happen, and stop the service when it is quiet; return how long that took, seconds.

    `records` drop what nobody reads, from time to time.
    """
    await service.kill_while_migrating(plan.first_kills)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_forget_records, records)
        tasks.start_soon(service.supervise)
        await service.until_healthy()
        started = anyio.current_time()
        async with anyio.create_task_group() as faults:
            for fault in plan.faults:
                faults.start_soon(_break_at, chaos, fault, started + fault.at_s)
            for action in plan.actions:
                await anyio.sleep_until(started + action.at_s)
                await people.carry_out(action)
        service.timeline.add("all people and faults are done")
        await service.until_healthy()
        quiet_s = await _wait_for_quiet(service, people)
        service.timeline.add("quiet", f"after {quiet_s:.0f} s")
        await service.check_quiet()
        tasks.cancel_scope.cancel()
    await service.end()
    return quiet_s


async def _forget_records(records: Sequence[Callable[[], None]]) -> None:
    while True:
        await anyio.sleep(FORGET_S)
        for forget in records:
            forget()


async def _break_at(chaos: Chaos, fault: Fault, moment: float) -> None:
    await anyio.sleep_until(moment)
    await chaos.carry_out(fault)


async def _wait_for_quiet(service: ProvenService, people: People) -> float:
    """Wait until nothing is open for a while, or nothing is done any more; return how long that took, seconds."""
    started = quiet_since = signs_since = changed_at = anyio.current_time()
    last: tuple[int, int] | None = None
    while (now := anyio.current_time()) - changed_at < MAX_STANDSTILL_S:
        open_rows = await to_thread.run_sync(count_open_rows, service.home)
        waiting = people.count_waiting()
        if (open_rows, waiting) != last:
            last, changed_at = (open_rows, waiting), now
            service.timeline.add("waiting", f"{open_rows} rows, {waiting} events")
        if open_rows or waiting:
            quiet_since = signs_since = now
        if people.have_working_signs() and now - signs_since < MAX_SIGNS_WAIT_S:
            quiet_since = now
        if now - quiet_since >= QUIET_S:
            return quiet_since - started
        await anyio.sleep(0.3)
    return anyio.current_time() - started
