"""The remedy that lets in the sender of a refused message."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bus.access.refusal_journal import RefusalJournal
from bus.access.remedy import MAX_TEXT_CHARS, Remedy, find_remedy, refused_message
from bus.config import ChannelPolicy
from bus.messages import Attachment, InboundMessage, Sender
from bus.platform import Disposition
from store.config import StoreConfig
from store.database import Database
from store.refused_messages import RefusedMessages, RefusedRow
from tests.bus.harness import inbound_message
from tests.fakes.migrated import place_database

PAIR = ChannelPolicy(dm_policy="pairing", group_policy="pairing")
PRIVATE = inbound_message("let me in", "e1")
GROUP = replace(PRIVATE, is_private=False, chat_title="Team")
FILE = Attachment(name="a.txt", mime="text/plain", ref="f1")
GUEST = replace(PRIVATE, sender=Sender(user_id="u", name="Ann", kind="guest"))
PERSON, CHAT = Remedy(kind="person"), Remedy(kind="chat")
ADMITTED = Remedy(kind="admitted", can_answer=True)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    """Yield an open database. A fixture may do this because the database holds no task group."""
    place_database(tmp_path)
    async with Database.open(StoreConfig(), tmp_path) as opened:
        yield opened


def setting(name: str, *, can_answer: bool = False) -> Remedy:
    return Remedy(kind="setting", setting=name, can_answer=can_answer)


async def refused(database: Database, message: InboundMessage, reason: Disposition) -> RefusedRow:
    """Return the row of a refused message, read from the database."""
    store = RefusedMessages(database)
    journal = RefusalJournal(store, now=lambda: 1000.0)
    journal.note(message, reason)
    await journal.flush()
    (row,) = await store.list_recent(limit=1, before=2**62)
    return row


@pytest.mark.parametrize(
    ("message", "reason", "policy", "remedy"),
    [
        (PRIVATE, Disposition.PAIRING, PAIR, PERSON),
        (GROUP, Disposition.GROUP_PAIRING, PAIR, CHAT),
        (PRIVATE, Disposition.PAIRING, ChannelPolicy(dm_policy="open"), ADMITTED),
        (PRIVATE, Disposition.DISABLED, PAIR, PERSON),
        (
            PRIVATE,
            Disposition.DISABLED,
            ChannelPolicy(dm_policy="disabled"),
            setting("channels.fake.dm_policy"),
        ),
        (
            GROUP,
            Disposition.DISABLED,
            ChannelPolicy(group_policy="disabled"),
            setting("channels.fake.group_policy"),
        ),
        (
            PRIVATE,
            Disposition.NOT_ALLOWED,
            ChannelPolicy(dm_policy="allowlist"),
            setting("channels.fake.allowed_users"),
        ),
        (GUEST, Disposition.EXTERNAL, PAIR, setting("channels.fake.external_policy")),
        (PRIVATE, Disposition.PAIRING, None, setting("channels.fake.enabled")),
        (PRIVATE, Disposition.FROM_BOT, PAIR, setting("channels.fake.max_bot_messages")),
        (PRIVATE, Disposition.NOT_ADDRESSED, PAIR, setting("channels.fake.group_policy")),
        (PRIVATE, Disposition.QUEUE_FULL, PAIR, setting("channels.max_queue")),
        (PRIVATE, Disposition.RATE_LIMITED, PAIR, setting("channels.rate_limit.messages")),
        (
            PRIVATE,
            Disposition.RATE_LIMITED,
            ChannelPolicy(dm_policy="open"),
            setting("channels.rate_limit.messages", can_answer=True),
        ),
        (
            replace(PRIVATE, text="x" * MAX_TEXT_CHARS),
            Disposition.QUEUE_FULL,
            ChannelPolicy(dm_policy="open"),
            setting("channels.max_queue"),
        ),
        (
            replace(PRIVATE, text="", attachments=(FILE,)),
            Disposition.PAIRING,
            ChannelPolicy(dm_policy="open"),
            ADMITTED,
        ),
        (PRIVATE, Disposition.EMPTY, PAIR, Remedy(kind="none")),
    ],
)
async def test_each_refusal_has_its_remedy(
    database: Database,
    message: InboundMessage,
    reason: Disposition,
    policy: ChannelPolicy | None,
    remedy: Remedy,
) -> None:
    row = await refused(database, message, reason)
    policies = {} if policy is None else {"fake": policy}
    assert find_remedy(row, policies, set()) == remedy


async def test_who_was_approved_needs_nothing(database: Database) -> None:
    row = await refused(database, PRIVATE, Disposition.PAIRING)
    assert find_remedy(row, {"fake": PAIR}, {("fake", "w", "u")}) == ADMITTED
    row = await refused(database, GROUP, Disposition.GROUP_PAIRING)
    assert find_remedy(row, {"fake": PAIR}, {("fake", "w", "group:c")}) == ADMITTED


async def test_the_text_of_a_refused_message_is_kept_once(database: Database) -> None:
    row = await refused(database, PRIVATE, Disposition.PAIRING)
    assert "let me in" not in row.body
    assert refused_message(row) == PRIVATE
    assert refused_message(replace(row, body="{")) is None
