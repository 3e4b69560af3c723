"""Forwarded messages on Feishu become part of the prompt, or a file. Real adapter, fake platform."""

from dataclasses import replace

import pytest

from bots.feishu.adapter import FeishuAdapter
from bus.errors import DeliveryError
from bus.messages import InboundMessage
from gateway.playground.feishu.server import FakeFeishu, FeishuMessage
from tests.bots.feishu_rig import QUICK, adapter_for, running
from tests.fakes.intake import RecordingIntake

LIMIT = 50_000_000
NOON = 1_700_000_000


def said(text: str, user: str, *, kind: str = "text", at: float = NOON) -> FeishuMessage:
    content = {"image_key": text} if kind == "image" else {"text": text}
    return FeishuMessage("", "oc_elsewhere", user, kind, content, made_at=at)


async def first(feishu: FakeFeishu, intake: RecordingIntake) -> InboundMessage:
    await feishu.wait_for(lambda: intake.received)
    return intake.received[0]


async def read(adapter: FeishuAdapter, inbound: InboundMessage, limit: int = LIMIT) -> str:
    attachment = inbound.attachments[0]
    async with adapter.download(attachment, max_bytes=limit) as chunks:
        return b"".join([chunk async for chunk in chunks]).decode()


async def test_forwarded_messages_are_quoted_with_their_authors() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        feishu.state.people["ou_bob"] = "Bob"
        await feishu.forward_messages(said("shall we\nmeet?", "ou_bob"), said("at noon", "ou_x"))
        inbound = await first(feishu, intake)
        assert (inbound.text, inbound.is_forwarded, inbound.attachments) == ("", True, ())
        assert inbound.quoted.split("\n") == [
            "[Forwarded]",
            "> [2023-11-14 22:13 UTC]",
            "> Bob: shall we",
            ">   meet?",
            "> Person 1: at noon",
        ]
        assert feishu.violations == []


async def test_forwarded_messages_inside_forwarded_messages() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        feishu.state.people |= {"ou_bob": "Bob", "ou_ann": "Ann"}
        inner = await feishu.forward_messages(said("deep", "ou_bob"), user="ou_ann")
        await feishu.forward_messages(inner, said("top", "ou_bob", at=inner.made_at + 1))
        await feishu.wait_for(lambda: len(intake.received) == 2)
        lines = [line for line in intake.received[1].quoted.split("\n") if " UTC]" not in line]
        assert lines == ["[Forwarded]", "> Ann: [Forwarded]", ">   Bob: deep", "> Bob: top"]


async def test_files_of_forwarded_messages_are_fetched_from_the_message_that_holds_them() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), intake):
        feishu.state.resources["img_v3_9"] = ("image", "image/png", b"picture")
        await feishu.forward_messages(said("img_v3_9", "ou_bob", kind="image"))
        inbound = await first(feishu, intake)
        assert "Person 1: [image: image.png]" in inbound.quoted
        assert await read(adapter, inbound) == "picture"


async def test_many_forwarded_messages_are_a_file() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), intake):
        feishu.state.people["ou_bob"] = "Bob"
        await feishu.forward_messages(*(said(f"{n} " * 300, "ou_bob") for n in range(30)))
        inbound = await first(feishu, intake)
        assert inbound.quoted == "[Forwarded]\n> [30 messages: see forwarded-messages.md]"
        text = await read(adapter, inbound)
        assert [f"Bob: {n} {n} " in text for n in range(30)] == [True] * 30
        with pytest.raises(DeliveryError):
            await read(adapter, inbound, limit=10)


async def test_forwarded_messages_that_cannot_be_read_in_time_are_a_file() -> None:
    intake, hurried = RecordingIntake(), replace(QUICK, lookup_s=0.05)
    async with (
        FakeFeishu() as feishu,
        running(adapter := adapter_for(feishu, timeouts=hurried), intake),
    ):
        feishu.fail("message.get", delay_s=30.0)
        await feishu.forward("hello")
        inbound = await first(feishu, intake)
        assert [file.name for file in inbound.attachments] == ["forwarded-messages.md"]
        assert "Person 1: hello" in await read(adapter, inbound)


async def test_forwarded_messages_that_the_platform_does_not_show() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), intake):
        await feishu.forward()
        with pytest.raises(DeliveryError, match="does not show"):
            await read(adapter, await first(feishu, intake))
        feishu.rest.scopes -= {"im:message:readonly"}
        with pytest.raises(DeliveryError) as caught:
            await read(adapter, intake.received[0])
        assert not caught.value.ambiguous


CARD = {
    "schema": "2.0",
    "header": {"title": {"tag": "plain_text", "content": "Build 7"}},
    "body": {"elements": [{"tag": "markdown", "content": "**failed**"}]},
}


@pytest.mark.parametrize(
    "card",
    [
        CARD,
        {"header": CARD["header"], "elements": [{"tag": "markdown", "content": "**failed**"}]},
        {"type": "template", "data": {"template_id": "ctp_1"}, "made_from": CARD},
    ],
    ids=["2.0", "1.0", "template"],
)
async def test_a_card_that_somebody_passed_on_is_quoted(card: dict[str, object]) -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        chat = "oc_dm_ou_alice"
        await feishu.message("interactive", card, chat=chat, private=True)
        inbound = await first(feishu, intake)
        assert inbound.quoted == "[Forwarded]\n> **Build 7**\n> **failed**"
        assert (inbound.text, inbound.is_forwarded) == ("", True)
        feishu.state.people["ou_bob"] = "Bob"
        posted = FeishuMessage("om_card", "oc_elsewhere", "ou_bob", "interactive", card)
        await feishu.forward_messages(posted)
        await feishu.wait_for(lambda: len(intake.received) == 2)
        assert "> Bob: **Build 7**\n>   **failed**" in intake.received[1].quoted
        assert feishu.violations == []
