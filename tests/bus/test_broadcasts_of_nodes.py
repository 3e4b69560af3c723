"""A broadcast with two nodes on one database: sent once, to the chats of both."""

from functools import partial
from pathlib import Path

import anyio

from bus.notifications.broadcasts import BroadcastReceipt, BroadcastRequest
from store.config import StoreConfig
from tests.bus.harness import BusHarness
from tests.bus.test_chats_of_nodes import TwoNodes, two_nodes
from tests.bus.test_notifications import saved
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

        files = [await saved(tmp_path, "map.png", b"1" * 600_000)]
        for text in ("Down tonight", "Up again"):
            async with anyio.create_task_group() as asking:
                for node in (nodes.one, nodes.two):
                    asked = BroadcastRequest(text=text, files=files, key=text[:2])
                    asking.start_soon(ask, node, asked)
            await eventually(nodes.texts, partial(_are_all_told, text))
        await eventually(partial(_files, nodes), lambda names: len(names) >= 2 * CHATS)
        assert _files(nodes) == ["map.png"] * 2 * CHATS
        assert sorted(one.is_repeat for one in receipts) == [False, False, True, True]
        assert {one.chats for one in receipts} == {CHATS}
        assert [nodes.texts().count(text) for text in ("Down tonight", "Up again")] == [CHATS] * 2
        chats = [m.chat for node in (nodes.one, nodes.two) for m in node.platform.shown]
        assert {chats.count(f"chat {number}") for number in range(CHATS)} == {3}


def _are_all_told(text: str, shown: list[str]) -> bool:
    return shown.count(text) >= CHATS


def _files(nodes: TwoNodes) -> list[str]:
    return [name for node in (nodes.one, nodes.two) for name, _ in node.platform.files]
