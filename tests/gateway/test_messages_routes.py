"""GET /api/messages: accepted and refused messages in one list, with filters, words and pages."""

import json
from pathlib import Path

import pytest

from bus.messages import InboundMessage, ReplyTarget, Sender
from bus.platform import Disposition
from store.conversations import ConversationKey
from tests.eventually import eventually
from tests.gateway.composed import ComposedService, composed


def message(number: int, text: str, chat: str = "c1") -> InboundMessage:
    return InboundMessage(
        event_id=f"e{number}",
        message_id=f"i{number}",
        key=ConversationKey(channel="terminal", workspace="local", chat=chat),
        reply_target=ReplyTarget(chat=chat),
        sender=Sender(user_id="u1", name="Ann <b>"),
        text=text,
        is_private=True,
        is_addressed=True,
    )


async def received(service: ComposedService, *messages: InboundMessage) -> None:
    bus = service.services.bus
    assert bus is not None
    for one in messages:
        assert await bus.intake.receive(one) is Disposition.ACCEPTED


async def rows(service: ComposedService, query: str = "") -> list[dict[str, object]]:
    response = await service.client.get(f"/api/messages{query}")
    assert response.status_code == 200, response.text
    return list(response.json()["rows"])


async def test_messages_are_found_by_words_and_names_and_paged(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        await received(service, *(message(n, f"tides number {n}", f"c{n}") for n in range(5)))
        await eventually(lambda: rows(service, "?q=tides"), lambda found: len(found) == 5)
        assert [row["preview"] for row in await rows(service, "?q=number+3")] == ["tides number 3"]
        assert len(await rows(service, "?q=ann&person=u1&channel=terminal")) == 5
        assert await rows(service, "?q=nothing") == []
        assert await rows(service, "?channel=slack") == []
        seen, before = [], ""
        while True:
            page = (
                await service.client.get("/api/messages", params={"limit": 2, "before": before})
            ).json()
            seen += [row["preview"] for row in page["rows"]]
            before = page["next"]
            if before is None:
                break
        assert seen == [f"tides number {n}" for n in (4, 3, 2, 1, 0)]
        assert (await service.client.get("/api/messages?before=x")).status_code == 400


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_rare_and_frequent_words_are_found_together(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("url") if engine == "postgres" else ""
    config = json.dumps({"database": {"url": url}} if url else {})
    async with composed(tmp_path, config) as service:
        database = service.services.database
        await received(service, message(1, "the start"))
        await eventually(lambda: rows(service, "?q=start"), lambda found: len(found) == 1)
        # The word is frequent in the newest messages, more often than the limit of the index query.
        fill = """
        WITH RECURSIVE turn (n) AS (
            SELECT CAST(1000 AS BIGINT) UNION ALL SELECT n + 1 FROM turn WHERE n < 3000)
        """
        insert = f"""INSERT INTO inbox (id, conversation_id, seq, event_id, kind, body, state, received_at)
        {fill} SELECT n, 1, n, 'f' || n, 'chat', '{{}}', 'done', n FROM turn"""  # noqa: S608
        words = f"""INSERT INTO message_words (inbox_id, words)
        {fill} SELECT n, 'everywhere rare' || (n % 500) FROM turn"""  # noqa: S608
        await database.transaction(lambda tx: tx.run_all([(insert, {}), (words, {})]))
        for query, ids in (
            ("everywhere+rare77", ["m2577", "m2077", "m1577", "m1077"]),
            ("rare77+everywh", ["m2577", "m2077", "m1577", "m1077"]),
            ("everywhere+start", []),
            ("start", ["m1"]),
        ):
            assert [row["id"] for row in await rows(service, f"?q={query}")] == ids, query
        assert len(await rows(service, "?q=everywhere&limit=200&state=answered")) == 200


async def test_an_answered_message_is_answered_again_with_other_words(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        await received(service, message(1, "first words"))
        found = await eventually(
            lambda: rows(service, "?state=answered"), lambda found: len(found) == 1
        )
        number = str(found[0]["id"]).removeprefix("m")
        path = f"/api/messages/{number}"
        done = await service.client.post(f"{path}/repeat", json={"text": "other words"})
        assert done.json()["success"], done.text
        found = await eventually(
            lambda: rows(service, "?state=answered"), lambda found: len(found) == 2
        )
        assert [row["preview"] for row in found] == ["other words", "first words"]
        assert (await service.client.post(f"{path}/stop")).json()["success"] is False
        assert (await service.client.post("/api/messages/99/stop")).status_code == 404


async def test_refused_messages_outlive_a_restart(tmp_path: Path) -> None:
    from_bot = Sender(user_id="b1", name="Robo", is_bot=True)
    async with composed(tmp_path) as service:
        bus = service.services.bus
        assert bus is not None
        one = InboundMessage(
            event_id="e1",
            message_id="i1",
            key=ConversationKey(channel="terminal", workspace="local", chat="c1"),
            reply_target=ReplyTarget(chat="c1"),
            sender=from_bot,
            text="beep",
            is_private=True,
            is_addressed=True,
        )
        assert await bus.intake.receive(one) is Disposition.FROM_BOT
    async with composed(tmp_path) as service:
        found = await rows(service, "?state=refused")
        assert [
            (row["user_name"], row["state"], row["reason"], row["preview"]) for row in found
        ] == [("Robo", "refused", "from_bot", "")]


async def test_a_refused_message_is_answered_after_all(tmp_path: Path) -> None:
    limit = {"rate_limit": {"messages": 1, "per_seconds": 3600}}
    async with composed(tmp_path, json.dumps({"channels": {"terminal": limit}})) as service:
        bus = service.services.bus
        assert bus is not None
        await received(service, message(1, "first words"))
        assert await bus.intake.receive(message(2, "too fast")) is Disposition.RATE_LIMITED
        [row] = await eventually(lambda: rows(service, "?state=refused"))
        assert row["remedy"] == {
            "kind": "setting",
            "setting": "channels.rate_limit.messages",
            "can_answer": True,
        }
        path = f"/api/messages/refused/{str(row['id']).removeprefix('r')}/answer"
        assert (await service.client.post(path)).json()["success"]
        found = await eventually(
            lambda: rows(service, "?state=answered"), lambda found: len(found) == 2
        )
        assert [row["preview"] for row in found] == ["too fast", "first words"]
        assert await rows(service, "?state=refused") == []
        assert (await service.client.post(path)).status_code == 404
        # A message that an administrator repeats does not count as the person's next message, either.
        again = f"/api/messages/{str(found[1]['id']).removeprefix('m')}/repeat"
        assert (await service.client.post(again, json={"text": None})).json()["success"]


async def test_a_message_of_who_is_not_admitted_cannot_be_answered(tmp_path: Path) -> None:
    async with composed(
        tmp_path, '{"channels": {"terminal": {"dm_policy": "disabled"}}}'
    ) as service:
        bus = service.services.bus
        assert bus is not None
        assert await bus.intake.receive(message(1, "hello?")) is Disposition.DISABLED
        [row] = await eventually(lambda: rows(service, "?state=refused"))
        path = f"/api/messages/refused/{str(row['id']).removeprefix('r')}/answer"
        refused = await service.client.post(path)
        assert refused.status_code == 409
        assert "not admitted" in refused.text
        assert len(await rows(service, "?state=refused")) == 1
