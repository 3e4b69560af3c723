"""Runs a proof: starts servers and the service, lets people, clients and chaos act, and gives the verdict."""

import resource
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx
from anyio import to_thread

from tests.fakes.model import FakeModelServer
from tests.fakes.postgres import MISSING, postgres_server
from tests.fork_server import close_servers
from tests.journeys.service import with_model
from tests.ports import free_port
from tests.prove.balancer import LoadBalancer
from tests.prove.chaos import Chaos
from tests.prove.clients import Clients, hooks_config
from tests.prove.clock import MovableClock
from tests.prove.databases import PostgresDatabase, ProvenDatabase, SqliteDatabase
from tests.prove.feishu import FeishuPlatform
from tests.prove.model import HANG_TIMEOUT_S, ProofModel
from tests.prove.people import People
from tests.prove.plan import BURST_SHARE, Fault, Plan, make_plan
from tests.prove.platforms import SimulatedPlatform, interrupts
from tests.prove.request_verdict import judge_all
from tests.prove.service import ProvenService, SmallDisk, Timeline
from tests.prove.slack import SlackPlatform
from tests.prove.telegram import TelegramPlatform
from tests.prove.verdict import Evidence, Verdict

CHAOS_SHARE = 0.7
"""Share of the time in which people write and faults happen. In the rest, the service finishes its work."""

FORGET_S = 5.0
"""How often to drop the records of requests, seconds."""

MESSAGES_PER_S = 1.5
FULL_FEISHU_PER_S = 12.0
"""Up to this total rate, Feishu's bots get as many messages as others. An app may make 50 calls a second there."""
SECONDS_PER_FAULT = 4.0
PEOPLE = 2
DENSE_RUNS = 64
"""Number of concurrent runs if a rate is given.

The model takes two seconds on average, so 16 runs answer eight messages a second.
"""

SCARCE_RUNS = 2
"""Number of concurrent runs of each of several nodes without a given rate.

Turns sometimes wait, and go to the other node.
"""

QUIET_S = 3.0
"""How long nothing may be open before everything counts as quiet, seconds."""

MAX_SIGNS_WAIT_S = 90.0
"""How long to wait for the last reactions, seconds. Platforms ask to wait up to a minute."""

MAX_STANDSTILL_S = 300.0
"""How long nothing may happen before open work counts as stuck, seconds.

It covers the last redeliveries and retries.
"""


CRON = {
    "schedule": "* * * * *",
    "on_run_completed": "keep",
    "input": {"messages": [{"role": "user", "content": "every minute"}]},
}
"""The schedule whose due times are proven."""


