"""A soak test from start to end: people write at a steady rate, faults happen, and the service is sampled."""

import random
import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx

from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.lab.soak.samples import Sample, take_sample
from tests.ports import free_port
from tests.prove.chaos import Chaos
from tests.prove.clock import MovableClock
from tests.prove.databases import SqliteDatabase
from tests.prove.plan import ONE_PLATFORM, Fault, FaultKind
from tests.prove.platforms import Place, SimulatedPlatform
from tests.prove.run import FORGET_S, make_platforms, service_config
from tests.prove.service import ProvenService, SmallDisk, Timeline

MESSAGES_A_THREAD = 12
"""After this many messages in a chat, a person sends /new there."""

FAULTS = (*sorted(ONE_PLATFORM), FaultKind.MODEL_OFFLINE, FaultKind.DATABASE_LOCKED)
"""The process is not killed, because its resources are sampled."""

GROUP_WEIGHT = 0.2
"""A group's share of messages, relative to a person's, because Telegram accepts 20 messages per minute in a group."""

TOOL_EVERY, FAILURE_EVERY = 10, 50
"""After this many requests, the model calls a tool or fails once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakOptions:
    """The length of the test, the rate of messages, and the rate of faults."""

    seed: int
    minutes: float
    turns_per_s: float
    people: int = 15
    fault_every_s: float = 20.0
    sample_every_s: float = 60.0


class SoakModel:
    """Answers at once. Sometimes it calls a tool or fails."""

    def __init__(self) -> None:
        self.requests = 0
        self.is_offline = False

    def answer(self, request: ModelRequest) -> ModelReply:
        """Return the reply to a request."""
        self.requests += 1
        if self.is_offline:
            return ModelReply(drop_after=0)
        if self.requests % FAILURE_EVERY == 0:
            return ModelReply(status=500)
        if self.requests % TOOL_EVERY == 0 and request.messages[-1]["role"] != "tool":
            path = {"path": "/mnt/user-data/workspace"}
            return ModelReply(calls=(ToolCall("ls", path, id=f"ls-{self.requests}"),))
        return ModelReply(text=f"You said {request.last_user_text[-60:]!r}, which is noted.")


async def run_soak(
    options: SoakOptions, folder: Path, on_sample: Callable[[Sample], None]
) -> list[Sample]:
    """Run a soak test in an empty folder. Call `on_sample` with each sample, and return all samples."""
    random_ = random.Random(options.seed)  # noqa: S311 - repeatable, not secret
    timeline, model, port = Timeline(), SoakModel(), free_port()
    async with AsyncExitStack() as stack:
        platforms = make_platforms(options.people, options.turns_per_s)
        for platform in platforms:
            await stack.enter_async_context(platform)
            if platform.calls_webhook:
                platform.call_at(f"http://127.0.0.1:{port}")
        server = await stack.enter_async_context(FakeModelServer(answer=model.answer))
        config = service_config(server.base_url, platforms, rate=options.turns_per_s)
        config["gateway"] = {"port": port}
        (folder / "tmp").mkdir(parents=True)
        environment = {"TMPDIR": str(folder / "tmp")}
        service = ProvenService(folder, config, timeline, environment)
        stack.push_async_callback(service.kill_at_exit)
        channels = {platform.channel: platform for platform in platforms}
        disk, clock = SmallDisk(service.home), MovableClock(None)
        database = SqliteDatabase(service.home)
        chaos = Chaos([service], timeline, database, channels, model, disk, clock)
        await service.service.start()
        places = [place for one in platforms for place in one.places if not place.traits.stranger]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_write, places, options.turns_per_s, random_)
            tasks.start_soon(_break, chaos, sorted(channels), options.fault_every_s, random_)
            tasks.start_soon(_forget_requests, server, platforms)
            samples = await _sample(service, options, on_sample)
            tasks.cancel_scope.cancel()
    return samples


async def _write(places: Sequence[Place], turns_per_s: float, random_: random.Random) -> None:
    """Send messages to random chats at a steady average rate. Start a new thread now and then."""
    weights = [
        place.traits.weight * (1.0 if place.traits.private else GROUP_WEIGHT) for place in places
    ]
    said = dict.fromkeys((place.name for place in places), 0)
    number = 0
    while True:
        await anyio.sleep(random_.expovariate(turns_per_s))
        [place] = random_.choices(places, weights)
        number, said[place.name] = number + 1, said[place.name] + 1
        is_last = said[place.name] % MESSAGES_A_THREAD == 0
        await place.user.enter("/new" if is_last else f"Message {number}: how are things?")


async def _break(
    chaos: Chaos, channels: Sequence[str], every_s: float, random_: random.Random
) -> None:
    while True:
        await anyio.sleep(random_.expovariate(1 / every_s))
        kind = random_.choice(FAULTS)
        fault = Fault(
            at_s=0.0,
            kind=kind,
            seconds=random_.uniform(0.2, 6.0),
            times=random_.randint(1, 4),
            channel=random_.choice(channels) if kind in ONE_PLATFORM else "",
            pick=random_.random(),
        )
        await chaos.carry_out(fault)


async def _forget_requests(server: FakeModelServer, platforms: Sequence[SimulatedPlatform]) -> None:
    while True:
        await anyio.sleep(FORGET_S)
        server.requests.clear()
        for platform in platforms:
            platform.forget_requests()


async def _sample(
    service: ProvenService, options: SoakOptions, on_sample: Callable[[Sample], None]
) -> list[Sample]:
    """Take samples until the time is over. Raises OSError or httpx.ConnectError if the process ended."""
    samples: list[Sample] = []
    started = anyio.current_time()
    async with service.service.client() as client:
        while (now := anyio.current_time()) - started < options.minutes * 60:
            with suppress(httpx.TimeoutException):  # the machine is busy: one sample fewer
                samples.append(await _sample_now(service, client, at_s=now - started))
                on_sample(samples[-1])
            await anyio.sleep_until(now + options.sample_every_s)
    return samples


async def _sample_now(service: ProvenService, client: httpx.AsyncClient, *, at_s: float) -> Sample:
    metrics = (await client.get("/metrics")).raise_for_status().text
    turns = sum(
        float(value) for value in re.findall(r"^parley_runs_total{.*} (\S+)$", metrics, re.M)
    )
    process = service.service
    return take_sample(
        process.pid, process.home, process.log, metrics, at_s=at_s, turns=round(turns)
    )
