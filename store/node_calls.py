"""Calls between the nodes that share a database: signals carry the request and the answer."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import anyio
import orjson
from anyio.abc import TaskGroup

from store.database import Database
from store.errors import StoreUnavailable
from store.run_events import RunEventStore
from store.signals import MAX_PAYLOAD_BYTES

CallHandler = Callable[[str], Awaitable[str]]
"""Takes the body of a call and returns the body of the answer."""

NoteHandler = Callable[[int, str], None]
"""Takes the sender's number and the body of a note."""

CHECK_S = 0.25
"""How often to check that the called node is alive, seconds."""

KEEP_S = 120.0
"""How long to keep a message that was too long for a signal, and a run's events after the last one, seconds."""

PRUNE_S = 30.0

HAND_OVER = "runs.hand_over"
"""The call that ends a node's runs before their next step, so that other nodes continue them."""

# For PostgreSQL: a SQLite file has one node. Only the database's clock counts.
_INSERT = """
INSERT INTO node_message (id, body, created_at) VALUES (:id, :body, extract(epoch FROM clock_timestamp()))
"""
_TAKE = "SELECT body FROM node_message WHERE id = :id"
_PRUNE = """
DELETE FROM node_message WHERE created_at < extract(epoch FROM clock_timestamp()) - CAST(:keep_s AS DOUBLE PRECISION)
"""

log = logging.getLogger(__name__)


class NodeCalls:
    """Calls methods on other nodes and serves their calls. Created by `open_node_calls`.

    A call is made once. If no answer comes, the caller does not know whether the other node carried it out.

    Args:
        database: The database that the nodes share.
        tasks: Runs the handlers.

    Attributes:
        database: The database that the nodes share.
    """

    def __init__(self, database: Database, tasks: TaskGroup) -> None:
        self.database = database
        self._tasks = tasks
        self._handlers: dict[str, CallHandler] = {}
        self._notes: dict[str, NoteHandler] = {}
        self._waiting: dict[str, _Answer] = {}

    @property
    def node(self) -> int:
        """The number of this node."""
        return self.database.nodes.number

    @property
    def others(self) -> frozenset[int]:
        """The numbers of the other living nodes. Cheap."""
        return frozenset(one.number for one in self.database.nodes.living) - {self.node}

    def serve(self, method: str, handler: CallHandler) -> None:
        """Answer calls to `method`, several at a time. The caller gets the handler's error."""
        self._handlers[method] = handler

    def receive(self, method: str, handler: NoteHandler) -> None:
        """Pass notes for `method` to `handler`, in order. It runs in the event loop and must not block."""
        self._notes[method] = handler

    async def call(self, node: int, method: str, body: str, *, within_s: float = 5.0) -> str:
        """Return the answer of a node; this node calls its own handler directly.

        Args:
            node: Its number.
            method: A method that the node serves.
            body: The argument of its handler, up to some megabytes.
            within_s: How long to wait for the answer, seconds.

        Raises:
            StoreUnavailable: The node is dead or does not answer in time, or its handler failed.
        """
        if node == self.node:
            return await self._handle(method, body)
        self._check_living(node)
        number = uuid4().hex
        answer = self._waiting[number] = _Answer()
        try:
            await self._post(node, {"id": number, "from": self.node, "method": method}, body)
            with anyio.move_on_after(within_s):
                while not answer.arrived.is_set():
                    self._check_living(node)
                    with anyio.move_on_after(CHECK_S):
                        await answer.arrived.wait()
        finally:
            del self._waiting[number]
        if not answer.arrived.is_set():
            raise StoreUnavailable(f"Node {node} did not answer {method!r} within {within_s:g} s.")
        if answer.error:
            raise StoreUnavailable(f"Node {node}: {answer.error}")
        return answer.body

    async def call_others(
        self, method: str, body: str, *, within_s: float = 5.0
    ) -> dict[int, str | None]:
        """Ask all other nodes at once; return their answers by number, None for a node that gave none. See `call`."""
        answers: dict[int, str | None] = {}

        async def ask(node: int) -> None:
            try:
                answers[node] = await self.call(node, method, body, within_s=within_s)
            except StoreUnavailable as error:
                log.info("node %s did not answer %r: %s", node, method, error)
                answers[node] = None

        async with anyio.create_task_group() as tasks:
            for node in self.others:
                tasks.start_soon(ask, node)
        return answers

    def tell(self, node: int, method: str, body: str) -> None:
        """Send a note and return at once. A note has no answer and may be lost.

        Args:
            node: The number of another node.
            method: The name of the method that receives it there.
            body: Up to 7,500 bytes of JSON text.

        Raises:
            ValueError: The body is too long.
        """
        message = {"from": self.node, "note": method, "body": body}
        self.database.signals.publish(_topic(node), orjson.dumps(message).decode())

    def announce(self, topic: str, payload: str) -> None:
        """Publish a signal if there are other nodes. See `Signals.publish`."""
        if self.others:
            self.database.signals.publish(topic, payload)

    async def take(self, payload: str) -> None:
        """Handle a signal to this node."""
        if not payload:
            return  # some signals were lost: their callers time out and report it
        try:
            message = _parse(payload)
        except ValueError:
            log.warning("Dropped an unreadable message from another node: %.200r", payload)
            return
        if note := message.get("note"):
            self._take_note(note, message)
            return
        if stored := message.pop("stored", ""):
            self._tasks.start_soon(self._take_stored, message, stored)
        else:
            self._dispatch(message)

    def _take_note(self, note: str, message: Mapping[str, Any]) -> None:
        handler = self._notes.get(note)
        if handler is None:
            return
        try:
            handler(message["from"], message["body"])
        except (ValueError, KeyError, TypeError):
            log.warning("Dropped an unreadable note from node %d: %s", message["from"], note)

    def _check_living(self, node: int) -> None:
        if node not in self.others:
            raise StoreUnavailable(f"Node {node} is not running.")

    async def _take_stored(self, message: dict[str, Any], stored: str) -> None:
        try:
            rows = await self.database.read(_TAKE, {"id": stored})
        except StoreUnavailable as error:
            log.warning("Lost a message from another node: %s", error)
            return
        if rows:
            self._dispatch({**message, "body": rows[0]["body"]})

    def _dispatch(self, message: Mapping[str, Any]) -> None:
        if "method" in message:
            self._tasks.start_soon(self._answer, message)
        elif answer := self._waiting.get(message["id"]):
            answer.body, answer.error = message["body"], message["error"]
            answer.arrived.set()

    async def _answer(self, message: Mapping[str, Any]) -> None:
        body = error = ""
        try:
            body = await self._handle(message["method"], message["body"])
        except StoreUnavailable as failure:
            error = str(failure)
        try:
            await self._post(message["from"], {"id": message["id"], "error": error}, body)
        except StoreUnavailable as failure:
            log.warning("Lost an answer to node %d: %s", message["from"], failure)

    async def _handle(self, method: str, body: str) -> str:
        handler = self._handlers.get(method)
        if handler is None:
            raise StoreUnavailable(f"it does not serve {method!r} yet.")
        try:
            return await handler(body)
        except StoreUnavailable:
            raise
        except Exception as error:
            log.exception("The call of %r failed.", method)
            raise StoreUnavailable(f"{method!r} failed ({type(error).__name__}).") from error

    async def _post(self, node: int, message: Mapping[str, Any], body: str) -> None:
        """Send a message; store a body that is too long for a signal."""
        payload = orjson.dumps({**message, "body": body})
        if len(payload) > MAX_PAYLOAD_BYTES:
            stored = uuid4().hex
            await self.database.transaction(
                lambda tx: tx.run(_INSERT, {"id": stored, "body": body})
            )
            payload = orjson.dumps({**message, "stored": stored})
        self.database.signals.publish(_topic(node), payload.decode())

    async def delete_old(self, *, keep_s: float = KEEP_S) -> None:
        """Delete the stored messages that are older than `keep_s`. Raises StoreUnavailable."""
        await self.database.transaction(lambda tx: tx.run(_PRUNE, {"keep_s": keep_s}))


