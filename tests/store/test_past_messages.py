"""Searching past messages by their words, on both engines: tokens of several languages, scopes, deletion."""

import time

import pytest

from store.database import Database
from store.past_messages import PastMessage, PastMessages
from store.retention import DAY_S, Retention
from store.threads import ThreadStore

ANN, ROOM = "person:slack:T1:U1", "room:slack:T1:C1"


@pytest.fixture
async def messages(database: Database) -> PastMessages:
    for thread in ("t1", "t2"):
        await ThreadStore(database).create(thread, {}, now=0)
    return PastMessages(database)


def said(text: str, scope: str = ANN, **more: object) -> PastMessage:
    fields = {
        "scope": scope, "agent": "", "thread_id": "t1", "message_id": text, "speaker": "Ann U1",
        "text": text, "said_at": time.time(), **more,
    }  # fmt: skip
    return PastMessage(**fields)  # type: ignore[arg-type]


async def found(messages: PastMessages, query: str, scope: str = ANN, agent: str = "") -> list[str]:
    return [one.text for one in await messages.search(scope, agent, query, limit=10)]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Our deployments are on Fridays", "when do we deploy? friday"),
        ("我的生日是五月三日", "生日"),
        ("明天在上海和小李开会", "小李 会议在哪里"),
        ("来週の会議は東京です", "東京"),
        ("データベースはポスグレです", "データベース"),
        ("喝茶", "茶"),
        ("생일은 오월입니다", "생일"),
        ("Größe der Straße: 5 m", "GRÖSSE"),
        ("The host is db-42.example.com", "db-42"),
        ("ｆｕｌｌ ｗｉｄｔｈ １２３", "width 123"),
        ("it's O'Brien's \"quoted\" plan & (more) | less", "o'brien's \"plan\" & | ( :* "),
    ],
)
async def test_words_of_any_language_are_found(
    messages: PastMessages, text: str, query: str
) -> None:
    others = [said(f"something else {n}. 没有关系。関係ない。") for n in range(5)]
    await messages.add([("", [said(text), *others])])
    assert (await found(messages, query))[0] == text


@pytest.mark.parametrize(
    "query", ["", "?", "'", '"', "\\", "nothing like it", "生月", "\0", "NOT NEAR(a)", "%"]
)
async def test_odd_queries_find_nothing(messages: PastMessages, query: str) -> None:
    await messages.add([("", [said("我的生日是五月三日")])])
    assert await found(messages, query) == []


async def test_a_scope_never_finds_the_words_of_another(messages: PastMessages) -> None:
    await messages.add(
        [
            ("", [said("mango of Ann")]),
            ("mango of Ann", [said("mango of the room", ROOM)]),
            ("mango of the room", [said("mango of her writer", agent="writer")]),
            ("", [said("mango in a thread that is gone", thread_id="unknown")]),
        ]
    )
    assert await found(messages, "mango") == ["mango of Ann"]
    assert await found(messages, "mango", ROOM) == ["mango of the room"]
    assert await found(messages, "mango", agent="writer") == ["mango of her writer"]
    for other in ("", "room:slack:T1:C2", "person:slack:T1", ANN.lower(), "mango"):
        assert await found(messages, "mango", other) == []


async def test_the_best_match_comes_first_then_the_newest(messages: PastMessages) -> None:
    texts = ["old mango", "mango and papaya", "new mango", "papaya alone"]
    await messages.add([("", [said(text) for text in texts])])
    assert await found(messages, "mango papaya") == [
        *("mango and papaya", "papaya alone", "new mango", "old mango"),
    ]


async def test_what_was_taken_back_goes_with_the_next_turn(messages: PastMessages) -> None:
    await messages.add([("", [said("first apple")]), ("first apple", [said("second apple")])])
    await messages.add([("first apple", [said("another apple")])])
    assert sorted(await found(messages, "apple")) == ["another apple", "first apple"]
    await messages.add([("first apple", [said("another apple")])])  # The same turn, answered again.
    assert len(await found(messages, "apple")) == 2
    await messages.add([("", [said("a new apple")])])  # The first turn was undone, too.
    assert await found(messages, "apple") == ["a new apple"]


async def test_a_message_goes_with_what_was_said_after_it(messages: PastMessages) -> None:
    texts = ("first", "second", "answer", "third")
    rows = [*(said(f"mango {text}") for text in texts), said("mango in t2", thread_id="t2")]
    await messages.add([("", rows)])
    await messages.delete_from("t1", "unknown")
    assert len(await found(messages, "mango")) == 5
    await messages.delete_from("t1", "mango second")
    assert await found(messages, "mango") == ["mango in t2", "mango first"]


async def test_what_is_forgotten_is_not_found(messages: PastMessages, database: Database) -> None:
    now = time.time()
    turn = [said("mango one", said_at=5.0), said("mango answer", said_at=5.0, speaker="")]
    rows = [
        said("mango two", said_at=6.0),
        said("mango three", thread_id="t2"),
        said("mango", ROOM),
    ]
    await messages.add([("", [*turn, *rows])])
    await messages.delete_turn("t1", "mango one")
    assert await found(messages, "mango") == ["mango three", "mango two"]
    await ThreadStore(database).delete("t2")
    assert await found(messages, "mango") == ["mango two"]
    await Retention(database).prune(now=now + DAY_S)
    assert await found(messages, "mango") == []
    assert await found(messages, "mango", ROOM) == ["mango"]
    await messages.delete_scope(ROOM, "writer")
    assert await found(messages, "mango", ROOM) == ["mango"]
    await messages.delete_scope(ROOM, None)
    assert await found(messages, "mango", ROOM) == []
