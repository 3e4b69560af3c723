"""Messages that were forwarded together: read as one text. Real adapter, fake platform."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bots.feishu.adapter import FeishuAdapter
from bots.feishu.forwarded import transcript
from bus.errors import DeliveryError
from bus.messages import InboundMessage
from tests.bots.feishu_rig import adapter_for, running
from tests.fakes.feishu import FakeFeishu
from tests.fakes.intake import RecordingIntake

LIMIT = 50_000_000
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


def item(kind: str, content: object, sender: str = "ou_1", **fields: object) -> dict[str, Any]:
    said = content if isinstance(content, str) else json.dumps(content)
    return {"msg_type": kind, "sender": {"id": sender}, "body": {"content": said}, **fields}


async def read(adapter: FeishuAdapter, inbound: InboundMessage, limit: int = LIMIT) -> str:
    (attachment,) = inbound.attachments
    async with adapter.download(attachment, max_bytes=limit) as chunks:
        return b"".join([chunk async for chunk in chunks]).decode()


async def test_forwarded_messages_are_fetched_as_a_text() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), intake):
        await feishu.forward("shall we meet?", "at noon")
        await feishu.wait_for(lambda: intake.received)
        text = await read(adapter, intake.received[0])
        assert text.splitlines() == [
            "**Person 1, 2023-11-14 22:13 UTC:**", "", "shall we meet?", "",
            "**Person 2, 2023-11-14 22:13 UTC:**", "", "at noon",
        ]  # fmt: skip
        with pytest.raises(DeliveryError):
            await read(adapter, intake.received[0], limit=10)
        assert feishu.violations == []


async def test_omitted_forwarded_messages_are_mentioned() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), intake):
        await feishu.forward()
        await feishu.wait_for(lambda: intake.received)
        with pytest.raises(DeliveryError, match="does not show"):
            await read(adapter, intake.received[0])
        feishu.rest.scopes -= {"im:message:readonly"}
        with pytest.raises(DeliveryError) as caught:
            await read(adapter, intake.received[0])
        assert not caught.value.ambiguous


def test_kinds_people_and_mentions() -> None:
    told = transcript(
        [
            item("merge_forward", "Merged and Forwarded Message"),
            item(
                "text",
                {"text": "@_user_1 and @_user_10"},
                mentions=[
                    {"key": "@_user_1", "name": "Bob"},
                    {"key": "@_user_10", "name": "Eve"},
                ],
            ),
            item("file", {"file_key": "k", "file_name": "plan.pdf"}, "ou_2"),
            item("sticker", {"file_key": "k"}),
            item("text", "no json"),
            item("text", {"text": " "}),
        ]
    )
    lines = [line for line in told.splitlines() if line]
    assert lines == [
        "**Person 1:**", "@Bob and @Eve", "**Person 2:**", "[file: plan.pdf]", "**Person 1:**",
        "[Not readable here: a sticker]", "**Person 1:**", "[Not readable here]", "**Person 1:**", "[empty]",
    ]  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(st.lists(JSON, max_size=3))
def test_any_items_are_read(items: list[object]) -> None:
    assert transcript(items).encode() is not None
