from dataclasses import replace

import pytest

from store.database import Database
from store.errors import RowNotFound
from store.pairings import CODE_TTL_S, Pairing, PairingStore

ASKED = Pairing(
    code="ABCDEFGH", channel="telegram", workspace="B1", user_id="7", user_name="Ann", chat="7",
    created_at=1000.0, approved_at=None,
)  # fmt: skip


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
    assert approved == replace(ASKED, approved_at=1500)
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
    with pytest.raises(RowNotFound):
        await pairings.approve(ASKED.code, now=1002)
