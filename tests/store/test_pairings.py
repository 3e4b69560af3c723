from dataclasses import replace

import pytest

from store.conversations import ConversationKey
from store.database import Database
from store.errors import RowNotFound
from store.outbox import OutboxStore
from store.pairings import CODE_TTL_S, TELL_AFTER_S, Pairing, PairingStore
from store.retention import Retention

ASKED = Pairing(
    code="ABCDEFGH", channel="telegram", workspace="B1", user_id="7", user_name="Ann", chat="7",
    text="let me in", notice='{"kind": "text"}', created_at=1000.0,
)  # fmt: skip
KEY = ConversationKey(channel="telegram", workspace="B1", chat="7")


async def test_a_person_has_one_open_request(database: Database) -> None:
    pairings = PairingStore(database, now=lambda: 1000.0)
    assert await pairings.request(ASKED) == ASKED
    assert await pairings.request(replace(ASKED, code="ZZZZZZZZ", created_at=1001)) == ASKED
    assert await pairings.list_all() == [ASKED]


async def test_a_pairing_code_admits_only_its_person(database: Database) -> None:
    pairings = PairingStore(database)
    await pairings.request(ASKED)
    assert not await pairings.is_paired("telegram", "B1", "7")
    approved = await pairings.approve(" abcdefgh ", now=1500)
    assert approved == replace(ASKED, approved_at=1500, text="", notice="")
    assert await pairings.approve("ABCDEFGH", now=1600) == approved
    assert await pairings.is_paired("telegram", "B1", "7")
    assert not await pairings.is_paired("telegram", "B1", "8")
    assert not await pairings.is_paired("telegram", "B2", "7")
    assert not await pairings.is_paired("slack", "B1", "7")


async def test_a_code_lives_one_hour(database: Database) -> None:
    pairings = PairingStore(database, now=lambda: 1000 + CODE_TTL_S)
    await pairings.request(ASKED)
    for code, now in (("ABCDEFGH", 1000 + CODE_TTL_S), ("WRONGWRO", 1001)):
        with pytest.raises(RowNotFound):
            await pairings.approve(code, now=now)
    assert await pairings.list_all() == []
    fresh = replace(ASKED, code="JKLMNPQR", created_at=1000 + CODE_TTL_S)
    assert await pairings.request(fresh) == fresh


async def test_a_channel_has_a_bounded_number_of_open_requests(database: Database) -> None:
    pairings = PairingStore(database)
    for index in range(3):
        new = replace(ASKED, code=f"CODE{index}", user_id=str(index))
        assert await pairings.request(new, max_open=3) == new
    more = replace(ASKED, code="MORE", user_id="more")
    assert await pairings.request(more, max_open=3) is None
    assert (
        await pairings.request(replace(more, code="ELSE", channel="slack"), max_open=3) is not None
    )
    await pairings.approve("CODE0", now=1001)
    assert await pairings.request(more, max_open=3) == more


async def test_a_persons_access_can_be_revoked(database: Database) -> None:
    pairings = PairingStore(database)
    await pairings.request(ASKED)
    assert not await pairings.revoke("telegram", "7")
    await pairings.approve(ASKED.code, now=1001)
    assert await pairings.revoke("telegram", "7")
    assert not await pairings.is_paired("telegram", "B1", "7")
    assert not await pairings.revoke("telegram", "7")
    assert await pairings.list_all() == []


async def test_a_revocation_is_undone_within_an_hour(database: Database) -> None:
    at = [1001.0]
    pairings = PairingStore(database, now=lambda: at[0])
    await pairings.request(ASKED)
    approved = await pairings.approve(ASKED.code, now=1001)
    await pairings.revoke("telegram", "7")
    # They wrote again in the meantime, and got a new code.
    await pairings.request(replace(ASKED, code="JKLMNPQR", created_at=1002.0))
    assert await pairings.approve(ASKED.code, now=1003) == approved
    assert await pairings.list_all() == [approved]
    assert await pairings.is_paired("telegram", "B1", "7")
    await pairings.revoke("telegram", "7")
    with pytest.raises(RowNotFound):
        await pairings.approve(ASKED.code, now=1001 + CODE_TTL_S)
    await Retention(database).prune(now=1002 + CODE_TTL_S)
    assert await database.read("SELECT * FROM pairing") == []


async def test_an_approved_person_is_told_once(database: Database) -> None:
    pairings, outbox = PairingStore(database), OutboxStore(database, now=lambda: 1001.0)
    await pairings.request(ASKED)
    for now in (1001, 1002):
        await pairings.approve(ASKED.code, now=now)
    (row,) = await outbox.list_recent()
    assert (row.key, row.conversation, row.body) == ("approved:ABCDEFGH", KEY, ASKED.notice)
    assert row.not_before == 1001 + TELL_AFTER_S
    await outbox.mark_sending(row.id, now=1020)
    await outbox.mark_delivered(row.id, "1", now=1020)
    await pairings.revoke("telegram", "7")
    await pairings.approve(ASKED.code, now=1021)
    assert [one.state for one in await outbox.list_recent()] == ["delivered"]


async def test_a_person_whose_approval_is_undone_is_not_told(database: Database) -> None:
    pairings, outbox = PairingStore(database), OutboxStore(database, now=lambda: 1001.0)
    await pairings.request(ASKED)
    await pairings.approve(ASKED.code, now=1001)
    await pairings.revoke("telegram", "7")
    assert await outbox.list_recent() == []


async def test_somebody_is_admitted_without_a_code(database: Database) -> None:
    pairings = PairingStore(database, now=lambda: 1001.0)
    await pairings.request(ASKED)
    other = replace(ASKED, code="JKLMNPQR")
    first = await pairings.admit(other, now=1001)
    assert first == replace(ASKED, approved_at=1001, text="", notice="")
    assert await pairings.admit(other, now=1002) == first
    stranger = replace(other, user_id="8", chat="8")
    assert await pairings.admit(stranger, now=1003) == replace(
        stranger, approved_at=1003, text="", notice=""
    )
    rows = await OutboxStore(database).list_recent()
    assert {row.key for row in rows} == {"approved:ABCDEFGH", "approved:JKLMNPQR"}
