"""/api/conversations/{thread_id}/takeover: permissions, responses, and the records that it leaves."""

import json
from pathlib import Path

from httpx import AsyncClient, Response

from bus.locales.en import ENGLISH
from bus.notifications.rows import TAKEOVER_HEADING
from tests.eventually import eventually
from tests.gateway.composed import ComposedService, composed
from tests.gateway.test_messages_routes import message, received, rows

QUIET = "channels: {takeover: {tell_people: false}}"


async def answered(service: ComposedService) -> str:
    """Create a conversation with a thread. Return the address of its routes."""
    await received(service, message(1, "first words"))
    [row] = await eventually(
        lambda: rows(service, "?state=answered"), lambda found: len(found) == 1
    )
    return f"/api/conversations/{row['thread_id']}/takeover"


async def ok(response: Response, status: int = 200) -> dict[str, object]:
    assert response.status_code == status, response.text
    return dict(response.json())


async def token_of(client: AsyncClient, name: str, scope: str) -> dict[str, str]:
    made = await client.post("/api/tokens", json={"name": name, "scope": scope})
    return {"X-Api-Key": str((await ok(made, 201))["token"])}


async def test_a_conversation_is_taken_over_written_in_and_handed_back(tmp_path: Path) -> None:
    async with composed(tmp_path, QUIET) as service:
        address, client = await answered(service), service.client
        ops = await token_of(client, "ops", "operator")
        assert (await ok(await client.get(address)))["by"] is None
        refused = await client.post(f"{address}/messages", json={"text": "Hello"})
        assert refused.status_code == 409
        assert (await client.delete(address)).status_code == 409
        taken = await ok(await service.stranger.post(address, headers=ops))
        assert (taken["by"], taken["summary"]) == ("ops", "")
        again = await ok(await client.post(address))
        assert (again["by"], again["since"]) == ("ops", taken["since"])
        await received(service, message(2, "Is anybody there?"))
        asked = {"text": "Ann is **here**", "key": "one"}
        for is_repeat in (False, True):
            sent = await ok(await client.post(f"{address}/messages", json=asked), 202)
            assert (sent["is_repeat"], sent["chat"]) == (is_repeat, "c1")
        assert (await client.post(f"{address}/messages", json={"text": " "})).status_code == 422
        timeline = await ok(await client.get(address.replace("takeover", "timeline")))
        rows_of = [(one["kind"], one["user_name"], one["state"]) for one in timeline["rows"]]  # type: ignore[attr-defined]
        assert ("chat", "Ann <b>", "taken_over") in rows_of
        assert ("sent", "admin") in [(kind, name) for kind, name, _ in rows_of]
        [row] = await rows(service, "?state=taken_over")
        assert (row["state"], row["preview"]) == ("taken_over", "Is anybody there?")
        listed = (await client.get("/api/channels/conversations")).json()["rows"]
        assert [one["taken_over_by"] for one in listed] == ["ops"]
        assert "parley_takeovers 1.0" in (await client.get("/metrics")).text
        back = await ok(await client.delete(address))
        assert (back["by"], str(back["summary"]).splitlines()[:2]) == (
            None,
            [TAKEOVER_HEADING, "> Person Ann <b>: Is anybody there?"],
        )
        assert "parley_takeovers 0.0" in (await client.get("/metrics")).text


async def test_only_who_may_change_something_takes_over(tmp_path: Path) -> None:
    async with composed(tmp_path, QUIET) as service:
        address, client = await answered(service), service.client
        reader = await token_of(client, "reader", "read")
        stranger = service.stranger
        assert (await stranger.get(address)).status_code == 401
        assert (await stranger.get(address, headers=reader)).status_code == 200
        for response in (
            await stranger.post(address, headers=reader),
            await stranger.delete(address, headers=reader),
            await stranger.post(f"{address}/messages", json={"text": "x"}, headers=reader),
        ):
            assert response.status_code == 403
        unknown = "/api/conversations/unknown/takeover"
        assert (await client.get(unknown)).status_code == 404
        assert (await client.post(unknown)).status_code == 404
        assert (await client.delete(unknown)).status_code == 404


async def test_each_step_is_in_the_audit_log_without_words(tmp_path: Path) -> None:
    async with composed(tmp_path, QUIET) as service:
        address, client = await answered(service), service.client
        ops = await token_of(client, "ops", "operator")
        await ok(await service.stranger.post(address, headers=ops))
        sent = await ok(await client.post(f"{address}/messages", json={"text": "secret"}), 202)
        await ok(await client.delete(address))
        log = (tmp_path / "home" / "audit.log").read_text()
        found = [json.loads(line) for line in log.splitlines() if "takeover" in line]
        assert "secret" not in log
        assert [(one["who"], one["action"].partition(" ")[0], one["detail"]) for one in found] == [
            ("token ops", "POST", "terminal chat c1, taken over by ops"),
            (found[1]["who"], "POST", f"message {sent['key']} to chat c1"),
            (found[1]["who"], "DELETE", "terminal chat c1, taken over by ops"),
        ]


async def test_open_pages_learn_of_it_and_people_are_told(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        address, client = await answered(service), service.client
        feed = service.services.changes.read("")
        assert b"retry" in await anext(feed)
        await ok(await client.post(address))
        seen = b""
        while b"takeovers" not in seen:
            seen += await anext(feed)
        listed = (await client.get("/api/channels/outbox")).json()["rows"]
        assert listed[0]["preview"] == ENGLISH.taken_over
