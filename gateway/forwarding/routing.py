"""NodeRouter: any node takes any request of the LangGraph API; the one that executes the thread's runs answers it."""

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.app import Application
from gateway.errors import NODE_HEADER, error_response
from gateway.forwarding.followed_response import FollowedResponse
from gateway.forwarding.requests import NodeRequests, ResponseBroken, open_node_requests
from gateway.langgraph.protocol_commands import EXECUTE_COMMAND, execute_called
from gateway.langgraph.responses import HOPS
from gateway.runtime.lifecycle import is_final
from gateway.runtime.runs import RunManager
from gateway.services import DELETE_THREAD, Services
from store.errors import StoreUnavailable
from store.node_calls import NodeCalls

MAX_HOPS = 4
"""How often a request is passed on, when the runs of its thread end and begin elsewhere meanwhile."""

POLL_S = 0.1
ATTEMPTS = 60
"""How often it is looked for the node that executes a run while that one ends or joins."""

FOLLOW_ATTEMPTS = 100
"""How often a run is looked for to which a response goes on."""

_ID = r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}"
_PATH = re.compile(
    # The event stream of a thread is made here, with copies of other nodes' runs: it survives those nodes.
    rf"/api(?:/langgraph)?(?:/threads/(?P<thread>{_ID}))?(?:/runs/(?P<run>{_ID}))?"
    r"(?P<rest>/runs(?:/(?:stream|wait))?|/commands|/state|/copy|)"
)
_CANCEL = re.compile(r"/api(?:/langgraph)?/runs/cancel")
_EVENTS_OF_RUN = ("/join", "/stream")
CANCELED, FOUND_NONE = 204, 404
"""Statuses of a request to cancel runs."""

_WITHOUT_BODY = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class _Target:
    """What a request is about.

    Attributes:
        thread_id: "" = the path does not say.
        run_id: "" = none.
        wants_events: It needs the events of the run, also after its end.
    """

    thread_id: str
    run_id: str
    wants_events: bool


