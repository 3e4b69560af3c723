"""Replays every recorded exchange with LangGraph Server. This file lists the intended differences.

docs/reference/langgraph-api.md describes them.
"""

import re
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import orjson
from anyio.abc import TaskGroup

from tests.fakes.recorded import RecordedGraphs
from tests.gateway.langgraph_server import ApiServer, serving
from tests.gateway.recording import Exchange, differences, recorded, shape_of

BESIDE = {90, 91, 100, 102, 103, 107, 108, 111, 115, 119, 151, 154}
"""Exchanges that stayed open during the next ones."""

MEANWHILE = {101, 104, 108, 112, 116, 120, 152, 155, 156}
"""Exchanges that began while the previous one was open."""

ON_THE_WAY = {103, 107, 111, 115, 119}
"""Exchanges whose runs had sent their first state before the next exchange began."""

AT_ONCE = {149, 150}
"""Exchanges with long naps, which the test cuts short."""

RACING = {100, 151}
"""In these exchanges, a race decides whether the first state comes before the event that ends the stream."""

COMPLETED = '"event":"completed"'

PLATFORM = re.compile(
    r"^-.*\b(langgraph_\w+|ls_\w+|lc_versions|run_attempt|created_by|user_id|assistant_id|langsmith_\w+"
    r"|host_revision_id|project_id|revision_id|tenant_id|__\w+__)\b"
)
"""Fields that LangSmith's platform puts into metadata, configs and /info. Parley has only those that clients read."""

EVERYWHERE = {
    "+metadata.thread_id",  # of a stream's first event
    "+config.configurable",  # of a thread, always empty
    "+error",  # of a thread that never failed
    "+interrupts",  # of a thread that never asked
    "-kwargs.config.configurable",  # a run shows the requested config, not the resolved one
    "-[].kwargs.config.configurable",
    "-kwargs.config.metadata",
    "-[].kwargs.config.metadata",
    "-values.messages",  # a thread's values omit lists that were never written
}


_ALL = {
    "-debug.payload.config.configurable.graph_id",
    "-debug.payload.parent_config.configurable.graph_id",
}
_CHECKPOINTS = {
    "-checkpoints.config.configurable.graph_id",
    "-checkpoints.parent_config.configurable.graph_id",
}
_FROM_THE_START = {"+metadata", "!order messages values | metadata values messages values"}

DECIDED: dict[int, set[str]] = {
    1: {"-services"},  # the services behind this server are not listed
    4: {"!status 422 | 200"},  # assistants are found by name
    6: {  # the graph's types, not the server's
        "+state_schema.properties.answer.type",
        "-state_schema.properties.fail_after.anyOf",
        "+state_schema.properties.fail_after.type",
    },
    18: {"-messages[].title"},  # tokens do not carry the thread's metadata
    26: _ALL,  # a run's options are not in the configs of its checkpoints
    28: _CHECKPOINTS,
    33: _ALL | _CHECKPOINTS,
    46: {"!status 400 | 200"},  # both maps are accepted unless they contradict each other
    50: {"-metadata.thread_id"},  # the checkpoint names its thread
    55: {"-metadata.thread_id"},
    59: {"-[].metadata.thread_id"},
    60: {"-[].metadata.thread_id"},
    76: {  # without Last-Event-ID, sends everything instead of nothing
        "+custom",
        "+metadata",
        "+updates",
        "+values",
        "!order  | metadata values custom updates values updates values",
    },
    79: {"!status 200 | 404"},  # an unknown run
    80: {"!status 200 | 404"},
    82: _FROM_THE_START,  # their ID is unknown here, so everything is sent
    83: {"+metadata", "!order values | metadata values"},  # control events pass the filter
    85: _FROM_THE_START,
    128: {"-metadata.graph_id", "-metadata.thread_id"},
    132: {"+values"},  # a copy shows its values
    134: {"+[].metadata.graph_id"},
    144: {"+payload.stream_resumable", "+payload.stream_subgraphs"},  # all options of the run
    145: {"+[].payload.stream_resumable", "+[].payload.stream_subgraphs"},
    146: {"!status 204 | 404"},  # an ID that is not ours
    151: {  # all requested events are sent; messages of the state stay as the graph has them
        "+checkpoints",
        "+tasks",
        "+updates",
        "+values.params.data.messages[].additional_kwargs",
        "+values.params.data.messages[].invalid_tool_calls",
        "+values.params.data.messages[].name",
        "+values.params.data.messages[].tool_calls",
        "+values.params.data.messages[].usage_metadata",
        "!values.params.data.messages[].content list | str",
        "-values.params.data.messages[].response_metadata.output_version",
    },
    154: {  # a question's value also has the SDK's name; values are not repeated after it
        "+input.requested.params.data.value",
        "!order lifecycle values input.requested lifecycle values lifecycle values lifecycle"
        " | lifecycle values input.requested lifecycle values lifecycle",
    },
    160: {"!status 200 | 404"},  # these two routes are at the root, not below /api
    161: {"!status 200 | 404"},
}


