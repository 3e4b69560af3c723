"""The newer streaming protocol over a WebSocket, and its commands that read a thread."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel
import orjson
import pytest
from langchain_protocol import (
    AgentResult,
    Checkpoint,
    CommandResponse,
    ErrorResponse,
    InputRequestedData,
    LifecycleData,
    ListCheckpointsResult,
    MessagesData,
    ReconnectResult,
    RunResult,
    StateForkResult,
    StateGetResult,
    SubscribeResult,
)
from pydantic import TypeAdapter
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from gateway.app import network_app
from gateway.auth import MAX_BODY_BYTES
from gateway.compose import open_app
from gateway.config import load_config
from gateway.langgraph.protocol_websocket import MAX_SUBSCRIPTIONS
from gateway.runtime.events import RunEvent
from gateway.runtime.graph_tree import GraphTree
from gateway.runtime.protocol import MAX_EVENTS, RESUME_GAP, ProtocolEncoder, ThreadEventLog
from gateway.runtime.serialization import dumps
from gateway.serving.listener import open_listener
from gateway.serving.server import HttpServer
from tests.eventually import eventually
from tests.gateway.composed import TOKEN
from tests.gateway.langgraph_server import ApiServer, serving
from tests.gateway.test_langgraph_protocol import EVERYTHING, command
from tests.gateway.test_langgraph_runs import HELLO
from tests.gateway.test_runtime_runs import ended_run
from tests.ports import free_port

Json = dict[str, Any]


class WebSocketClient:
    """A client's connection, with responses by command number and events in order."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[Json] = []
        self._number = 0

    async def ask(self, method: str, **params: Any) -> Json:  # noqa: ANN401 - JSON
        self._number += 1
        body = {"id": self._number, "method": method, "params": params}
        await self.socket.send(orjson.dumps(body).decode())
        while True:
            told = await self.next()
            if told["type"] != "event" and told["id"] == self._number:
                return told
            self.events.append(told)

    async def next(self) -> Json:
        with anyio.fail_after(20):
            return dict(orjson.loads(await self.socket.recv()))

    async def until(self, status: str) -> list[Json]:
        """Return all events up to one that reports the status of the whole run."""
        while not any(
            event["method"] == "lifecycle"
            and not event["params"]["namespace"]
            and event["params"]["data"]["event"] == status
            for event in self.events
        ):
            self.events.append(await self.next())
        return self.events


@asynccontextmanager
async def connected(api: ApiServer, thread: str) -> AsyncIterator[WebSocketClient]:
    url = f"{api.url.replace('http', 'ws', 1)}/threads/{thread}/stream/events"
    async with connect(url) as socket:
        yield WebSocketClient(socket)


async def test_commands_and_events_share_a_socket(tmp_path: Path) -> None:
    async with serving(tmp_path, way="tcp") as api:
        thread = str(uuid4())
        async with connected(api, thread) as client:
            subscribed = await client.ask("subscription.subscribe", channels=EVERYTHING)
            assert subscribed["type"] == "success"
            assert subscribed["result"]["replayed_events"] == 0
            begun = await client.ask("run.start", assistant_id="agent", input=HELLO)
            events = await client.until("completed")
            assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
            said = [event["params"]["data"] for event in events if event["method"] == "messages"]
            assert "".join(d["delta"]["text"] for d in said if "delta" in d) == "tok0 tok1 tok2 "
            assert all(begun["result"]["run_id"] in event["event_id"] for event in events)


@pytest.mark.parametrize("method", [[], {}, None, 1.5, True])
async def test_a_command_whose_method_is_no_word_is_an_error_and_not_the_end(
    tmp_path: Path, method: object
) -> None:
    async with serving(tmp_path, way="tcp") as api, connected(api, str(uuid4())) as client:
        await client.socket.send(orjson.dumps({"id": 1, "method": method, "params": {}}).decode())
        reply = await client.next()
        assert (reply["type"], reply["error"]) == ("error", "invalid_argument")
        assert (await client.ask("subscription.subscribe", channels=["values"]))[
            "type"
        ] == "success"


