"""The growing message: always the latest text, and no work for text that is never shown."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx

from bus.messages import InboundMessage, ReplyTarget, Sender, encode_inbound
from bus.outbound.live_reply import LiveReply, show_live_reply
from bus.outbound.worker import DeliveryWorker
from bus.runs.remote_files import RemoteFiles
from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database
from store.inbox import InboxRow, InboxStore, NewInboxRow
from store.outbox import OutboxStore
from tests.fakes.migrated import place_database
from tests.fakes.platform import CardPlatform

KEY = ConversationKey(channel="cards", workspace="w", chat="c")
INTERVAL_S = 1.0


@asynccontextmanager
async def showing(platform: CardPlatform, home: Path) -> AsyncIterator[LiveReply]:
    """Show a running turn."""
    inbound = InboundMessage(
        event_id="e1",
        message_id="e1",
        key=KEY,
        reply_target=ReplyTarget(chat="c", reply_to="e1"),
        sender=Sender(user_id="u"),
        text="hi",
        is_private=True,
        is_addressed=True,
    )
    async with (
        Database.open(StoreConfig(), place_database(home)) as database,
        httpx.AsyncClient(base_url="http://127.0.0.1:9") as gateway,
    ):
        delivery = DeliveryWorker(
            adapters={platform.name: platform},
            outbox=OutboxStore(database),
            files=RemoteFiles(gateway),
        )
        new = NewInboxRow(
            key=KEY,
            event_id="e1",
            message_id="e1",
            kind="chat",
            body=encode_inbound(inbound),
            received_at=1.0,
        )
        row = await InboxStore(database).accept(new, cap=20)
        assert isinstance(row, InboxRow)
        async with anyio.create_task_group() as tasks:
            await tasks.start(delivery.run)
            async with show_live_reply(delivery, row, inbound) as shown:
                yield shown
            tasks.cancel_scope.cancel()


async def frames(platform: CardPlatform, count: int) -> list[str]:
    with anyio.fail_after(20):
        while len(platform.frames) < count:
            await platform.changed.wait()
    return [text for _, text, _ in platform.frames]


async def test_text_written_while_a_card_waits_is_in_its_next_update(tmp_path: Path) -> None:
    platform = CardPlatform(patch_interval_s=INTERVAL_S)
    async with showing(platform, tmp_path) as shown:
        shown.update(lambda: "one")
        assert await frames(platform, 1) == ["one"]
        shown.update(lambda: "one two")
        await anyio.wait_all_tasks_blocked()  # the patch was requested, and waits until it is due
        shown.update(lambda: "one two three")
        assert await frames(platform, 2) == ["one", "one two three"]


async def test_only_a_text_that_is_shown_is_put_together(tmp_path: Path) -> None:
    platform, read = CardPlatform(patch_interval_s=INTERVAL_S), 0

    def text() -> str:
        nonlocal read
        read += 1
        return "words " * read

    async with showing(platform, tmp_path) as shown:
        for _ in range(1000):
            shown.update(text)
        await frames(platform, 1)
        assert read == 1


async def test_words_beyond_a_card_open_the_next_and_the_first_is_left_alone(
    tmp_path: Path,
) -> None:
    platform = CardPlatform(patch_interval_s=0.01)
    async with showing(platform, tmp_path) as shown:
        shown.update(lambda: "a" * 700)
        await frames(platform, 1)
        shown.update(lambda: "a" * 800 + "b" * 100)
        await frames(platform, 3)
        shown.update(lambda: "a" * 800 + "b" * 200)
        texts = await frames(platform, 4)
    assert texts == ["a" * 700, "a" * 800, "b" * 100, "b" * 200]
    assert [message.text for message in platform.shown] == ["a" * 800, "b" * 200]
