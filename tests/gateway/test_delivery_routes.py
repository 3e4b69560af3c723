"""/api/channels/outbox: lists, counts and changes of deliveries that match a filter."""

import time
from pathlib import Path
from typing import Any

from bus.messages import OutboundText, ReplyTarget, encode_outbound
from store.conversations import ConversationKey
from store.outbox import NewOutboxRow
from tests.gateway.composed import ComposedService, composed

OUTBOX = "/api/channels/outbox"


async def failed_rows(
    service: ComposedService, count: int, *, error: str = "kicked", channel: str = "gone"
) -> list[int]:
    """Store failed deliveries of a channel that is not running."""
    bus = service.services.bus
    assert bus is not None
    key = ConversationKey(channel=channel, workspace="w", chat="c1")
    body = OutboundText(channel=channel, reply_target=ReplyTarget(chat="c1"), markdown="hello")
    new = [
        NewOutboxRow(key=f"{channel}:{error}:{n}", conversation=key, body=encode_outbound(body))
        for n in range(count)
    ]
    rows = await bus.outbox.enqueue(new)
    for row in rows:
        await bus.outbox.mark_sending(row.id, now=time.time())
        await bus.outbox.mark_failed(row.id, error=error, now=time.time())
    return [row.id for row in rows]


async def listed(service: ComposedService, query: str) -> list[dict[str, Any]]:
    response = await service.client.get(f"{OUTBOX}?{query}")
    assert response.status_code == 200, response.text
    return list(response.json()["rows"])


async def counted(service: ComposedService, query: str) -> dict[str, int]:
    return dict((await service.client.get(f"{OUTBOX}/count?{query}")).json())


async def test_all_that_match_are_discarded_and_restored_in_batches(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        ids = await failed_rows(service, 250)
        await failed_rows(service, 3, error="blocked")
        before = await listed(service, "q=kicked&limit=300")
        query = "state=failed&channel=gone&q=KICK"
        assert await counted(service, query) == {
            "count": 250, "resendable": 250, "discardable": 250,
        }  # fmt: skip
        done = (await service.client.post(f"{OUTBOX}/discard?{query}")).json()
        assert (done["matched"], done["changed"], done["remaining"]) == (250, 250, 0)
        assert (await counted(service, "channel=gone"))["count"] == 3
        discarded = await listed(service, "state=discarded&limit=300")
        assert [row["id"] for row in discarded] == ids[::-1]
        assert {row["state"] for row in discarded} == {"discarded"}

        undo = f"{OUTBOX}/restore?batch={done['batch']}"
        assert (await service.client.post(undo)).json()["changed"] == 250
        assert await listed(service, "q=kicked&limit=300") == before
        assert (await service.client.post(undo)).status_code == 404


async def test_all_that_match_are_sent_again(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        await failed_rows(service, 120)
        await failed_rows(service, 2, channel="other")
        done = (await service.client.post(f"{OUTBOX}/resend?channel=gone")).json()
        assert (done["matched"], done["changed"], done["batch"]) == (120, 120, "")
        assert (await counted(service, "state=pending"))["count"] == 120
        assert (await counted(service, "state=failed"))["count"] == 2
        # Pending deliveries are discarded only if the filter includes them.
        assert (await counted(service, ""))["discardable"] == 2
        assert (await counted(service, "state=pending"))["discardable"] == 120
        again = await service.client.post(f"{OUTBOX}/resend?state=delivered")
        assert again.status_code == 400
        assert again.json()["detail"] == "Delivered deliveries cannot be sent again."


async def test_one_is_discarded_and_restored(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        (row_id,) = await failed_rows(service, 1)
        before = await listed(service, "")
        assert (await service.client.delete(f"{OUTBOX}/{row_id}")).status_code == 204
        assert await listed(service, "") == []
        restored = await service.client.post(f"{OUTBOX}/{row_id}/restore")
        assert restored.json()["success"]
        assert await listed(service, "") == before
        for path in (f"{row_id}/restore", "999/restore", "999/resend"):
            assert (await service.client.post(f"{OUTBOX}/{path}")).status_code == 404


async def test_changes_need_more_than_a_token_that_reads(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        made = await service.client.post("/api/tokens", json={"name": "screen", "scope": "read"})
        reader = {"Authorization": f"Bearer {made.json()['token']}"}
        counts = await service.stranger.get(f"{OUTBOX}/count", headers=reader)
        assert counts.status_code == 200
        for path in ("resend", "discard", "restore?batch=b", "1/restore"):
            refused = await service.stranger.post(f"{OUTBOX}/{path}", headers=reader)
            assert refused.status_code == 403