async def test_a_late_subscription_gets_what_was_before(tmp_path: Path) -> None:
    async with serving(tmp_path, way="tcp") as api:
        thread = str(uuid4())
        async with connected(api, thread) as client:
            await client.ask("subscription.subscribe", channels=["lifecycle"])
            await client.ask("run.start", assistant_id="agent", input=HELLO)
            first = list(await client.until("completed"))
            assert {event["method"] for event in first} == {"lifecycle"}
            late = await client.ask("subscription.subscribe", channels=["values"])
            replayed = [await client.next() for _ in range(late["result"]["replayed_events"])]
            assert {event["method"] for event in replayed} == {"values"}
            seqs = [event["seq"] for event in replayed]
            assert seqs == sorted(seqs)
            since = await client.ask("subscription.subscribe", channels=["values"], since=seqs[0])
            assert since["result"]["replayed_events"] == len(replayed) - 1
            for _ in seqs[1:]:
                await client.next()
            # An event is sent once, however many subscriptions match it.
            client.events.clear()
            await client.ask("run.start", assistant_id="instant", input={"n": 1})
            both = await client.until("completed")
            assert len({event["event_id"] for event in both}) == len(both)


async def test_an_ended_subscription_is_sent_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, way="tcp") as api, connected(api, str(uuid4())) as client:
        values = await client.ask("subscription.subscribe", channels=["values"])
        await client.ask("subscription.subscribe", channels=["lifecycle"])
        ident = values["result"]["subscription_id"]
        assert (await client.ask("subscription.unsubscribe", subscription_id=ident))["result"] == {}
        again = await client.ask("subscription.unsubscribe", subscription_id=ident)
        assert again["error"] == "no_such_subscription"
        await client.ask("run.start", assistant_id="agent", input=HELLO)
        assert {event["method"] for event in await client.until("completed")} == {"lifecycle"}


async def test_events_after_a_position_are_sent_again(tmp_path: Path) -> None:
    async with serving(tmp_path, way="tcp") as api:
        thread = str(uuid4())
        async with connected(api, thread) as client:
            name = (await client.ask("subscription.subscribe", channels=["values", "lifecycle"]))[
                "result"
            ]["subscription_id"]
            run = (await client.ask("run.start", assistant_id="parent", input=HELLO))["result"]
            events = list(await client.until("completed"))
            again = await client.ask(
                "subscription.reconnect",
                run_id=run["run_id"],
                last_event_id=events[1]["event_id"],
                subscriptions=[name],
            )
            assert again["result"]["restored"] is True
            assert again["result"]["missed_events"] == len(events) - 2
            assert [await client.next() for _ in events[2:]] == events[2:]
            spaces = again["result"]["current_namespaces"]
            assert [len(one["namespace"]) for one in spaces] == [0, 1]
            assert {one["status"] for one in spaces} == {"completed"}
            gone = await client.ask(
                "subscription.reconnect", run_id=run["run_id"], last_event_id="old"
            )
            assert gone["result"]["restored"] is False
            for code, params in (
                ("invalid_argument", {"run_id": str(uuid4())}),
                ("invalid_argument", {}),
                ("no_such_subscription", {"run_id": run["run_id"], "subscriptions": ["x"]}),
            ):
                wrong = await client.ask("subscription.reconnect", **params)
                assert wrong["error"] == code


async def test_a_websocket_survives_malformed_frames(tmp_path: Path) -> None:
    async with serving(tmp_path, way="tcp") as api, connected(api, str(uuid4())) as client:
        for frame in ("{", "[]", "5", "{}", '{"id": "x", "method": "y"}', b"\xff", ""):
            await client.socket.send(frame)
            refused = await client.next()
            assert (refused["type"], refused["id"]) == ("error", None), frame
            assert refused["error"] == "invalid_argument"
        for params in ({}, {"channels": ["nope"]}, {"channels": ["values"], "since": True}):
            wrong = await client.ask("subscription.subscribe", **params)
            assert wrong["error"] == "invalid_argument"
        assert (await client.ask("nope"))["error"] == "unknown_command"
        for _ in range(MAX_SUBSCRIPTIONS):
            made = await client.ask("subscription.subscribe", channels=["values"])
            assert made["type"] == "success"
        many = await client.ask("subscription.subscribe", channels=["values"])
        assert many["error"] == "invalid_argument"


