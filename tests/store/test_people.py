"""The tables of people and chats: names, searches and retention, on both engines."""

from dataclasses import replace

from store.chats import ChatStore, KnownChat
from store.database import Database
from store.message_words import MessageWords
from store.people import KnownPerson, PeopleStore, person_statement
from store.retention import DAY_S, Retention

ANN = KnownPerson(
    id="slack:T:U1",
    channel="slack",
    workspace="T",
    user_id="U1",
    name="Ann",
    kind="member",
    messages=1,
    received_at=5.0,
)
ROOM = KnownChat(
    channel="slack",
    workspace="T",
    chat="C1",
    is_private=False,
    user_id="U1",
    user_kind="member",
    recipient="",
    received_at=5.0,
    room="slack:T:C1",
    title="Ops",
)


async def add(database: Database, *people: KnownPerson) -> None:
    await MessageWords(database).add([], [person_statement(one) for one in people])


async def test_a_person_keeps_the_last_known_name_and_all_messages(database: Database) -> None:
    store = PeopleStore(database)
    await add(database, ANN, replace(ANN, name="", messages=2, received_at=6.0))
    found = await store.find("slack", "U1")
    assert found == replace(ANN, messages=3, received_at=6.0)
    assert await store.find("slack", "U1", workspace="other") is None
    assert await store.names(["slack:T:U1", "slack:T:U9"]) == {"slack:T:U1": "Ann"}


async def test_people_are_found_by_any_part_of_name_or_id(database: Database) -> None:
    store = PeopleStore(database)
    bo = replace(
        ANN, id="feishu:t:ou_2", channel="feishu", user_id="ou_2", name="ÄNNE 100%", received_at=9.0
    )
    await add(database, ANN, bo)

    async def found(text: str, channel: str = "") -> list[str]:
        people = await store.search(text, channel=channel, limit=9, offset=0)
        return [one.user_id for one in people]

    assert await found("") == ["ou_2", "U1"]
    assert await found("änne") == await found("100%") == await found("U_2") == ["ou_2"]
    assert await found("u1") == await found("", "slack") == ["U1"]
    assert await found("a!n") == []
    assert [one.user_id for one in await store.search("", channel="", limit=1, offset=1)] == ["U1"]


async def test_rooms_are_found_and_keep_their_names(database: Database) -> None:
    store = ChatStore(database)
    await store.put([ROOM, replace(ROOM, chat="D1", is_private=True, title="Ann", room="r")])
    await store.put([replace(ROOM, title="", received_at=6.0)])

    async def found(text: str, *, is_private: bool) -> list[str]:
        chats = await store.search(text, channel="", is_private=is_private, limit=9, offset=0)
        return [one.title for one in chats]

    assert await found("ops", is_private=False) == ["Ops"]
    assert await found("", is_private=True) == ["Ann"]
    assert await found("ops", is_private=True) == []
    every = await store.search("", channel="slack", is_private=None, limit=9, offset=0)
    assert {one.title for one in every} == {"Ops", "Ann"}
    assert await store.titles(["slack:T:C1", "x"]) == {"slack:T:C1": "Ops"}


async def test_people_are_kept_for_the_retention(database: Database) -> None:
    store = PeopleStore(database)
    await add(database, ANN)
    await Retention(database).prune(now=60 * DAY_S)
    assert await store.find("slack", "U1") is not None
    await Retention(database).prune(now=366 * DAY_S)
    assert await store.find("slack", "U1") is None