class _Answer:
    """The answer that a caller waits for."""

    def __init__(self) -> None:
        self.arrived = anyio.Event()
        self.body = ""
        self.error = ""


@asynccontextmanager
async def open_node_calls(database: Database) -> AsyncIterator[NodeCalls]:
    """Yield the calls to and from the other nodes of a database. Leaving the block ends calls in progress."""
    if not database.nodes.number:
        async with anyio.create_task_group() as tasks:
            yield NodeCalls(database, tasks)
            tasks.cancel_scope.cancel()
        return
    with database.signals.subscribe(_topic(database.nodes.number)) as payloads:
        async with anyio.create_task_group() as tasks:
            calls = NodeCalls(database, tasks)
            tasks.start_soon(_receive, calls, payloads)
            tasks.start_soon(_prune, calls)
            yield calls
            tasks.cancel_scope.cancel()


async def _receive(calls: NodeCalls, payloads: AsyncIterator[str]) -> None:
    async for payload in payloads:
        await calls.take(payload)


async def _prune(calls: NodeCalls) -> None:
    events = RunEventStore(calls.database)
    while True:
        await anyio.sleep(PRUNE_S)
        try:
            await calls.delete_old()
            await events.delete_old(keep_s=KEEP_S)
        except StoreUnavailable as error:
            log.debug("Old messages and events between nodes were not deleted: %s", error)


def _parse(payload: str) -> dict[str, Any]:
    """Return a message that has all fields of its kind. Raises ValueError.

    >>> _parse('{"from": 1, "note": "n", "body": ""}')["note"]
    'n'
    """
    loaded = orjson.loads(payload)
    message: dict[str, Any] = loaded if isinstance(loaded, dict) else {}
    # An answer does not name its sender; a long message is stored.
    kinds = (
        ("from", "note", "body"),
        *(("from", "id", "method", body) for body in ("body", "stored")),
        *(("id", "error", body) for body in ("body", "stored")),
    )
    texts = {name for name, value in message.items() if isinstance(value, str)} | {"from"}
    is_complete = any(message.keys() >= set(kind) <= texts for kind in kinds)
    if not is_complete or not isinstance(message.get("from", 0), int):
        raise ValueError(payload)
    return message


def _topic(node: int) -> str:
    return f"node:{node}"