async def test_a_client_that_reads_late_misses_nothing(tmp_path: Path) -> None:
    """While the client does not read, its socket fills. The other events wait in the thread's single event log."""
    async with serving(tmp_path, way="tcp") as api:
        thread = str(uuid4())
        url = f"{api.url.replace('http', 'ws', 1)}/threads/{thread}/stream/events"
        async with connect(url, max_queue=1) as socket:
            client = WebSocketClient(socket)
            await client.ask("subscription.subscribe", channels=EVERYTHING)
            long = {"messages": [{"role": "user", "content": "x" * 300_000}]}
            for _ in range(2):
                begun = await command(api, thread, "run.start", assistant_id="many", input=long)
                await api.sdk.runs.join(thread, begun["result"]["run_id"])
            events = await client.until("completed")
            client.events = []
            events = events + await client.until("completed")
            assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
            assert len(events) > 1000


async def test_a_client_that_vanishes_is_let_go(tmp_path: Path) -> None:
    async with serving(tmp_path, way="tcp") as api:
        thread = str(uuid4())
        begun = await command(api, thread, "run.start", assistant_id="many", input=HELLO)
        await api.sdk.runs.join(thread, begun["result"]["run_id"])
        async with connected(api, thread) as client:
            await client.ask("subscription.subscribe", channels=["lifecycle"], since=1)
            assert api.runs.watchers._watchers
            asking = {
                "id": 9,
                "method": "subscription.subscribe",
                "params": {"channels": EVERYTHING},
            }
            await client.socket.send(orjson.dumps(asking).decode())
            client.socket.transport.abort()
            with anyio.fail_after(20):
                while api.runs.watchers._watchers:
                    await anyio.lowlevel.checkpoint()


async def test_a_socket_for_what_is_no_thread_is_closed_with_the_reason(tmp_path: Path) -> None:
    async with serving(tmp_path, way="tcp") as api, connected(api, "slack:C1") as client:
        with pytest.raises(ConnectionClosed):
            await client.next()
        assert client.socket.close_code == 4422


async def test_the_sdk_streams_over_sockets(tmp_path: Path) -> None:
    async with serving(tmp_path, way="tcp") as api:
        with anyio.fail_after(20):
            streams = api.sdk.threads.stream(assistant_id="agent", transport="websocket")
            async with streams as stream:
                await stream.run.start(input=HELLO)
                output = await stream.output
        assert output["messages"][-1]["content"] == "tok0 tok1 tok2 "


