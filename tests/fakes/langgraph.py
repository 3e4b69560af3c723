"""A LangGraph-compatible server on loopback without Parley's extensions. The bus must support such servers.

`flavour="langgraph"` behaves as LangGraph Server 0.16: `event: messages`, no `event: end`, ids only when
asked for, CRLF. `flavour="deerflow"` refuses the newer run options with 422, ends with `data: null`, and shows
messages of the newest state only. Each thread keeps its last `keeps` states. With `hears`, active runs accept messages,
as in Parley's own runtime. Otherwise that route does not exist.
"""

import json
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

import anyio
import anyio.lowlevel
from aiohttp import web

Json = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Script:
    """The behavior of the next run.

    Attributes:
        words: The answer, one delta each.
        error: Send an `event: error` instead of the end.
        hang_after: Stop after this many words until canceled.
        drop_after: Break the connection after this many words. The run continues, and clients can join it.
        question: Ask for a clarification instead of answering.
        gate: Say nothing until it is set. The run takes messages that were injected before that.
        ends: Do not end until it is set. The run does not take messages that were injected since the gate.
        options: The answers that a clarification offers.
        interrupts: The values of the interrupts that the run ends with.
        streams_interrupts: Whether the stream contains the interrupts. Streams of older servers do not.
    """

    words: tuple[str, ...] = ("Hello", " ", "you")
    error: Json | None = None
    hang_after: int | None = None
    drop_after: int | None = None
    question: str = ""
    gate: anyio.Event | None = None
    ends: anyio.Event | None = None
    options: tuple[str, ...] = ()
    interrupts: tuple[object, ...] = ()
    streams_interrupts: bool = True


@dataclass
class FakeRun:
    """One run, as the server stores it."""

    run_id: str
    thread_id: str
    body: Json
    script: Script
    status: str = "running"
    events: list[tuple[str, Any]] = field(default_factory=list)
    changed: anyio.Event = field(default_factory=anyio.Event)
    canceled: anyio.Event = field(default_factory=anyio.Event)
    injected: list[Json] = field(default_factory=list)
    injection_arrived: anyio.Event = field(default_factory=anyio.Event)

    def row(self) -> Json:
        metadata = self.body.get("metadata") or {}
        return {
            "run_id": self.run_id,
            "thread_id": self.thread_id,
            "status": self.status,
            "metadata": metadata,
        }


