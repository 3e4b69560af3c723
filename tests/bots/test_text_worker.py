"""Long texts never block the event loop: they are parsed in worker threads."""

import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import SupportsIndex

import pytest
from typing_extensions import override

from bots.config import FeishuConfig, SlackConfig, TelegramConfig
from bots.feishu.adapter import FeishuAdapter
from bots.slack.adapter import SlackAdapter
from bots.telegram.adapter import TelegramAdapter
from bots.text.worker import MAX_INLINE_CHARS
from bus.errors import DeliveryError
from bus.messages import MessageId, ReplyTarget

NOWHERE = "http://127.0.0.1:9"
TARGET = ReplyTarget(chat="1")
LONG = "| a | b |\n|---|---|\n" + "| **x** | `y` |\n" * (MAX_INLINE_CHARS // 15)


class TracedText(str):
    """Notes the threads that clean it, which is the first step of parsing."""

    __slots__ = ("threads",)
    threads: set[int]

    @override
    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        self.threads.add(threading.get_ident())
        return super().replace(old, new, count)


def adapter_of(platform: str) -> SlackAdapter | TelegramAdapter | FeishuAdapter:
    """Return an adapter whose calls fail after the text was rendered."""
    if platform == "slack":
        return SlackAdapter(SlackConfig(bot_token="xoxb-1", base_url=f"{NOWHERE}/api/"))
    if platform == "telegram":
        return TelegramAdapter(TelegramConfig(bot_token="1:A", base_url=f"{NOWHERE}/bot"), ())
    return FeishuAdapter(FeishuConfig(app_id="a", app_secret="b", domain=NOWHERE))


@pytest.mark.parametrize("platform", ["slack", "telegram", "feishu"])
async def test_long_texts_are_parsed_outside_the_event_loop(platform: str) -> None:
    adapter, message = adapter_of(platform), MessageId("1")
    calls: list[Callable[[str], Awaitable[object]]] = [
        lambda text: adapter.send(TARGET, text, key="k"),
        lambda text: adapter.send_with_buttons(TARGET, text, (), key="k"),
        lambda text: adapter.edit_message(TARGET, message, text),
        lambda text: adapter.update_streaming(TARGET, message, text, final=False),
        lambda text: adapter.update_streaming(TARGET, message, text, final=True),
    ]
    for call in calls:
        text = TracedText(LONG)
        text.threads = set()
        with suppress(DeliveryError):
            await call(text)
        assert text.threads
        assert threading.get_ident() not in text.threads
