"""Rows whose chat or topic no longer exists are sent elsewhere once, and only to people who may see them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import override

from bus.errors import DeliveryError, PlaceGone
from bus.locales.en import ENGLISH
from bus.messages import (
    Button,
    MessageId,
    OutboundFile,
    OutboundMessage,
    OutboundText,
    ReplyTarget,
    decode_outbound,
    encode_outbound,
)
from bus.platform import Capabilities, OutgoingFile
from store.outbox import NewOutboxRow
from tests.bus.test_delivery_worker import FAST, KEY, pump, settle
from tests.eventually import eventually
from tests.fakes.platform import FakePlatform

TOPIC = ReplyTarget(chat="c", thread="t", reply_to="m", user="ann")
BUTTON = Button(label="Go", token="t")


class PlacesPlatform(FakePlatform):
    """A platform with topics and private chats, some of which no longer exist."""

    def __init__(
        self, gone: dict[tuple[str, str], PlaceGone], *, idempotent_send_s: float = 0.0
    ) -> None:
        super().__init__(
            capabilities=Capabilities(
                streaming=False, send_interval_s=0.0, idempotent_send_s=idempotent_send_s
            )
        )
        self.gone = gone
        self.asked: list[str] = []
        self.private_error: DeliveryError | None = None
        self.buttons: list[tuple[str, int]] = []

    async def private_target(self, target: ReplyTarget) -> ReplyTarget | None:
        self.asked.append(target.user)
        if self.private_error is not None:
            error, self.private_error = self.private_error, None
            raise error
        return replace(target, chat=f"dm-{target.user}", thread="", reply_to="")

    @override
    async def send(self, place: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        self._refuse(place)
        return await super().send(place, markdown, key=key)

    async def send_with_buttons(
        self, target: ReplyTarget, markdown: str, buttons: Sequence[Button], *, key: str
    ) -> MessageId:
        self._refuse(target)
        self.buttons.append((target.chat, len(buttons)))
        return await super().send(target, markdown, key=key)

    @override
    async def send_file(self, place: ReplyTarget, file: OutgoingFile, *, key: str) -> MessageId:
        self._refuse(place)
        return await super().send_file(replace(place), file, key=key)

    def _refuse(self, place: ReplyTarget) -> None:
        if gone := self.gone.get((place.chat, place.thread)):
            raise DeliveryError("it is gone", place_gone=gone)


def row(key: str, body: OutboundMessage) -> NewOutboxRow:
    return NewOutboxRow(key=key, conversation=KEY, body=encode_outbound(body))


def said(words: str, **more: object) -> OutboundText:
    body = OutboundText(channel="fake", reply_target=TOPIC, markdown=words)
    return replace(body, **more)  # type: ignore[arg-type]


async def test_an_answer_without_its_topic_goes_into_the_chat_and_says_why_once(
    tmp_path: Path,
) -> None:
    platform = PlacesPlatform({("c", "t"): "thread"})
    file = OutboundFile(
        channel="fake", reply_target=TOPIC, thread_id="", path="", name="a.md", content="all of it"
    )
    async with pump(platform, tmp_path) as delivery:
        rows = [
            row("7:reply:0", said("one", more=("two",))),
            row("7:reply:1", said("three", buttons=(BUTTON,))),
            row("7:document:0", file),
        ]
        await delivery.enqueue(KEY, rows)
        last = await settle(delivery, "7:document:0")
    assert platform.texts == [f"{ENGLISH.moved_to_chat}\n\none", "two", "three"]
    assert {shown.chat for shown in platform.shown} == {"c"}
    assert (platform.buttons, platform.files) == ([("c", 1)], [("a.md", b"all of it")])
    assert last.state == "delivered"
    assert platform.asked == []


async def test_an_answer_without_its_chat_goes_to_the_asker_and_nobody_else(tmp_path: Path) -> None:
    platform = PlacesPlatform({("c", "t"): "thread", ("c", ""): "chat"})
    async with pump(platform, tmp_path) as delivery:
        await delivery.enqueue(KEY, [row("7:reply:0", said("one", buttons=(BUTTON,)))])
        sent = await settle(delivery, "7:reply:0")
    assert platform.texts == [f"{ENGLISH.moved_to_private}\n\none"]
    assert {shown.chat for shown in platform.shown} == {"dm-ann"}
    # A press in a chat other than the question's would have no effect.
    assert platform.buttons == []
    assert sent.state == "delivered"
    body = decode_outbound(sent.body)
    assert body.reply_target.chat == "dm-ann"


@pytest.mark.parametrize(
    ("key", "target"),
    [
        ("notification::1:fake:w:c:0", TOPIC),
        ("7:reply:0", replace(TOPIC, user="")),
        ("7:reply:0", replace(TOPIC, chat="dm-ann")),
    ],
)
async def test_a_row_without_another_chat_fails(
    tmp_path: Path, key: str, target: ReplyTarget
) -> None:
    platform = PlacesPlatform({("c", "t"): "chat", ("dm-ann", "t"): "chat"})
    async with pump(platform, tmp_path) as delivery:
        await delivery.enqueue(KEY, [row(key, said("one", reply_target=target))])
        sent = await settle(delivery, key)
    assert (sent.state, sent.error, platform.texts) == ("failed", "it is gone", [])


async def test_a_private_chat_that_is_gone_too_ends_the_search(tmp_path: Path) -> None:
    platform = PlacesPlatform({("c", "t"): "chat", ("dm-ann", ""): "chat"})
    async with pump(platform, tmp_path) as delivery:
        await delivery.enqueue(KEY, [row("7:reply:0", said("one"))])
        sent = await settle(delivery, "7:reply:0")
    assert (sent.state, platform.texts, platform.asked) == ("failed", [], ["ann"])


async def test_an_answer_for_one_reader_is_never_shown_to_the_chat(tmp_path: Path) -> None:
    platform = PlacesPlatform({("c", "t"): "thread"})
    target = replace(TOPIC, response_url="https://hooks.example/1")
    async with pump(platform, tmp_path) as delivery:
        await delivery.enqueue(KEY, [row("7:reply:0", said("one", reply_target=target))])
        await settle(delivery, "7:reply:0")
    assert {shown.chat for shown in platform.shown} == {"dm-ann"}


async def test_the_private_chat_is_asked_for_again_while_the_platform_is_busy(
    tmp_path: Path,
) -> None:
    platform = PlacesPlatform({("c", "t"): "chat"})
    platform.private_error = DeliveryError("429", retryable=True, retry_after_s=0.01)
    async with pump(platform, tmp_path) as delivery:
        await delivery.enqueue(KEY, [row("7:reply:0", said("one"))])
        sent = await settle(delivery, "7:reply:0")
    assert (sent.state, platform.asked) == ("delivered", ["ann", "ann"])


@pytest.mark.parametrize("window_s", [0.0, 3600.0])
@pytest.mark.parametrize("method", ["send", "send_file"])
async def test_a_send_in_doubt_stays_in_doubt_elsewhere(
    tmp_path: Path, method: str, window_s: float
) -> None:
    """A platform drops a repeated send only in the same place."""
    platform = PlacesPlatform({}, idempotent_send_s=window_s)
    platform.fail(method, DeliveryError("broke", retryable=True, ambiguous=True))
    file = OutboundFile(
        channel="fake", reply_target=TOPIC, thread_id="", path="", name="a.md", content="all of it"
    )
    async with pump(platform, tmp_path, timings=FAST) as delivery:
        await delivery.enqueue(KEY, [row("7:reply:0", said("one") if method == "send" else file)])
        await eventually(lambda: platform.calls == [method])
        platform.gone[("c", "t")] = "thread"
        sent = await settle(delivery, "7:reply:0")
    assert sent.state == "uncertain"
    assert platform.calls == [method] * 2


async def test_a_growing_message_in_a_topic_that_is_gone_is_not_moved(tmp_path: Path) -> None:
    platform = PlacesPlatform({("c", "t"): "thread"})
    async with pump(platform, tmp_path) as delivery:
        rows = [row("7:card:0", said("…", provisional=True)), row("7:reply:0", said("one"))]
        await delivery.enqueue(KEY, rows)
        grown = await settle(delivery, "7:card:0")
        await settle(delivery, "7:reply:0")
    assert grown.state == "failed"
    assert platform.texts == [f"{ENGLISH.moved_to_chat}\n\none"]