class Replay:
    """Sends the recorded requests to this server in the same order, with the ids that objects have here."""

    def __init__(self, api: ApiServer, graphs: RecordedGraphs, tasks: TaskGroup) -> None:
        self._api = api
        self._graphs = graphs
        self._tasks = tasks
        self._ids: dict[str, str] = {}
        self._threads: set[str] = set()
        self._going_on: list[anyio.Event] = []
        self.found: dict[int, list[str]] = {}

    async def ask(self, one: Exchange) -> None:
        """Replay one exchange, and record the differences."""
        if one.number not in MEANWHILE:
            await self.finish()
        await self._prepare(one)
        if one.number in AT_ONCE:
            self._graphs.release.set()
        if one.number in BESIDE:
            begun, ended = anyio.Event(), anyio.Event()
            self._going_on.append(ended)
            self._tasks.start_soon(self._beside, one, begun, ended)
            await self._goes_on(one, begun)
        else:
            await self._exchange(one, anyio.Event())

    async def finish(self) -> None:
        """Wait for open requests."""
        self._graphs.release.set()
        for ended in self._going_on:
            await ended.wait()
        self._going_on.clear()
        for live in self._api.runs.active:
            await live.finished.wait()
        self._graphs.release = anyio.Event()

    async def _goes_on(self, one: Exchange, begun: anyio.Event) -> None:
        """Wait until an exchange has begun, and repeat actions that were not recorded."""
        if one.number in {90, 91}:
            await begun.wait()
            given = {"messages": [{"role": "user", "content": "hi"}], "tokens": 2}
            await self._api.sdk.runs.create(one.thread, "agent", input=given)
        elif one.number == 102:
            while not (active := self._api.runs.active):
                await anyio.lowlevel.checkpoint()
            await self._api.sdk.runs.cancel(one.thread, active[0].run_id)
        elif one.number not in {151, 154}:
            await begun.wait()

    async def _beside(self, one: Exchange, begun: anyio.Event, ended: anyio.Event) -> None:
        try:
            await self._exchange(one, begun)
        finally:
            begun.set()
            ended.set()

    async def _prepare(self, one: Exchange) -> None:
        thread = one.thread
        if thread and thread not in self._threads and one.status != 404 and len(thread) == 36:
            self._threads.add(thread)
            if one.number != 40:
                await self._api.sdk.threads.create(thread_id=thread, if_exists="do_nothing")
        if one.number in {92, 96, 97, 123}:
            # The recording does not contain the start of the run that is canceled or in the way.
            run = await self._api.sdk.runs.create(thread, "slow", input={"sleep": 5})
            self._ids[one.run or ""] = run["run_id"]

    async def _exchange(self, one: Exchange, begun: anyio.Event) -> None:
        path = one.path
        if one.run:
            path = path.replace(one.run, self._ids.get(one.run, one.run))
        body: Any = orjson.loads(one.body) if one.body else None
        if one.name == "v2-hitl-input.respond":
            body["params"]["interrupt_id"] = await self._question(one)
        content = b"{" if one.name == "wait-bad-json" else (one.body and orjson.dumps(body))
        async with self._api.http.stream(
            one.method, path, content=content or None, headers=one.headers
        ) as answer:
            text = await self._read(one, answer, begun)
        self.found[one.number] = list(self._compared(one, answer, text))

    async def _question(self, one: Exchange) -> str:
        while not (found := (await self._api.sdk.threads.get(one.thread))["interrupts"]):
            await anyio.lowlevel.checkpoint()
        [[asked]] = found.values()
        return str(asked["id"])

    async def _read(self, one: Exchange, answer: httpx.Response, begun: anyio.Event) -> str:
        """Read an answer. If the recorded client closed the stream early, read as many events as it got."""
        place = answer.headers.get("content-location", "").rpartition("/")[2]
        if one.made and place:
            self._ids[one.made] = place
        text, wanted = "", one.text.count("event: ")
        if one.number not in ON_THE_WAY:
            begun.set()
        async for piece in answer.aiter_text():
            text += piece
            if "event: values" in text:
                begun.set()
            # Read a thread's stream to the end of its run, because it may have more events here.
            told = COMPLETED in text if COMPLETED in one.text else text.count("event: ") >= wanted
            if one.is_cut and told:
                break
        if one.is_cut and COMPLETED not in one.text:
            # Drop further events in the same chunk. The recorded client did not wait for them.
            text = "\n\n".join(text.split("\n\n")[:wanted])
        return text

    def _compared(self, one: Exchange, answer: httpx.Response, text: str) -> list[str]:
        if answer.status_code != one.status:
            return [f"!status {one.status} | {answer.status_code}"]
        is_stream = "event-stream" in answer.headers.get("content-type", "")
        if is_stream != one.is_stream:
            return ["!stream"]
        theirs = shape_of(one.text, is_stream=is_stream)
        ours = shape_of(text, is_stream=is_stream)
        if is_stream and not one.is_cut:
            # Parley's streams send an end event.
            assert ours["order"].pop() == "end"
            assert ours.pop("end").keys() >= {"run_id", "status"}
        lines = differences(theirs, ours)
        told = [line for line in lines if line not in EVERYWHERE and not PLATFORM.match(line)]
        if one.number in RACING:
            told = [line for line in told if line != "+values" and not line.startswith("!order")]
        return told


async def test_only_the_listed_differences_exist(tmp_path: Path) -> None:
    graphs = RecordedGraphs()
    async with serving(tmp_path, sources=graphs.sources) as api, anyio.create_task_group() as tasks:
        replay = Replay(api, graphs, tasks)
        for one in recorded():
            with anyio.fail_after(20):
                await replay.ask(one)
        await replay.finish()
        tasks.cancel_scope.cancel()
    assert len(replay.found) == len(recorded()) > 150
    assert {number: set(lines) for number, lines in replay.found.items() if lines} == DECIDED
