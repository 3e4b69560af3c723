"""Sending on Telegram: text, files, typing, and the handling of every refusal."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from blockbuster import blockbuster_ctx

from bots.telegram.adapter import TelegramAdapter
from bus.errors import DeliveryError
from bus.messages import ReplyTarget
from bus.platform import ConnectionState, OutgoingFile
from gateway.playground.telegram.server import TelegramServer
from tests.bots.telegram_rig import FAST, adapter_for, config_for, linked, running
from tests.eventually import eventually
from tests.fakes.intake import RecordingIntake

GROUP = -1001234567890
ALICE = ReplyTarget(chat="1001", reply_to="1")
PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 100


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as server:
        server.dm("hello")
        yield server
        assert server.violations == []


@pytest.fixture
def adapter(telegram: TelegramServer) -> TelegramAdapter:
    """Return an adapter that does not run: the bus still sends after it was stopped."""
    return adapter_for(telegram)


async def refused(adapter: TelegramAdapter, place: ReplyTarget = ALICE) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        await adapter.send(place, "Hi", key="k")
    return caught.value


async def test_text_goes_out_formatted(telegram: TelegramServer, adapter: TelegramAdapter) -> None:
    message_id = await adapter.send(ALICE, "**Hi** 你好 😀 `x`", key="k")
    (answer,) = telegram.answers(1001)
    assert str(answer.message_id) == message_id
    assert answer.text == "Hi 你好 😀 x"
    assert answer.entities == [
        {"type": "bold", "offset": 0, "length": 2},
        {"type": "code", "offset": 9, "length": 1},
    ]
    assert answer.reply_to is None
    assert telegram.calls("sendMessage")[0].arguments["link_preview_options"] == (
        '{"is_disabled": true}'
    )


async def test_long_text_is_split_within_the_limit(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    pieces = adapter.split("A sentence with 😀 in it. " * 800)
    assert len(pieces) > 2
    for piece in pieces:
        await adapter.send(ALICE, piece, key="k")
    assert len(telegram.answers(1001)) == len(pieces)
    assert list(adapter.split("")) == [""]


async def test_groups_get_replies_and_topics_stay(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    telegram.add_forum(GROUP)
    topic = telegram.add_topic(GROUP, "Plans")
    said = telegram.mention(GROUP, "hi", thread=topic)
    place = ReplyTarget(chat=str(GROUP), thread=str(topic), reply_to=str(said))
    await adapter.send(place, "Hi", key="k")
    (answer,) = telegram.answers(GROUP, thread=topic)
    assert answer.reply_to == said
    await adapter.send(replace(place, reply_to="99999"), "gone is no reason", key="k")
    assert telegram.answers(GROUP, thread=topic)[1].reply_to is None


async def test_refused_formatting_goes_out_bare(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    telegram.fail("sendMessage", status=400, description="Bad Request: can't parse entities: x")
    await adapter.send(ALICE, "**Hi** `@alice`", key="k")
    (answer,) = telegram.answers(1001)
    assert (answer.text, answer.entities) == ("Hi @\u2060alice", [])
    assert len(telegram.calls("sendMessage")) == 2


async def test_bare_text_is_not_repeated(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    telegram.fail("sendMessage", status=400, description="Bad Request: can't parse entities: x")
    assert not (await refused(adapter)).retryable
    assert len(telegram.calls("sendMessage")) == 1


async def test_a_group_that_moved_is_followed(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    said = telegram.mention(-4001, "hi")
    telegram.migrate(-4001, GROUP)
    await adapter.send(ReplyTarget(chat="-4001", reply_to=str(said)), "Hi", key="k")
    (answer,) = telegram.answers(GROUP)
    assert (answer.text, answer.reply_to) == ("Hi", None)


async def test_waiting_is_left_to_the_bus(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    telegram.fail("sendMessage", status=429, parameters={"retry_after": 17})
    error = await refused(adapter)
    assert (error.retryable, error.retry_after_s, error.ambiguous) == (True, 17.0, False)
    assert len(telegram.calls("sendMessage")) == 1


async def test_a_rate_limited_group_names_the_wait(adapter: TelegramAdapter) -> None:
    async with TelegramServer(group_per_minute=1) as telegram:
        said = telegram.mention(GROUP, "hi")
        flooding = adapter_for(telegram)
        place = ReplyTarget(chat=str(GROUP), reply_to=str(said))
        await flooding.send(place, "Hi", key="k")
        error = await refused(flooding, place)
    assert error.retryable
    assert error.retry_after_s is not None
    assert 0 < error.retry_after_s <= 61


@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize("body", [None, "<html>sorry</html>"])
async def test_server_errors_mean_not_delivered(
    telegram: TelegramServer, adapter: TelegramAdapter, status: int, body: str | None
) -> None:
    if body is None:
        telegram.fail("sendMessage", status=status)
    else:
        telegram.fail("sendMessage", status=status, body=body)
    error = await refused(adapter)
    assert (error.retryable, error.ambiguous) == (True, False)
    assert str(status) in error.user_message
    assert telegram.answers(1001) == []


async def test_a_lost_answer_is_uncertain(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    telegram.fail("sendMessage", drop="after")
    error = await refused(adapter)
    assert (error.retryable, error.ambiguous) == (True, True)
    assert len(telegram.answers(1001)) == 1
    assert len(telegram.calls("sendMessage")) == 1


async def test_a_slow_answer_is_uncertain(telegram: TelegramServer) -> None:
    adapter = adapter_for(telegram, timeouts=replace(FAST, answer_s=0.05))
    telegram.fail("sendMessage", delay_s=5.0)
    error = await refused(adapter)
    assert (error.retryable, error.ambiguous) == (True, True)


async def test_an_unreadable_answer_is_uncertain(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    for body in ("", "<html>portal</html>", '{"ok": true}', '{"ok": true, "result": []}', "[1]"):
        telegram.fail("sendMessage", status=200, body=body)
        assert (await refused(adapter)).ambiguous, body


async def test_no_connection_means_not_sent(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    await telegram.refuse()
    error = await refused(adapter)
    assert (error.retryable, error.ambiguous) == (True, False)
    await telegram.accept()
    await adapter.send(ALICE, "Hi", key="k")
    assert len(telegram.answers(1001)) == 1


async def test_blocked_and_closed_are_final(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    telegram.add_forum(GROUP)
    topic = telegram.add_topic(GROUP, "Plans")
    telegram.chats[GROUP].topics[topic].closed = True
    closed = await refused(adapter, ReplyTarget(chat=str(GROUP), thread=str(topic)))
    assert (closed.retryable, closed.target_gone) == (False, True)
    telegram.block(1001)
    blocked = await refused(adapter)
    assert not blocked.retryable
    assert "blocked by the user" in blocked.user_message
    unknown = await refused(adapter, ReplyTarget(chat="31337"))
    assert "Chat not found" in unknown.user_message


@pytest.mark.parametrize(
    "place", [ReplyTarget(chat="C0123"), ReplyTarget(chat="1", thread="x"), ReplyTarget(chat="")]
)
async def test_places_of_other_platforms_are_refused(
    adapter: TelegramAdapter, place: ReplyTarget
) -> None:
    assert not (await refused(adapter, place)).retryable


async def test_a_refused_token_waits_to_be_mended(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    telegram.revoke()
    error = await refused(adapter)
    assert (error.retryable, error.retry_after_s) == (True, 60.0)
    assert telegram.token not in error.user_message
    assert error.__cause__ is None


@pytest.mark.parametrize(
    ("name", "content", "mime", "kind"),
    [
        ("chart.png", PNG, "image/png", "photo"),
        ("broken.png", b"not a picture", "image/png", "document"),
        ("dance.gif", b"GIF89a...", "image/gif", "document"),
        ("big.png", PNG + b"\x00" * 10_000_000, "image/png", "document"),
        ("报告.pdf", b"%PDF", "application/pdf", "document"),
    ],
)
async def test_files_are_sent(
    telegram: TelegramServer,
    adapter: TelegramAdapter,
    tmp_path: Path,
    name: str,
    content: bytes,
    mime: str,
    kind: str,
) -> None:
    file = stored(tmp_path, name, content, mime)
    message_id = await adapter.send_file(ALICE, file, key="k")
    (answer,) = telegram.answers(1001)
    assert str(answer.message_id) == message_id
    assert answer.file is not None
    assert (answer.file.kind, answer.file.content) == (kind, content)
    assert answer.file.name == name


async def test_hostile_file_names_are_harmless(
    telegram: TelegramServer, adapter: TelegramAdapter, tmp_path: Path
) -> None:
    file = replace(stored(tmp_path, "x", b"x", "text/plain"), name='a"\r\n: \ud800b.txt')
    await adapter.send_file(ALICE, file, key="k")
    assert len(telegram.answers(1001)) == 1


async def test_impossible_files_are_refused_at_once(
    telegram: TelegramServer, adapter: TelegramAdapter, tmp_path: Path
) -> None:
    large = stored(tmp_path, "large.bin", b"", "application/octet-stream")
    with large.path.open("wb") as sparse:
        sparse.truncate(50_000_001)
    empty = stored(tmp_path, "empty.txt", b"", "text/plain")
    missing = replace(empty, path=tmp_path / "missing")
    for file in (large, empty, missing):
        with pytest.raises(DeliveryError) as caught:
            await adapter.send_file(ALICE, file, key="k")
        assert not caught.value.retryable
        assert file.name in caught.value.user_message
    assert telegram.calls("sendDocument") == []


async def test_typing_shows_where_the_work_goes_on(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    telegram.add_forum(GROUP)
    topic = telegram.add_topic(GROUP, "Plans")
    place = ReplyTarget(chat=str(GROUP), thread=str(topic))
    await adapter.show_working(place)
    await adapter.send(place, "Done", key="k")
    await adapter.show_finished(place, ok=True)
    assert [(what, chat) for what, chat, _ in telegram.log] == [
        ("typing", GROUP),
        ("message", GROUP),
    ]
    assert telegram.log[0][2] == topic


async def test_sending_and_receiving_do_not_block_the_event_loop(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    adapter = adapter_for(telegram)
    file = stored(tmp_path, "chart.png", PNG, "image/png")
    with blockbuster_ctx():
        async with running(adapter, recorder := RecordingIntake()):
            await telegram.wait_for(lambda: recorder.received)
            await adapter.show_working(ALICE)
            await adapter.send(ALICE, "**Hi**", key="k")
            await adapter.send_file(ALICE, file, key="k")
    assert len(telegram.answers(1001)) == 2


async def test_typing_may_fail(telegram: TelegramServer, adapter: TelegramAdapter) -> None:
    telegram.block(1001)
    with pytest.raises(DeliveryError):
        await adapter.show_working(ALICE)


async def test_sends_share_the_connection_and_close_it(telegram: TelegramServer) -> None:
    adapter = adapter_for(telegram)
    async with running(adapter, RecordingIntake()):
        await linked(adapter, ConnectionState.CONNECTED)
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(lambda: adapter.send(ALICE, "Hi", key="k"))
    async with anyio.create_task_group() as tasks:  # the bus drains after the adapter stopped
        for _ in range(10):
            tasks.start_soon(lambda: adapter.send(ALICE, "Hi", key="k"))
    assert len(telegram.answers(1001)) == 20


async def test_a_canceled_send_leaves_nothing_open(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    telegram.fail("sendMessage", delay_s=5.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: adapter.send(ALICE, "Hi", key="k"))
        await eventually(lambda: telegram.answers(1001))
        tasks.cancel_scope.cancel()
    await adapter.send(ALICE, "Again", key="k")
    assert [answer.text for answer in telegram.answers(1001)] == ["Hi", "Again"]


def stored(folder: Path, name: str, content: bytes, mime: str) -> OutgoingFile:
    path = folder / "file"
    path.write_bytes(content)
    return OutgoingFile(path=path, name=name, mime=mime, size_bytes=len(content))


async def test_calls_go_through_the_proxy_that_the_environment_names(
    telegram: TelegramServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server also accepts requests in a proxy's form. Its own address is not in the configuration."""
    server = urlsplit(telegram.base_url)
    monkeypatch.setenv("http_proxy", f"http://{server.netloc}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    address = server._replace(netloc="telegram.invalid").geturl()
    config = config_for(telegram).model_copy(update={"base_url": address})
    await TelegramAdapter(config, (), timeouts=FAST).send(ALICE, "through the proxy", key="k")
    assert [message.text for message in telegram.answers(1001)] == ["through the proxy"]
