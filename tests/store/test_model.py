"""The inbox and the outbox, compared step by step with a model of them, including restarts."""

import tempfile
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from typing_extensions import override

from store.config import StoreConfig
from store.conversations import ConversationKey, ConversationStore
from store.database import Database
from store.inbox import DuplicateMessage, InboxRow, InboxStore, NewInboxRow, QueueFull
from store.outbox import NewOutboxRow, OutboxStore
from tests.fakes.postgres import MISSING, PostgresServer

T = TypeVar("T")
CAP = 3
CHATS = st.sampled_from(["a", "b"])


@dataclass
class AcceptedMessage:
    """The expected row."""

    id: int
    chat: str
    kind: str
    state: str = "new"


class InboxMachine(RuleBasedStateMachine):
    """The bus's operations on the journal, in any order."""

    def __init__(self, config: StoreConfig | None = None) -> None:
        super().__init__()
        self._config = config or StoreConfig(readers=1)
        self._folder = tempfile.TemporaryDirectory()
        self._portal_context = start_blocking_portal()
        self._portal: BlockingPortal = self._portal_context.__enter__()
        self._stack = AsyncExitStack()
        self.rows: dict[int, AcceptedMessage] = {}
        self.seen: set[str] = set()
        self.seqs: dict[str, int] = {}
        self.owed: dict[str, str] = {}
        self._open()

    def _open(self) -> None:
        async def enter() -> Database:
            return await self._stack.enter_async_context(
                Database.open(self._config, Path(self._folder.name))
            )

        self._database = self._portal.call(enter)
        self._inbox, self._outbox = InboxStore(self._database), OutboxStore(self._database)

    def _close(self) -> None:
        self._portal.call(self._stack.aclose)
        self._stack = AsyncExitStack()

    @override
    def teardown(self) -> None:
        self._close()
        self._portal_context.__exit__(None, None, None)
        self._folder.cleanup()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        async def run() -> T:
            with anyio.fail_after(20):
                return await work

        return self._portal.call(run)

    @rule()
    def restart(self) -> None:
        self._close()
        self._open()

    @rule(chat=CHATS, event=st.integers(0, 30), kind=st.sampled_from(["chat", "command"]))
    def accept(self, chat: str, event: int, kind: str) -> None:
        new = NewInboxRow(
            key=_key(chat),
            event_id=f"e{event}",
            message_id="",
            kind="chat" if kind == "chat" else "command",
            body="{}",
            received_at=float(event),
        )
        result = self._do(self._inbox.accept(new, cap=CAP))
        if new.event_id in self.seen:
            assert result == DuplicateMessage()
            return
        self.seen.add(new.event_id)
        waiting = [
            r for r in self.rows.values() if (r.chat, r.kind, r.state) == (chat, "chat", "new")
        ]
        if kind == "chat" and len(waiting) >= CAP:
            assert isinstance(result, QueueFull)
            return
        assert isinstance(result, InboxRow)
        self.seqs[chat] = self.seqs.get(chat, 0) + 1
        assert result.seq == self.seqs[chat]
        assert result.id not in self.rows
        self.rows[result.id] = AcceptedMessage(result.id, chat, kind)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        row = self.rows[data.draw(st.sampled_from(sorted(self.rows)))]
        started = self._do(self._inbox.mark_running(row.id, thread_id="t"))
        assert (started is not None) == (row.state in ("new", "running"))
        if started:
            row.state = "running"

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), dead=st.booleans(), answers=st.integers(0, 2))
    def finish(self, data: st.DataObject, dead: bool, answers: int) -> None:
        row = self.rows[data.draw(st.sampled_from(sorted(self.rows)))]
        owed = [
            NewOutboxRow(key=f"{row.id}:{i}", conversation=_key(row.chat), body="")
            for i in range(answers)
        ]
        finished = self._do(self._inbox.finish(row.id, owed, dead=dead))
        assert finished == (row.state in ("new", "running"))
        if finished:
            row.state = "dead" if dead else "done"
            self.owed.update({new.key: "pending" for new in owed})

    @precondition(lambda self: self.owed)
    @rule(data=st.data(), step=st.sampled_from(["begin", "ok", "doubt", "later", "fail", "resend"]))
    def deliver(self, data: st.DataObject, step: str) -> None:
        key = data.draw(st.sampled_from(sorted(self.owed)))
        row = self._do(self._outbox.find(key))
        assert row is not None
        is_open = self.owed[key] in ("pending", "sending")
        if step == "begin":
            assert self._do(self._outbox.mark_sending(row.id, now=1.0)) == is_open
        elif step in ("ok", "doubt"):
            self._do(self._outbox.mark_delivered(row.id, "m", now=1.0, uncertain=step == "doubt"))
        elif step == "later":
            self._do(self._outbox.reschedule(row.id, not_before=2.0, error="429", now=1.0))
        elif step == "fail":
            self._do(self._outbox.mark_failed(row.id, error="no", now=1.0))
        else:
            self._resend(row.id, self.owed[key] in ("failed", "uncertain"))
            is_open = self.owed[key] in ("failed", "uncertain")
        if is_open:
            self.owed[key] = AFTER[step]

    def _resend(self, delivery_id: int, possible: bool) -> None:
        assert bool(self._do(self._outbox.resend([delivery_id], now=1.0))) == possible

    @invariant()
    def the_journal_is_as_the_model_says(self) -> None:
        unfinished = [row.id for row in self._do(self._inbox.list_unfinished())]
        assert sorted(unfinished) == [
            row.id for row in self.rows.values() if row.state in ("new", "running")
        ]
        states = {row.key: row.state for row in self._do(self._outbox.list_recent(limit=1000))}
        assert states == self.owed
        for conversation in self._do(ConversationStore(self._database).list_recent()):
            pending = [
                row
                for row in self.rows.values()
                if row.chat == conversation.key.chat
                and row.kind == "chat"
                and row.state in ("new", "running")
            ]
            assert conversation.pending == len(pending)


AFTER = {
    "begin": "sending",
    "ok": "delivered",
    "doubt": "uncertain",
    "later": "pending",
    "fail": "failed",
    "resend": "pending",
}


def _key(chat: str) -> ConversationKey:
    return ConversationKey(channel="slack", workspace="T", chat=chat)


TestJournal = InboxMachine.TestCase
TestJournal.settings = settings(
    max_examples=15,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


class PostgresMachine(InboxMachine):
    """The same on PostgreSQL, with a new database for each run."""

    server: PostgresServer

    def __init__(self) -> None:
        self._postgres = self.server.database()
        super().__init__(StoreConfig(url=self._postgres.__enter__()))

    @override
    def teardown(self) -> None:
        super().teardown()
        self._postgres.__exit__(None, None, None)


def test_the_journal_on_postgres_is_as_the_model_says(postgres: PostgresServer | None) -> None:
    if postgres is None:
        pytest.skip(MISSING)
    few = settings(TestJournal.settings, max_examples=3)
    PostgresMachine.server = postgres
    run_state_machine_as_test(PostgresMachine, settings=few)
