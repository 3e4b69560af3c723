"""Long texts never block the event loop: they are parsed in worker threads."""

import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import pytest

from bots.config import FeishuConfig, SlackConfig, TelegramConfig
from bots.feishu.adapter import FeishuAdapter
from bots.slack.adapter import SlackAdapter
from bots.telegram.adapter import TelegramAdapter
from bots.text.worker import MAX_INLINE_CHARS
from bus.characters import clean
from bus.errors import DeliveryError
from bus.messages import MessageId, ReplyTarget

NOWHERE = "http://127.0.0.1:9"
TARGET = ReplyTarget(chat="1")
LONG = "| a | b |\n|---|---|\n" + "| **x** | `y` |\n" * (MAX_INLINE_CHARS // 15)


@contextmanager
def cleaning_threads() -> Iterator[set[int]]:
    """Yield the threads that clean texts during the block. Cleaning is the first step of parsing."""
    threads: set[int] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is clean.__code__:
            threads.add(threading.get_ident())

    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield threads
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


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
    with cleaning_threads() as threads:
        for number, call in enumerate(calls):
            threads.clear()
            with suppress(DeliveryError):
                await call(f"{LONG}{number}")
            assert threads
            assert threading.get_ident() not in threads