class ServerMissing(Exception):
    """There is no PostgreSQL server for several nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of a proof.

    Attributes:
        rate: Messages a second that the weights of the places are for; 0 = equal weights, for few messages.
        people: Number of people who write to each bot in private.
        burst_share: Share of messages that follow the previous one of the same place within a second.
        fault_every_s: Average time between faults, seconds.
        nodes: Number of processes: one with SQLite, or several with a PostgreSQL server that is started for them.
        forks: Whether to fork the service from a process that has imported everything. Then a start takes little CPU
            time, and no kill happens during imports.
    """

    seed: int
    minutes: float
    messages: int
    rate: float = 0.0
    people: int = PEOPLE
    burst_share: float = BURST_SHARE
    fault_every_s: float = SECONDS_PER_FAULT
    nodes: int = 1
    forks: bool = False

    @property
    def command(self) -> str:
        """The command that runs the same plan again."""
        number = f"--rate {self.rate:g}" if self.rate else f"--messages {self.messages}"
        text = f"parley prove --seed {self.seed} --minutes {self.minutes:g} {number}"
        given = {
            "--people": (self.people, PEOPLE),
            "--bursts": (self.burst_share, BURST_SHARE),
            "--fault-every": (self.fault_every_s, SECONDS_PER_FAULT),
            "--nodes": (self.nodes, 1),
        }
        more = [f"{name} {value:g}" for name, (value, usual) in given.items() if value != usual]
        return " ".join([text, *more, *(["--fork"] if self.forks else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The result of a proof.

    Attributes:
        places: Name and chat of each place.
        counts: Totals by name.
        left_out: Faults that are impossible on this machine, with the reason.
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


@dataclass(frozen=True, slots=True)
class System:
    """The service that is proven.

    Attributes:
        disk: The data folder's disk; None = there are several folders.
        clock: The first node's clock.
    """

    nodes: Sequence[ProvenService]
    database: ProvenDatabase
    disk: SmallDisk | None
    clock: MovableClock


def make_platforms(people: int, rate: float = 0.0) -> list[SimulatedPlatform]:
    """Return several bots for each platform: with connections and webhooks, and with all modes for busy conversations.

    At a high rate, fewer messages go to Slack, because a workspace allows 50 reactions and 20 streams a minute. At a
    very high rate, fewer go to Feishu too, because a card takes up to ten calls.
    """
    slack = min(1.0, MESSAGES_PER_S / rate) if rate else 1.0
    feishu = min(1.0, FULL_FEISHU_PER_S / rate) if rate else 1.0
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
        FeishuPlatform("feishu", people=people, weight=feishu, card_entities=True),
        FeishuPlatform(
            "feishu-support", people=people, weight=feishu, webhook=True, session=interrupt
        ),
    ]


def service_config(
    model_url: str, platforms: Sequence[SimulatedPlatform], *, rate: float = 0.0, nodes: int = 1
) -> dict[str, Any]:
    """Return the configuration of the service."""
    runs = DENSE_RUNS if rate else SCARCE_RUNS if nodes > 1 else None
    config = with_model(model_url)
    config["models"][0] |= {"timeout": HANG_TIMEOUT_S, "max_retries": 1}
    return {
        **config,
        "title": {"enabled": False},
        "llm_retry": {"first_wait_s": 0.2},
        "circuit_breaker": {
            "failure_threshold": 0
        },  # The plan has separate failures of the model for each message.
        "channels": {
            **({"max_concurrent_runs": runs} if runs else {}),
            **{platform.channel: platform.section for platform in platforms},
        },
    }


async def run_proof(
    options: Options, folder: Path, platforms: Sequence[SimulatedPlatform] | None = None
) -> Proof:
    """Run a proof in an empty folder, on the given platforms or else on all. Raises ServerMissing."""
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
        model = ProofModel(plan.answered, steered)
        server = await stack.enter_async_context(FakeModelServer(answer=model.answer))
        config = {
            **service_config(server.base_url, platforms, rate=options.rate, nodes=options.nodes),
            "hooks": hooks_config(places),
        }
        system = await _start_system(stack, options, folder, config, timeline, port)
        chaos = Chaos(
            system.nodes,
            timeline,
            system.database,
            {one.channel: one for one in platforms},
            model,
            system.disk,
            system.clock,
        )
        people = People(plan, places)
        clients = Clients(plan.requests, places, system.nodes, people.is_heard)
        records = [server.requests.clear, *(one.forget_requests for one in platforms)]
        quiet_s = await _perform(plan, system, timeline, chaos, people, clients, records)
        journal = await to_thread.run_sync(system.database.read)
        for file in (folder / "home").glob("*.db"):
            shutil.copy(file, folder)  # The small disk is unmounted.
        evidence = Evidence(
            messages=people.sent_messages(),
            shown={name: place.user.shown() for name, place in places.items()},
            journal=journal,
            chats={name: (place.traits.channel, place.user.chat) for name, place in places.items()},
            stops=people.stops,
            interrupting=[one.channel for one in platforms if interrupts(one.section)],
            platform_violations=[
                f"{one.channel}: {text}" for one in platforms for text in one.violations
            ],
            service_failures=[failure for node in system.nodes for failure in node.failures],
        )
    if options.forks:
        await to_thread.run_sync(close_servers)  # The CPU time of forked processes is included now.
    verdict = judge_all(evidence, [*clients.made.values()])
    counts = {
        "messages sent": len(evidence.messages),
        "edits": sum(len(message.edits) for message in evidence.messages),
        "deletions": sum(message.deletion is not None for message in evidence.messages),
        "buttons pressed": people.presses,
        "requests of clients": len(clients.made),
        "due times of schedules": journal.occurrences,
        "requests to the model": model.requests,
        "kills": sum(node.kills for node in system.nodes),
        "starts": sum(node.starts for node in system.nodes),
        "replaced by other nodes": sum(node.replacements for node in system.nodes),
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
        log=system.nodes[0].service.log,
    )


async def _start_system(
    stack: AsyncExitStack,
    options: Options,
    folder: Path,
    config: Mapping[str, Any],
    timeline: Timeline,
    port: int,
) -> System:
    """Prepare the service. Its processes start later. Platforms call its webhooks at `port`."""
    if options.nodes == 1:
        disk, clock = stack.enter_context(SmallDisk(folder / "home")), MovableClock(folder)
        whole = {**config, "gateway": {"port": port}}
        fork = options.forks or None
        service = ProvenService(folder, whole, timeline, clock.environment, fork=fork)
        stack.push_async_callback(service.kill_at_exit)
        return System([service], SqliteDatabase(service.home), disk, clock)
    server = stack.enter_context(postgres_server())
    if server is None:
        raise ServerMissing(MISSING)
    url = stack.enter_context(server.database(migrated=False))
    database = PostgresDatabase(server, url)
    names = [f"node{number}" for number in range(1, options.nodes + 1)]
    clock = MovableClock(folder / names[0])
    nodes: list[ProvenService] = []
    (folder / "files").mkdir()
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        whole = {
            **config,
            "database": {"url": url},
            "storage": {"url": f"file://{folder / 'files'}"},
            "node": {"name": name},
        }
        environment = clock.environment if name == names[0] else {}
        fork = options.forks or None
        nodes.append(ProvenService(folder / name, whole, timeline, environment, name, fork=fork))
        stack.push_async_callback(nodes[-1].kill_at_exit)
    ports = [node.service.port for node in nodes]
    await stack.enter_async_context(LoadBalancer(port, ports))
    return System(nodes, database, None, clock)


def _cpu_s(who: int) -> int:
    used = resource.getrusage(who)
    return round(used.ru_utime + used.ru_stime)


async def _perform(
    plan: Plan,
    system: System,
    timeline: Timeline,
    chaos: Chaos,
    people: People,
    clients: Clients,
    records: Sequence[Callable[[], None]],
) -> float:
    """Carry out the plan, and stop the service when it is quiet. Return how long that took, seconds.

    `records` are functions that periodically drop unneeded records.
    """
    nodes, database = system.nodes, system.database
    await nodes[0].kill_while_migrating(database.is_created, plan.first_kills)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_forget_records, records)
        for node in nodes:
            tasks.start_soon(node.supervise)
        for node in nodes:
            await node.until_healthy()
        tasks.start_soon(_create_cron, nodes[0])
        started = anyio.current_time()
        tasks.start_soon(clients.run, started, plan.duration_s)
        async with anyio.create_task_group() as faults:
            for fault in plan.faults:
                faults.start_soon(_break_at, chaos, fault, started + fault.at_s)
            for action in plan.actions:
                await anyio.sleep_until(started + action.at_s)
                await people.carry_out(action)
        timeline.add("all people and faults are done")
        for node in nodes:
            await node.until_healthy()
        quiet_s = await _wait_for_quiet(database, timeline, people, clients)
        timeline.add("quiet", f"after {quiet_s:.0f} s")
        for node in nodes:
            await node.check_quiet()
        await clients.ask_states()
        tasks.cancel_scope.cancel()
    await _end(system, timeline, people, clients)
    return quiet_s


async def _create_cron(node: ProvenService) -> None:
    """Create a cron that starts a run every minute. The journal shows whether each due time has one occurrence."""
    path, body = "/api/runs/crons", {"assistant_id": "lead_agent", **CRON}
    while True:
        with suppress(httpx.HTTPError):
            async with node.service.client() as client:
                if (await client.post(path, json=body)).is_success:
                    return
        await anyio.sleep(1.0)


async def _end(system: System, timeline: Timeline, people: People, clients: Clients) -> None:
    """Stop the nodes one after another."""
    for node in system.nodes:
        await node.end()
        if node is not system.nodes[-1]:
            # The other nodes show the reactions of its last turns again, because they cannot know whether it showed
            # them.
            await _wait_for_quiet(system.database, timeline, people, clients)


async def _forget_records(records: Sequence[Callable[[], None]]) -> None:
    while True:
        await anyio.sleep(FORGET_S)
        for forget in records:
            forget()


async def _break_at(chaos: Chaos, fault: Fault, moment: float) -> None:
    await anyio.sleep_until(moment)
    await chaos.carry_out(fault)


async def _wait_for_quiet(
    database: ProvenDatabase, timeline: Timeline, people: People, clients: Clients
) -> float:
    """Wait until nothing has been open for a while, or nothing happens anymore. Return how long it took, seconds."""
    started = quiet_since = signs_since = changed_at = anyio.current_time()
    last: tuple[int, int] | None = None
    while (now := anyio.current_time()) - changed_at < MAX_STANDSTILL_S:
        open_rows = await to_thread.run_sync(database.count_open_rows)
        waiting = people.count_waiting() + clients.count_waiting()
        if (open_rows, waiting) != last:
            last, changed_at = (open_rows, waiting), now
            timeline.add("waiting", f"{open_rows} rows, {waiting} events and requests")
        if open_rows or waiting:
            quiet_since = signs_since = now
        if people.have_working_signs() and now - signs_since < MAX_SIGNS_WAIT_S:
            quiet_since = now
        if now - quiet_since >= QUIET_S:
            return quiet_since - started
        await anyio.sleep(0.3)
    return anyio.current_time() - started