async def test_the_graphs_of_a_run_are_shown(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = str(uuid4())
        assert (await command(api, thread, "agent.getTree"))["error"] == "no_such_run"
        run = (await command(api, thread, "run.start", assistant_id="parent", input=HELLO))[
            "result"
        ]
        await api.sdk.runs.join(thread, run["run_id"])
        tree = (await command(api, thread, "agent.getTree"))["result"]["tree"]
        [child] = tree.pop("children")
        assert tree == {"namespace": [], "status": "completed", "graph_name": "parent"}
        assert (child["graph_name"], child["status"]) == ("child", "completed")
        assert child["namespace"][0].startswith("child:")
        inside = await command(api, thread, "state.get", namespace=child["namespace"])
        assert inside["type"] == "success"
        same = await command(api, thread, "agent.getTree", run_id=run["run_id"])
        assert same["result"]["tree"]["children"] == [child]
        other = await command(api, thread, "agent.getTree", run_id=str(uuid4()))
        assert other["error"] == "no_such_run"


def is_of(kind: Any, value: object) -> None:  # noqa: ANN401 - a type of the protocol's package
    TypeAdapter(kind).validate_python(value)


async def test_everything_has_the_protocols_types(tmp_path: Path) -> None:
    kinds = {
        "lifecycle": LifecycleData,
        "messages": MessagesData,
        "input.requested": InputRequestedData,
        "checkpoints": Checkpoint,
    }
    async with serving(tmp_path, way="tcp") as api:
        thread = str(uuid4())
        async with connected(api, thread) as client:
            subscribed = await client.ask("subscription.subscribe", channels=EVERYTHING)
            is_of(CommandResponse, subscribed)
            is_of(SubscribeResult, subscribed["result"])
            run = await client.ask("run.start", assistant_id="parent", input=HELLO)
            is_of(RunResult, run["result"])
            await client.until("completed")
            tree = await client.ask("agent.getTree")
            is_of(AgentResult, tree["result"])
            is_of(StateGetResult, (await client.ask("state.get", namespace=[]))["result"])
            listed = await client.ask("state.listCheckpoints")
            is_of(ListCheckpointsResult, listed["result"])
            again = await client.ask("subscription.reconnect", **run["result"], last_event_id="x")
            is_of(ReconnectResult, again["result"])
            place = listed["result"]["checkpoints"][-1]["id"]
            forked = await client.ask("state.fork", checkpoint_id=place, input=HELLO)
            is_of(StateForkResult, forked["result"])
            await client.ask("run.start", assistant_id="hitl", input={"n": 1})
            events = await client.until("interrupted")
            is_of(ErrorResponse, await client.ask("nope"))
        seen = {event["method"] for event in events}
        assert seen >= kinds.keys() | {"values", "updates", "tasks"}
        for event in events:
            assert event["type"] == "event"
            is_of(list[str], event["params"]["namespace"])
            if event["method"] in kinds:
                is_of(kinds[event["method"]], event["params"]["data"])


async def test_inner_graphs_begin_and_end(tmp_path: Path) -> None:
    async with serving(tmp_path, way="tcp") as api, connected(api, str(uuid4())) as client:
        await client.ask("subscription.subscribe", channels=EVERYTHING)
        await client.ask("run.start", assistant_id="parent", input=HELLO)
        events = await client.until("completed")
        inner = [event for event in events if event["params"]["namespace"]]
        told = [e["params"]["data"]["event"] for e in inner if e["method"] == "lifecycle"]
        assert told == ["started", "completed"]
        assert (inner[0]["method"], inner[-1]["method"]) == ("lifecycle", "lifecycle")


def test_the_graph_tree_contains_how_each_graph_ended() -> None:
    tree = GraphTree("g")
    ids = [str(uuid4()) for _ in range(4)]
    spaces = [(f"n{i}:{ident}",) for i, ident in enumerate(ids)]
    assert [list(tree.add_namespace(space)) for space in spaces] == [[space] for space in spaces]
    deep = (*spaces[3], "deep:1")
    assert list(tree.add_namespace(deep)) == [deep]
    assert list(tree.add_namespace(deep)) == []
    assert (
        tree.finish_task(dumps({"id": ids[0], "name": "n0", "input": {}, "triggers": []})) is None
    )
    ends: list[tuple[Json, str]] = [
        ({"error": None, "result": {}, "interrupts": []}, "completed"),
        ({"error": "boom", "result": {}, "interrupts": []}, "failed"),
        ({"error": None, "result": {}, "interrupts": [{"id": "i"}]}, "interrupted"),
    ]
    for number, (end, status) in enumerate(ends):
        told = tree.finish_task(dumps({"id": ids[number], "name": f"n{number}", **end}))
        assert told == (spaces[number], status)
    assert tree.finish_task(dumps({"id": ids[0], "name": "n0", **ends[0][0]})) is None
    assert tree.finish_task(b"[]") is None
    assert list(tree.finish("failed")) == [(deep, "failed"), (spaces[3], "failed")]
    [_, _, _, last] = tree.to_wire()["children"]
    assert last["children"][0]["graph_name"] == "deep"


async def test_the_state_is_read_listed_and_forked(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = str(uuid4())
        for method in ("state.get", "state.listCheckpoints", "state.fork"):
            lost = await command(api, thread, method, checkpoint_id="x")
            assert lost["error"] == "invalid_argument"
        run = (await command(api, thread, "run.start", assistant_id="slow", input={"n": 1}))[
            "result"
        ]
        api.graphs.gate.set()
        await api.sdk.runs.join(thread, run["run_id"])
        state = (await command(api, thread, "state.get", namespace=[]))["result"]
        assert state["values"] == {"messages": [], "n": 102, "title": "Rested"}
        only = (await command(api, thread, "state.get", keys=["n", "gone"]))["result"]
        assert only == {**state, "values": {"n": 102}}
        listed = (await command(api, thread, "state.listCheckpoints"))["result"]["checkpoints"]
        assert listed[0]["id"] == state["checkpoint"]["id"]
        assert [one["step"] for one in listed] == [3, 2, 1, 0, -1]
        page = await command(api, thread, "state.listCheckpoints", limit=1, before=listed[1]["id"])
        assert [one["id"] for one in page["result"]["checkpoints"]] == [listed[2]["id"]]
        forked = await command(api, thread, "state.fork", checkpoint_id=listed[2]["id"])
        assert forked["result"]["thread_id"] == thread
        values = await api.sdk.runs.join(thread, forked["result"]["run_id"])
        assert values["n"] == 102
        assert api.graphs.calls == {"one": 1, "nap": 2, "after": 2}
        missing = await command(api, thread, "state.fork", checkpoint_id=str(uuid4()))
        assert missing["error"] == "no_such_checkpoint"


MISTAKEN: list[tuple[str, Json, str]] = [
    ("state.get", {"namespace": "x"}, "invalid_argument"),
    ("state.get", {"namespace": ["nowhere:1"]}, "no_such_namespace"),
    ("state.get", {"keys": "n"}, "invalid_argument"),
    ("state.listCheckpoints", {"limit": 0}, "invalid_argument"),
    ("state.listCheckpoints", {"limit": "all"}, "invalid_argument"),
    ("state.listCheckpoints", {"before": 5}, "invalid_argument"),
    ("state.listCheckpoints", {"namespace": ["nowhere:1"]}, "no_such_namespace"),
    ("state.fork", {}, "invalid_argument"),
    ("agent.getTree", {"run_id": "x"}, "invalid_argument"),
    ("subscription.subscribe", {"channels": ["values"]}, "not_supported"),
]


async def test_commands_that_ask_for_what_there_is_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = str(uuid4())
        run = (await command(api, thread, "run.start", assistant_id="instant", input={}))["result"]
        await api.sdk.runs.join(thread, run["run_id"])
        for method, params, code in MISTAKEN:
            refused = await command(api, thread, method, **params)
            assert (refused["type"], refused["error"]) == ("error", code), refused
            assert refused["message"]


def test_a_reader_who_did_not_keep_up_can_tell() -> None:
    sequence = ThreadEventLog(lambda: 0.0)
    run = ProtocolEncoder("g")
    for number in range(1, MAX_EVENTS + 10):
        sequence._append("r", run, RunEvent(number, "custom", b"{}"))
    assert sequence.has_gap_after(1)
    assert sequence.has_gap_after(8)
    assert not sequence.has_gap_after(9)
    assert not sequence.has_gap_after(0)
    assert sequence.find_seq("r:1.0") is None
    assert sequence.find_seq("r:20.0") == 20


def test_between_two_attempts_of_a_run_is_a_gap() -> None:
    sequence = ThreadEventLog(lambda: 0.0)
    first = ended_run("t", b"{}")
    second = replace(ended_run("t", b"{}"), row=first.row, attempt=2)
    sequence.advance([first])
    sequence.advance([second])
    told = [(event.event_id, event.data == RESUME_GAP) for event in sequence.read(0)]
    assert (f"{first.run_id}:gap.2", True) in told
    assert [is_gap for _, is_gap in told].count(True) == 1
    assert not told[0][1]


@asynccontextmanager
async def whole_service(folder: Path, gateway: str) -> AsyncIterator[str]:
    """Serve the whole application with access control. Return the address of a thread's socket."""
    port = free_port()
    file = folder / "config.yaml"
    file.write_text(f"gateway: {{port: {port}{gateway}}}")
    config = load_config(
        str(file), {"PARLEY_HOME": str(folder / "home"), "PARLEY_ADMIN_TOKEN": TOKEN}
    )
    token = None if config.gateway.auth == "none" else TOKEN
    async with open_app(config) as app:
        with open_listener(config.gateway) as door:
            server = HttpServer(network_app(app, config.gateway, token=token), door)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.run_until_stopped)
                with anyio.fail_after(20):
                    await server.ready.wait()
                yield f"ws://127.0.0.1:{port}/api/threads/{uuid4()}/stream/events"
                server.stop()


async def overwhelm(socket: ClientConnection) -> None:
    await socket.send("x" * (MAX_BODY_BYTES + 1))
    await socket.recv()


async def refused(url: str, **headers: str) -> int:
    """Return the status of a refused WebSocket, or 101 if it is accepted."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        async with connect(url, additional_headers=names):
            return 101
    except InvalidStatus as error:
        return error.response.status_code


async def test_sockets_need_the_token_a_known_name_and_a_page_that_may(tmp_path: Path) -> None:
    pages = ', cors_origins: ["https://chat.example"]'
    async with whole_service(tmp_path, pages) as url:
        assert await refused(url) == 401
        assert await refused(url, X_Api_Key="wrong-token-0123") == 401
        audit = tmp_path / "home" / "audit.log"
        # A thread writes the audit line, concurrently with the response.
        await eventually(lambda: audit.exists() and "(wrong token)" in audit.read_text())
        written = audit.read_text()
        assert '"action":"WEBSOCKET ' in written.replace('": "', '":"')
        assert "wrong-token-0123" not in written
        assert await refused(url, X_Api_Key=TOKEN) == 101
        assert await refused(url, Authorization=f"Bearer {TOKEN}") == 101
        assert await refused(url, X_Api_Key=TOKEN, Origin="https://evil.example") == 403
        assert await refused(url, X_Api_Key=TOKEN, Origin="null") == 403
        assert await refused(url, X_Api_Key=TOKEN, Origin="https://chat.example") == 101
        wrong = f"parley, parley.token.{TOKEN[::-1]}"
        assert await refused(url, Sec_WebSocket_Protocol=wrong) == 401
        assert await refused(url, Sec_WebSocket_Protocol="parley, parley.token.") == 401
        subprotocols = [Subprotocol("parley"), Subprotocol(f"parley.token.{TOKEN}")]
        async with connect(url, subprotocols=subprotocols) as socket:
            assert socket.subprotocol == "parley"
        host = url.split("/")[2]
        assert await refused(url, X_Api_Key=TOKEN, Origin=f"http://{host}") == 101
        assert await refused(url.replace("/threads/", "/nothing/"), X_Api_Key=TOKEN) == 403
        async with connect(url, additional_headers={"X-Api-Key": TOKEN}) as socket:
            with pytest.raises(ConnectionClosed):
                await overwhelm(socket)
            assert socket.close_code == 1009


async def test_without_a_token_foreign_pages_open_no_sockets(tmp_path: Path) -> None:
    async with whole_service(tmp_path, ", auth: none") as url:
        assert await refused(url) == 101
        assert await refused(url, Origin="https://evil.example") == 403
        rebound = url.replace("127.0.0.1", "localhost")
        assert await refused(rebound, Origin="http://evil.example:80") == 403
