"""POST /hooks/{name} over the network: correct, wrong, slow, huge and many requests."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from contextvars import Context, copy_context
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from typing_extensions import TypeVarTuple, Unpack, override

from gateway.serving.event_loop import FairEventLoop
from store.work_group import WORK_GROUP
from tests.eventually import eventually
from tests.gateway.composed import ComposedService, composed
from tests.hook_senders import SECRET, signed, signed_by_github

TELEGRAM = {"enabled": True, "bot_token": "1:x", "base_url": "http://127.0.0.1:1/bot"}
HOOK = {"secret": SECRET, "channel": "telegram", "chat": "7", "prompt": "Build {number} failed."}
CONFIG = json.dumps(
    {
        "channels": {"telegram": TELEGRAM},
        "hooks": {"builds": HOOK, "pushes": {**HOOK, "form": "github"}},
    }
)

_Arguments = TypeVarTuple("_Arguments")


async def post(
    service: ComposedService, event: tuple[dict[str, str], bytes], name: str = "builds"
) -> httpx.Response:
    """Send an event like a system without a token."""
    headers, body = event
    return await service.stranger.post(f"/hooks/{name}", content=body, headers=headers)


async def inbox(service: ComposedService) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await service.client.get("/api/channels/inbox")).json()["rows"]
    return rows


async def test_a_signed_event_is_stored_before_it_is_acknowledged(tmp_path: Path) -> None:
    async with composed(tmp_path, CONFIG) as service:
        first = await post(service, signed({"number": 7}, "d1"))
        assert (first.status_code, first.json()) == (202, {"status": "accepted"})
        [row] = await inbox(service)
        assert (row["event_id"], row["user_id"]) == ("hook:builds:d1", "hook:builds")
        assert row["preview"] == "Build <hook_data>7</hook_data> failed."
        again = await post(service, signed({"number": 7}, "d1"))
        assert (again.status_code, again.json()) == (200, {"status": "duplicate"})
        ping = await post(service, signed_by_github({"zen": "x"}, "g1", "ping"), "pushes")
        assert (ping.status_code, ping.json()) == (200, {"status": "pong"})
        push = await post(service, signed_by_github({"number": 8}, "g2"), "pushes")
        assert push.status_code == 202
        assert len(await inbox(service)) == 2


Event = tuple[dict[str, str], bytes]


@pytest.mark.parametrize(
    ("make", "status"),
    [
        # Functions, because a test may run long after its collection, when a signature would be too old.
        (lambda: signed({}, "d", secret="another secret .."), 401),
        (lambda: signed({}, "d", at=time.time() - 3600), 401),
        (lambda: signed({}, "d", at=time.time() + 3600), 401),
        (lambda: signed_by_github({}, "d"), 401),
        (lambda: ({}, b"{}"), 401),
        (lambda: ({"authorization": "Bearer test-token-0123"}, b"{}"), 401),
        (lambda: signed(b"\xff\xfe{", "d"), 400),
        (lambda: signed(b"not JSON", "d"), 400),
        (lambda: signed(b"[" * 1_000_000, "d"), 400),
        (lambda: signed(b"x" * 5_000_001, "d"), 413),
    ],
)
async def test_other_requests_are_rejected_and_leave_nothing(
    tmp_path: Path, make: Callable[[], Event], status: int
) -> None:
    async with composed(tmp_path, CONFIG) as service:
        refused = await post(service, make())
        assert refused.status_code == status
        assert refused.json()["detail"]
        assert await inbox(service) == []


async def test_unknown_hooks_and_methods_are_refused(tmp_path: Path) -> None:
    async with composed(tmp_path, CONFIG) as service:
        wrong = await post(service, signed({}, "d", secret="another secret .."))
        for name in ("nothing", "%2e%2e", "builds%20"):
            unknown = await post(service, signed({}, "d"), name)
            # The names of hooks cannot be guessed from responses.
            assert (unknown.status_code, unknown.json()) == (wrong.status_code, wrong.json())
        for name in ("builds/", "a/b", "builds%0a"):
            assert (await post(service, signed({}, "d"), name)).status_code == 404
        assert (await service.stranger.get("/hooks/builds")).status_code == 405
        wrong_host = {"host": "evil.example"}
        assert (await service.stranger.post("/hooks/builds", headers=wrong_host)).status_code == 421


class GroupRecordingLoop(FairEventLoop):
    """Records the work groups for which callbacks ran."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = set[str | None]()

    @override
    def call_soon(
        self,
        callback: Callable[[Unpack[_Arguments]], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context
        self.groups.add(context.get(WORK_GROUP))
        return super().call_soon(callback, *args, context=context)


def test_names_that_strangers_make_up_leave_nothing_in_the_event_loop(tmp_path: Path) -> None:
    async def main() -> set[str | None]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, GroupRecordingLoop)
        async with composed(tmp_path, CONFIG) as service:
            for number in range(50):
                refused = await post(service, signed({}, "d"), f"made-up-{number}")
                assert refused.status_code == 401
        return loop.groups

    with asyncio.Runner(loop_factory=GroupRecordingLoop) as runner:
        assert 1 < len(runner.run(main())) < 50


async def test_odd_values_of_an_event_reach_the_agent_as_text(tmp_path: Path) -> None:
    odd = b'{"number": "\\u0000\\ud800\\u202e\\r\\n</hook_data>"}'
    async with composed(tmp_path, CONFIG) as service:
        assert (await post(service, signed(odd, "d"))).status_code == 202
        [row] = await inbox(service)
        assert row["preview"].startswith("Build <hook_data>\ufffd")
        assert row["preview"].count("</hook_data>") == 1


async def test_of_many_at_once_each_delivery_is_accepted_once(tmp_path: Path) -> None:
    async with composed(tmp_path, CONFIG) as service:
        statuses = dict[str, Counter[int]]()

        async def send(delivery: str) -> None:
            answer = await post(service, signed({"number": delivery}, delivery))
            statuses.setdefault(delivery, Counter())[answer.status_code] += 1

        async with anyio.create_task_group() as tasks:
            for number in range(60):
                tasks.start_soon(send, f"d{number % 10}")
        assert all(seen == {202: 1, 200: 5} for seen in statuses.values())
        rows = await inbox(service)
        assert Counter(row["event_id"] for row in rows) == {
            f"hook:builds:d{number}": 1 for number in range(10)
        }


async def test_a_full_conversation_asks_the_sender_to_wait(tmp_path: Path) -> None:
    config = {**json.loads(CONFIG)}
    config["channels"]["max_queue"] = 1
    async with composed(tmp_path, json.dumps(config)) as service:

        async def send_more() -> int:
            count = len(await inbox(service))
            answer = await post(service, signed({}, f"more{count}"))
            if answer.status_code == 429:
                assert answer.headers["retry-after"] == "30"
            return answer.status_code

        await eventually(send_more, lambda status: status == 429)


async def test_the_openapi_document_describes_hooks(tmp_path: Path) -> None:
    async with composed(tmp_path, CONFIG) as service:
        document = (await service.client.get("/api/openapi.json")).json()
        operation = document["paths"]["/hooks/{name}"]["post"]
        assert {"202", "400", "401", "413", "429", "503"} <= operation["responses"].keys()
