"""Figures of a period, on both engines."""

from collections.abc import Sequence

from store.conversations import ConversationKey
from store.database import Database
from store.figures import SAMPLE, FigureStore, PeriodFigures
from store.inbox import InboxKind, InboxRow, InboxStore, NewInboxRow, TurnEnd
from store.outbox import NewOutboxRow, OutboxStore
from store.refused_messages import RefusedMessages, RefusedRow
from store.usage import FinishedUsage, UsageRow, UsageStore

KEY = ConversationKey(channel="c", workspace="w", chat="1")


async def _accept(store: InboxStore, event: str, at: float, kind: InboxKind = "chat") -> InboxRow:
    new = NewInboxRow(key=KEY, event_id=event, message_id="", kind=kind, body="{}", received_at=at)
    row = await store.accept(new, cap=10_000)
    assert isinstance(row, InboxRow)
    return row


def _answer(row: InboxRow) -> Sequence[NewOutboxRow]:
    return [NewOutboxRow(key=f"{row.id}:reply:0", conversation=KEY, body="{}")]


def _refused(reason: str) -> RefusedRow:
    return RefusedRow(
        channel="c", workspace="w", chat="1", topic="", is_private=True, place="", user_id="u", user_name="",
        text="", reason=reason, received_at=150.0,
    )  # fmt: skip


async def test_messages_wait_while_their_question_is_open(database: Database) -> None:
    inbox, figures = InboxStore(database), FigureStore(database)
    row = await _accept(inbox, "asked", 100.0)
    await inbox.finish(row.id, [], question="{}", end=TurnEnd("waiting"))
    assert await figures.count_waiting() == 1
    other = await _accept(inbox, "answered", 101.0)
    await inbox.finish(other.id, [])
    assert await figures.count_waiting() == 1


async def test_messages_count_by_how_their_turns_ended(database: Database) -> None:
    inbox, outbox, figures = InboxStore(database), OutboxStore(database), FigureStore(database)
    ends = {
        "answered": TurnEnd(signed_at=101.0),
        "grew": TurnEnd(signed_at=103.0),
        "asked": TurnEnd("waiting"),
        "failed": TurnEnd("failed", "502"),
        "silent": TurnEnd("silent"),
        "stopped": TurnEnd("stopped"),
    }
    for name, end in ends.items():
        row = await _accept(inbox, name, 100.0)
        card = [NewOutboxRow(key=f"{row.id}:card:0", conversation=KEY, body="{}")]
        await inbox.finish(row.id, [*_answer(row), *(card if name == "grew" else [])], end=end)
    command = await _accept(inbox, "command", 100.0, "command")
    await inbox.finish_command(command.id, [])
    await _accept(inbox, "still running", 199.9)
    await _accept(inbox, "of the next period", 200.0)
    for sent in await outbox.list_open():
        await outbox.mark_sending(sent.id, now=103.0)
        if not sent.key.startswith("3:"):  # The answer to "asked" is still pending.
            at = 102.0 if "card" in sent.key else 104.0
            await outbox.mark_delivered(sent.id, "p", now=at)
    usage = UsageRow(
        day="2026-11-28", run_id="r", kind="run", model="m", agent="a", started_at=150.0,
        input_tokens=30, output_tokens=12, cost_nano_usd=7,
    )  # fmt: skip
    await UsageStore(database).add([FinishedUsage(row=usage), FinishedUsage(row=usage)])
    await RefusedMessages(database).add([_refused(r) for r in ("pairing", "not_addressed")])
    assert await figures.read(100.0, 200.0) == PeriodFigures(
        messages=7,
        answers=3,
        errors=1,
        refused=1,
        signs_s=(1.0, 2.0),
        answers_s=(4.0, 4.0),
        tokens=84,
        cost_nano_usd=14,
    )
    assert await figures.read(200.0, 300.0) == PeriodFigures(messages=1)
    assert await figures.read(0.0, 100.0) == PeriodFigures()


async def test_of_many_answers_it_looks_at_a_sample(database: Database) -> None:
    inbox, outbox = InboxStore(database), OutboxStore(database)
    for number in range(3 * SAMPLE):
        row = await _accept(inbox, str(number), 100.0 + number / 1000)
        await inbox.finish(row.id, _answer(row))
        [sent] = await outbox.find_all([f"{row.id}:reply:0"])
        await outbox.mark_sending(sent.id, now=101.0)
        await outbox.mark_delivered(sent.id, None, now=110.0)
    found = await FigureStore(database).read(100.0, 200.0)
    assert found.answers == 3 * SAMPLE
    assert len(found.answers_s) == SAMPLE
    assert found.signs_s == found.answers_s  # People saw nothing before the answer.