class NodeRouter:
    """An application that has requests answered where the runs are that they are about.

    Args:
        app: Answers requests at this node.
        runs: The runs of this node.
        calls: Calls to other nodes.
        requests: Has requests answered by other nodes.
    """

    def __init__(
        self, app: ASGIApp, runs: RunManager, calls: NodeCalls, requests: NodeRequests
    ) -> None:
        self._app = app
        self._runs = runs
        self._calls = calls
        self._requests = requests
        calls.serve("run.find", self._find_here)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, here or elsewhere."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "POST" and _CANCEL.fullmatch(scope["path"]):
            await self._cancel_everywhere(scope, receive, send)
            return
        target = _parse_target(scope["path"])
        if target is None:
            await self._app(scope, receive, send)
            return
        followed = FollowedResponse(scope, send)
        try:
            await self._route(target, scope, receive, followed.send)
        except StoreUnavailable as error:
            await error_response(error)(scope, receive, send)
        except ResponseBroken:
            if not followed.can_go_on:
                raise
            await self._follow(followed, receive)

    async def _follow(self, followed: FollowedResponse, receive: Receive) -> None:
        """Respond with the rest of a response whose node was lost. Raises ResponseBroken: nobody has it."""
        for attempts_left in reversed(range(FOLLOW_ATTEMPTS)):
            rest = followed.next_request()
            target = _parse_target(rest["path"])
            try:
                if target is None:
                    await self._app(rest, receive, followed.send)
                else:
                    await self._route(target, rest, receive, followed.send)
            except (StoreUnavailable, ResponseBroken) as error:
                if not attempts_left:
                    raise ResponseBroken(str(error)) from error
                await anyio.sleep(POLL_S)
            else:
                return

    async def _route(self, target: _Target, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request where its runs are. Raises StoreUnavailable before anything was sent."""
        body = b"" if scope["method"] in _WITHOUT_BODY else await _read_body(receive)
        for hops in range(scope.get(HOPS, 0), MAX_HOPS):
            node = await self._find_node(target)
            if node is None:
                node = await self._answer_here(scope, body, receive, send)
                if node is None:
                    return
            if node not in self._calls.others:
                await anyio.sleep(POLL_S)
                continue
            try:
                await self._requests.forward(node, {**scope, HOPS: hops + 1}, body, receive, send)
            except StoreUnavailable:
                if scope["method"] not in _WITHOUT_BODY:
                    raise
            else:
                return
        raise StoreUnavailable("The runs of this thread move from node to node; try again.")

    async def _answer_here(
        self, scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> int | None:
        """Answer a request at this node; return the number of another node if the runs turn out to be there."""
        elsewhere: int | None = None

        async def checked(message: Message) -> None:
            nonlocal elsewhere
            if message["type"] == "http.response.start":
                elsewhere = _elsewhere(message)
            if elsewhere is None:
                await send(message)

        again = receive if scope["method"] in _WITHOUT_BODY else _replay(body, receive)
        await self._app(scope, again, checked)
        return elsewhere

    async def _find_node(self, target: _Target) -> int | None:
        """Return the number of the other node that is to answer; None = this one."""
        if self._is_here(target) or not (target.run_id or self._calls.others):
            return None
        for attempt in range(ATTEMPTS):
            if attempt > 1:
                await anyio.sleep(POLL_S)
            node, is_over = await self._look_up(target)
            if node is None or node == self._calls.node:
                return None
            if node in self._calls.others:
                return None if is_over and not target.wants_events else node
            if is_over:
                return None
            # The node was ended, hands its runs over, or has just joined.
            await self._runs.left_runs.take_of(target.thread_id, target.run_id)
            if self._is_here(target):
                return None
        raise StoreUnavailable(
            "The node that executes the thread's runs does not respond; try again."
        )

    async def _look_up(self, target: _Target) -> tuple[int | None, bool]:
        """Return the node of a target's runs, None if there is none, and whether they are over."""
        if not target.run_id:
            return await self._runs.rows.find_thread_node(target.thread_id), False
        found = await self._runs.rows.find_run_node(target.run_id)
        if found is not None:
            return found[0], is_final(found[1])
        if target.thread_id:
            return None, True
        return await self._ask_all(target.run_id), True

    def _is_here(self, target: _Target) -> bool:
        if target.run_id:
            return self._runs.find(None, target.run_id) is not None
        return bool(self._runs.active_on_thread(target.thread_id))

    async def _find_here(self, run_id: str) -> str:
        return "here" if self._runs.find(None, run_id) is not None else ""

    async def _ask_all(self, run_id: str) -> int | None:
        """Return the node that has a run without a row: one with a thread of its own."""
        having: list[int] = []

        async def ask(node: int) -> None:
            try:
                if await self._calls.call(node, "run.find", run_id):
                    having.append(node)
            except StoreUnavailable:
                return

        async with anyio.create_task_group() as tasks:
            for node in self._calls.others:
                tasks.start_soon(ask, node)
        return having[0] if having else None

    async def _cancel_everywhere(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Cancel runs at every node; the answer of one that found some wins."""
        body = await _read_body(receive)
        answers = [_CapturedResponse()]
        await self._app(scope, _replay(body, receive), answers[0].send)
        if HOPS not in scope and answers[0].status in {CANCELED, FOUND_NONE}:
            others = [(node, _CapturedResponse()) for node in sorted(self._calls.others)]

            async def ask(node: int, answer: "_CapturedResponse") -> None:
                onward = {**scope, HOPS: MAX_HOPS}
                try:
                    await self._requests.forward(node, onward, body, _never, answer.send)
                except StoreUnavailable:
                    answer.messages.clear()

            async with anyio.create_task_group() as tasks:
                for node, answer in others:
                    tasks.start_soon(ask, node, answer)
            answers += [answer for _, answer in others if answer.messages]
        best = next((answer for answer in answers if answer.status == CANCELED), answers[0])
        for message in best.messages:
            await send(message)


@asynccontextmanager
async def open_node_router(
    app: Application, runs: RunManager, calls: NodeCalls
) -> AsyncIterator[None]:
    """Let an application answer for the runs of all nodes of the database, until the block ends."""
    async with open_node_requests(calls, app) as requests:
        app.by_node = NodeRouter(app.answer, runs, calls, requests)
        _serve_calls(app, calls)
        yield
        app.by_node = None


def _serve_calls(app: Application, calls: NodeCalls) -> None:
    """Answer the calls of other nodes about threads whose runs are here."""

    async def delete_thread(thread_id: str) -> str:
        services: Services = app.state.services
        return "deleted" if await services.delete_thread(thread_id) else ""

    async def execute(body: str) -> str:
        return await execute_called(app.state.services, body)

    calls.serve(DELETE_THREAD, delete_thread)
    calls.serve(EXECUTE_COMMAND, execute)


class _CapturedResponse:
    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def send(self, message: Message) -> None:
        self.messages.append(message)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"]) if self.messages else 0


def _parse_target(path: str) -> _Target | None:
    """Return what a path is about; None = no thread and no run.

    >>> _parse_target("/api/threads/search"), _parse_target("/api/runs/stream")
    (None, None)
    >>> name = "9b2d7c1e-0000-4000-8000-000000000001"
    >>> _parse_target(f"/api/langgraph/runs/{name}/stream").wants_events
    True
    >>> _parse_target(f"/api/threads/{name}/runs/wait").run_id
    ''
    >>> _parse_target(f"/api/threads/{name}/stream/events")
    """
    match = _PATH.fullmatch(path)
    if match is None or not (match["thread"] or match["run"]):
        return None
    thread_id, run_id = (_canonical(match[name]) for name in ("thread", "run"))
    return _Target(thread_id, run_id, bool(run_id) and match["rest"] in _EVENTS_OF_RUN)


def _canonical(text: str | None) -> str:
    digits = (text or "").replace("-", "").lower()
    if not digits:
        return ""
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _elsewhere(start: Message) -> int | None:
    headers: Iterable[tuple[bytes, bytes]] = start.get("headers", ())
    return next((int(value) for name, value in headers if name == NODE_HEADER.encode()), None)


async def _read_body(receive: Receive) -> bytes:
    """Return the whole body; what limits its size and its pace is outside."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b"".join(pieces)
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return what delivers a body that was read, and then what follows it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


async def _never() -> Message:
    await anyio.sleep_forever()
    raise AssertionError