class FakeLangGraph:
    """The server. `async with FakeLangGraph() as server`: then `server.url`, `server.scripts`, `server.runs`."""

    def __init__(self, flavour: str = "langgraph") -> None:
        self.flavour = flavour
        self.threads: dict[str, list[Json]] = {}
        self.history: dict[str, list[Json]] = {}
        self.waits: dict[str, list[Json]] = {}
        self.max_states = 20
        self.accepts_injection = False
        self.accepts_updates = True
        self.answers_state = True
        self.runs: list[FakeRun] = []
        self.scripts: deque[Script] = deque()
        self.refusals: deque[int] = deque()
        self.requests: list[tuple[str, str]] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        app = web.Application(middlewares=[self._note])
        app.add_routes(
            [
                web.post("/threads", self._create_thread),
                web.get("/threads/{t}/state", self._state),
                web.post("/threads/{t}/history", self._history),
                web.post("/threads/{t}/state", self._update),
                web.get("/threads/{t}/state/{c}", self._state_at),
                web.get("/threads/{t}/runs", self._list),
                web.post("/threads/{t}/runs/stream", self._stream),
                web.post("/threads/{t}/commands", self._inject),
                web.get("/threads/{t}/runs/{r}", self._get),
                web.get("/threads/{t}/runs/{r}/stream", self._join),
                web.post("/threads/{t}/runs/{r}/cancel", self._cancel),
            ]
        )
        self._runner = web.AppRunner(app, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        for run in self.runs:
            run.canceled.set()
            run.changed.set()
        await self._runner.cleanup()
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    @web.middleware
    async def _note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        if self.refusals and request.path.endswith("/runs/stream"):
            return web.json_response({"detail": "refused"}, status=self.refusals.popleft())
        return await handler(request)

    async def _create_thread(self, request: web.Request) -> web.Response:
        thread_id = (await request.json()).get("thread_id") or str(uuid.uuid4())
        self.threads.setdefault(thread_id, [])
        return web.json_response({"thread_id": thread_id, "metadata": {}})

    async def _state(self, request: web.Request) -> web.Response:
        if not self.answers_state:
            return web.json_response({"detail": "unavailable"}, status=503)
        if (messages := self.threads.get(request.match_info["t"])) is None:
            return _missing()
        waits = self.waits.get(request.match_info["t"], [])
        state = {"values": {"messages": messages}, "next": ["tools"] if waits else []}
        return web.json_response({**state, "interrupts": waits})

    async def _history(self, request: web.Request) -> web.Response:
        body, thread_id = await request.json(), request.match_info["t"]
        states = self.history.get(thread_id, [])[::-1]
        before = body.get("before")
        if before:
            before = before if isinstance(before, str) else before["checkpoint_id"]
            ids = [state["checkpoint_id"] for state in states]
            states = states[ids.index(before) + 1 :]
        shown = [_shown(state) for state in states[: body["limit"]]]
        if self.flavour == "deerflow":
            newest = self.history[thread_id][-1]["checkpoint_id"]
            for state in shown:
                del state["checkpoint"]
                if state["checkpoint_id"] != newest:
                    state["values"] = {}
        return web.json_response(shown)

    async def _state_at(self, request: web.Request) -> web.Response:
        if self.flavour == "deerflow":
            return _missing()
        state = self._kept(request.match_info["t"], request.match_info["c"])
        return web.json_response(_shown(state)) if state else _missing()

    async def _update(self, request: web.Request) -> web.Response:
        body, thread_id = await request.json(), request.match_info["t"]
        if not self.accepts_updates:
            return web.json_response({"detail": "disk full"}, status=503)
        if any(run.thread_id == thread_id and run.status == "running" for run in self.runs):
            return web.json_response({"detail": "busy"}, status=409)
        messages, waits = self.threads[thread_id], ["model"]
        gone = {m["id"] for m in (body.get("values") or {}).get("messages", [])}
        if body["as_node"] == "__copy__":
            base = self._kept(thread_id, body["checkpoint_id"])
            assert base is not None
            messages[:], waits = base["messages"], base["next"]
        elif body["as_node"] == "__end__":
            waits = []
        messages[:] = [m for m in messages if m["id"] not in gone]
        self._keep(thread_id, waits)
        return web.json_response({"checkpoint": {}})

    def _keep(self, thread_id: str, waits: list[str]) -> None:
        """Store the thread's current state."""
        kept = self.history.setdefault(thread_id, [])
        messages = list(self.threads[thread_id])
        kept.append({"checkpoint_id": str(uuid.uuid4()), "messages": messages, "next": waits})
        del kept[: -self.max_states]

    def _kept(self, thread_id: str, checkpoint_id: str) -> Json | None:
        kept = self.history.get(thread_id, [])
        return next((state for state in kept if state["checkpoint_id"] == checkpoint_id), None)

    async def _list(self, request: web.Request) -> web.Response:
        if request.match_info["t"] not in self.threads:
            return _missing()
        rows = [r.row() for r in self.runs if r.thread_id == request.match_info["t"]]
        return web.json_response(rows[::-1])

    async def _get(self, request: web.Request) -> web.Response:
        run = self._run(request)
        return web.json_response(run.row()) if run else _missing()

    async def _cancel(self, request: web.Request) -> web.Response:
        run = self._run(request)
        if run is None or run.status != "running":
            return _missing()
        run.status = "interrupted"
        run.canceled.set()
        run.changed.set()
        return web.Response(status=202)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        body, thread_id = await request.json(), request.match_info["t"]
        if thread_id not in self.threads:
            return _missing()
        strange = body.get("stream_resumable") or "durability" in body
        if self.flavour == "deerflow" and (strange or body.get("multitask_strategy") != "reject"):
            return web.json_response({"detail": "unsupported_run_option"}, status=422)
        script = self.scripts.popleft() if self.scripts else Script()
        run = FakeRun(run_id=str(uuid.uuid4()), thread_id=thread_id, body=body, script=script)
        self.runs.append(run)
        self._tasks.start_soon(self._execute, run)
        return await self._send(request, run, drop_after=script.drop_after)

    async def _inject(self, request: web.Request) -> web.Response:
        if not self.accepts_injection:
            return _missing()
        params = (await request.json())["params"]
        run = next((r for r in self.runs if r.run_id == params["run_id"]), None)
        if run is None or run.status != "running":
            return web.json_response({"type": "error", "id": 1, "error": "no_such_run"})
        run.injected += [{**one, "type": "human"} for one in params["messages"]]
        run.injection_arrived.set()
        return web.json_response({"type": "success", "id": 1, "result": {"accepted": True}})

    async def _join(self, request: web.Request) -> web.StreamResponse:
        run = self._run(request)
        return await self._send(request, run, drop_after=None) if run else _missing()

    async def _execute(self, run: FakeRun) -> None:
        """Follow the script: append the run's events and update the thread's state."""
        messages = self.threads[run.thread_id]
        self._answer(run)
        self._keep(run.thread_id, ["__start__"])
        _take_in(messages, run.body)
        self._keep(run.thread_id, ["model"])
        self._emit(run, "metadata", {"run_id": run.run_id, "attempt": 1})
        self._emit(run, "values", {"messages": list(messages)})
        script, ai_id = run.script, f"ai-{run.run_id}"
        if script.gate is not None:
            if not await _opened(script.gate, run):
                return
            messages += run.injected
            run.injected = []
            self._keep(run.thread_id, ["model"])
        for count, word in enumerate(script.words):
            if script.hang_after == count:
                await run.canceled.wait()
                return
            self._emit(
                run, "messages", [{"type": "AIMessageChunk", "id": ai_id, "content": word}, {}]
            )
            await anyio.lowlevel.checkpoint()
        if script.ends is not None and not await _opened(script.ends, run):
            return
        if script.error is not None:
            run.status = "error"
            self._emit(run, "error", script.error)
            return
        messages += _said(script, run.run_id)
        self._emit(run, "values", {"messages": list(messages)})
        self._ask(run, messages)
        self._keep(run.thread_id, [])
        run.status = "success"
        if self.flavour == "deerflow":
            self._emit(run, "end", None)
        run.changed.set()

    def _ask(self, run: FakeRun, messages: list[Json]) -> None:
        """Interrupt the run, like LangGraph: one frame for each interrupt, which contains only that one."""
        for number, value in enumerate(run.script.interrupts):
            waits = {"id": f"{len(self.runs):016x}{number:016x}", "value": value}
            self.waits.setdefault(run.thread_id, []).append(waits)
            told = {"__interrupt__": [waits]} if run.script.streams_interrupts else {}
            self._emit(run, "values", {"messages": list(messages), **told})

    def _answer(self, run: FakeRun) -> None:
        """Store an answer to the thread's interrupts. New input drops them."""
        resume = (run.body.get("command") or {}).get("resume")
        waits = self.waits.pop(run.thread_id, [])
        if isinstance(resume, dict) and any(one["id"] in resume for one in waits):
            left = [one for one in waits if one["id"] not in resume]
            self.waits.update({run.thread_id: left} if left else {})

    def _emit(self, run: FakeRun, event: str, data: object) -> None:
        run.events.append((event, data))
        run.changed.set()
        run.changed = anyio.Event()

    async def _send(
        self, request: web.Request, run: FakeRun, *, drop_after: int | None
    ) -> web.StreamResponse:
        base = f"/threads/{run.thread_id}/runs/{run.run_id}"
        headers = {"Content-Location": base, "Location": f"{base}/stream"}
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", **headers})
        await answer.prepare(request)
        resumable = bool(run.body.get("stream_resumable"))
        start = int(request.headers.get("Last-Event-ID", "-1")) + 1 if resumable else 0
        words = 0
        async for number, (event, data) in _follow(run, start):
            line = f"event: {event}\r\ndata: {json.dumps(data)}\r\n"
            line += f"id: {number}\r\n" if resumable else ""
            await answer.write(f"{line}\r\n".encode())
            words += event == "messages"
            if drop_after is not None and words >= drop_after and request.transport is not None:
                request.transport.abort()
                break
        return answer

    def _run(self, request: web.Request) -> FakeRun | None:
        return next((r for r in self.runs if r.run_id == request.match_info["r"]), None)


def _said(script: Script, run_id: str) -> list[Json]:
    """Return the messages that a run adds."""
    said: Json = {"type": "ai", "id": f"ai-{run_id}", "content": "".join(script.words)}
    if script.interrupts:
        said["tool_calls"] = [{"name": "bash", "id": f"call-{run_id}", "args": {}}]
    if not script.question:
        return [said]
    name, call_id = "ask_clarification", f"call-{run_id}"
    arguments = {"question": script.question, "options": list(script.options)}
    said["tool_calls"] = [{"name": name, "id": call_id, "args": arguments}]
    question = {"type": "tool", "name": name, "id": f"q-{run_id}", "tool_call_id": call_id}
    return [said, {**question, "content": script.question}]


async def _opened(gate: anyio.Event, run: FakeRun) -> bool:
    """Wait for a gate. Return False if the run is canceled first."""
    async with anyio.create_task_group() as tasks:

        async def give_up() -> None:
            await run.canceled.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(give_up)
        await gate.wait()
        tasks.cancel_scope.cancel()
    return not run.canceled.is_set()


async def _follow(run: FakeRun, start: int) -> AsyncIterator[tuple[int, tuple[str, Any]]]:
    number = max(start, 0)
    while True:
        while number < len(run.events):
            yield number, run.events[number]
            number += 1
        if run.status != "running":
            return
        changed = run.changed
        if number >= len(run.events):
            await changed.wait()


def _take_in(messages: list[Json], body: Json) -> None:
    """Add a run's input to the thread's messages. Does not add an existing message again."""
    for said in (body.get("input") or {}).get("messages", []):
        known = next((m for m in messages if m["id"] == said["id"]), None)
        if known is None:
            extra = said.get("additional_kwargs") or {}
            messages.append(
                {
                    "type": "human",
                    "id": said["id"],
                    "content": said["content"],
                    "additional_kwargs": extra,
                }
            )


def _shown(state: Json) -> Json:
    return {
        "values": {"messages": state["messages"]},
        "next": state["next"],
        "checkpoint_id": state["checkpoint_id"],
        "checkpoint": {"checkpoint_id": state["checkpoint_id"], "checkpoint_ns": ""},
    }


def _missing() -> web.Response:
    return web.json_response({"detail": "Thread or assistant not found."}, status=404)
