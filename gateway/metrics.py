"""What /metrics tells: a table of names, and where each number comes from."""

import os
import resource
import time
from pathlib import Path

from anyio import to_thread

from bus.platform import ConnectionState
from bus.service import Bus
from gateway.exposition import Metric, Page
from gateway.services import Services
from gateway.version import get_version
from store.runs import RunStatus

STARTED_AT = time.time()
"""When this module was imported, Unix seconds: with the rest of the service."""

INFO = Metric(name="parley_info", kind="gauge", help="Always 1; the version.", labels=("version",))
REQUESTS = Metric(
    name="parley_http_requests_total",
    kind="counter",
    help="Requests from the network; route is the path's template, or (none).",
    labels=("method", "route", "status"),
)
ANSWERING = Metric(
    name="parley_http_answer_seconds",
    kind="histogram",
    help="From a request to the head of its answer.",
)
OPEN = Metric(
    name="parley_http_open_requests",
    kind="gauge",
    help="Requests being answered, streams among them.",
)
EVENTS = Metric(
    name="parley_channel_events_total",
    kind="counter",
    help="Messages of platforms, by what became of them.",
    labels=("channel", "reason"),
)
LINKS = Metric(
    name="parley_channel_link",
    kind="gauge",
    help="1 for the state that a channel's connection is in, 0 for the others.",
    labels=("channel", "state"),
)
CONVERSATIONS = Metric(
    name="parley_busy_conversations", kind="gauge", help="Conversations with a turn at work."
)
WAITING = Metric(
    name="parley_waiting_messages", kind="gauge", help="Messages that wait behind these turns."
)
INBOX = Metric(
    name="parley_inbox_rows",
    kind="gauge",
    help="Accepted messages that are not finished: new, running.",
    labels=("state",),
)
OUTBOX = Metric(
    name="parley_outbox_rows",
    kind="gauge",
    help="Deliveries that are not delivered: pending, sending, uncertain, failed.",
    labels=("state",),
)
RUNS_NOW = Metric(
    name="parley_runs_under_way", kind="gauge", help="Runs that wait or run.", labels=("status",)
)
RUNS_ENDED = Metric(
    name="parley_runs_total", kind="counter", help="Runs that ended, by how.", labels=("status",)
)
RUN_SECONDS = Metric(
    name="parley_run_seconds",
    kind="histogram",
    help="From a run's request to its end, waiting for its thread included.",
)
MODEL_REQUESTS = Metric(
    name="parley_model_requests_total",
    kind="counter",
    help="Requests to models by conversations; outcome is ok, or why they failed.",
    labels=("model", "outcome"),
)
MODEL_RETRIES = Metric(
    name="parley_model_retries_total",
    kind="counter",
    help="Requests made again after a failure.",
    labels=("model",),
)
MODEL_SHUT = Metric(
    name="parley_model_left_alone",
    kind="gauge",
    help="1 while a model is left alone because it failed again and again.",
    labels=("model",),
)
MCP = Metric(
    name="parley_mcp_server",
    kind="gauge",
    help="1 for each MCP server, with the state it is in.",
    labels=("server", "state"),
)
LAG = Metric(
    name="parley_loop_lag_seconds", kind="histogram", help="How late the event loop came to a beat."
)
STUCK = Metric(
    name="parley_loop_stuck_total",
    kind="counter",
    help="How often the event loop stood still for longer than gateway.watchdog_s.",
)
CPU = Metric(name="process_cpu_seconds_total", kind="counter", help="User and system time.")
MEMORY = Metric(name="process_resident_memory_bytes", kind="gauge", help="Resident memory.")
FILES = Metric(name="process_open_fds", kind="gauge", help="Open files and connections.")
START = Metric(
    name="process_start_time_seconds", kind="gauge", help="When Parley started, Unix seconds."
)

METRICS: tuple[Metric, ...] = tuple(
    value for value in tuple(globals().values()) if isinstance(value, Metric)
)
"""All of them, in the order in which they are shown."""

INBOX_STATES = ("new", "running")
OUTBOX_STATES = ("pending", "sending", "uncertain", "failed")
RUN_ENDS: tuple[RunStatus, ...] = ("success", "error", "timeout", "interrupted")
RUN_STATES: tuple[RunStatus, ...] = ("pending", "running")


async def render_metrics(services: Services) -> str:
    """Return the page.

    Raises:
        StoreError: the journal cannot be read.
    """
    page = Page()
    page.add(INFO, 1, await to_thread.run_sync(get_version))
    _http(page, services)
    if services.bus is not None:
        await _channels(page, services.bus)
    _runs(page, services)
    _models(page, services)
    for server in await services.systems.mcp.statuses():
        page.add(MCP, 1, server.name, server.state)
    page.add_durations(LAG, services.watchdog.lag)
    page.add(STUCK, services.watchdog.stuck)
    cpu, memory, files = await to_thread.run_sync(_process)
    page.add(CPU, cpu)
    page.add(MEMORY, memory)
    page.add(FILES, files)
    page.add(START, STARTED_AT)
    return page.text()


def _http(page: Page, services: Services) -> None:
    for key, count in sorted(services.traffic.requests.items()):
        page.add(REQUESTS, count, *key)
    page.add_durations(ANSWERING, services.traffic.answering)
    page.add(OPEN, services.traffic.open)


async def _channels(page: Page, bus: Bus) -> None:
    for (channel, reason), count in sorted(bus.counters().items()):
        page.add(EVENTS, count, channel, reason)
    for channel, health in sorted(bus.health().items()):
        for link in ConnectionState:
            page.add(LINKS, health.state is link, channel, link)
    busy, waiting = bus.load()
    page.add(CONVERSATIONS, busy)
    page.add(WAITING, waiting)
    accepted, owed = await bus.inbox.count_by_state(), await bus.outbox.count_by_state()
    for state in INBOX_STATES:
        page.add(INBOX, accepted.get(state, 0), state)
    for state in OUTBOX_STATES:
        page.add(OUTBOX, owed.get(state, 0), state)


def _runs(page: Page, services: Services) -> None:
    now, tally = services.runs.count_by_status(), services.runs.counters
    for state in RUN_STATES:
        page.add(RUNS_NOW, now.get(state, 0), state)
    for status in RUN_ENDS:
        page.add(RUNS_ENDED, tally.finished_by_status.get(status, 0), status)
    page.add_durations(RUN_SECONDS, tally.durations)


def _models(page: Page, services: Services) -> None:
    breakers = services.systems.circuit_breakers
    for (model, outcome), count in sorted(breakers.requests.items()):
        page.add(MODEL_REQUESTS, count, model, outcome)
    for model, count in sorted(breakers.retries.items()):
        page.add(MODEL_RETRIES, count, model)
    for entry in services.systems.config.get().chat_models:
        page.add(MODEL_SHUT, breakers.is_open(entry.name), entry.name)


def _process() -> tuple[float, int, int]:
    """Return CPU seconds, resident bytes and open files of this process; 0 where the system does not tell."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        files = len(list(Path("/proc/self/fd").iterdir()))
    except OSError:
        pages = files = 0
    return usage.ru_utime + usage.ru_stime, pages * os.sysconf("SC_PAGE_SIZE"), files
