"""A broadcast with two nodes on one database: sent once, to the chats of both."""

from functools import partial
from pathlib import Path

import anyio

from bus.notifications.broadcasts import BroadcastReceipt, BroadcastRequest
from store.config import StoreConfig
from tests.bus.harness import BusHarness
from tests.bus.test_chats_of_nodes import two_nodes
from tests.eventually import eventually

CHATS = 12


async def test_two_nodes_accept_a_broadcast_once_and_send_it_once(
    store: StoreConfig, tmp_path: Path
) -> None:
    async with two_nodes(store, tmp_path) as nodes:
        for number in range(CHATS):
            await nodes.one.send("/status", user=f"p{number}", chat=f"chat {number}")
        await eventually(lambda: len(nodes.texts()) == CHATS)
        receipts: list[BroadcastReceipt] = []

        async def ask(node: BusHarness, request: BroadcastRequest) -> None:
            receipts.append(await node.bus.broadcasts.accept(request, ["fake"]))

        for text in ("Down tonight", "Up again"):
            async with anyio.create_task_group() as asking:
                for node in (nodes.one, nodes.two):
                    asking.start_soon(ask, node, BroadcastRequest(text=text, key=text[:2]))
            await eventually(nodes.texts, partial(_are_all_told, text))
        assert sorted(one.is_repeat for one in receipts) == [False, False, True, True]
        assert {one.chats for one in receipts} == {CHATS}
        assert [nodes.texts().count(text) for text in ("Down tonight", "Up again")] == [CHATS] * 2
        chats = [m.chat for node in (nodes.one, nodes.two) for m in node.platform.shown]
        assert {chats.count(f"chat {number}") for number in range(CHATS)} == {3}


def _are_all_told(text: str, shown: list[str]) -> bool:
    return shown.count(text) >= CHATS
