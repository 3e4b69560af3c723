"""The chat in a terminal: its output, and when the prompt returns."""

import io
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import anyio
import pytest

from bots.terminal.session import TerminalEvent, TerminalFile, TerminalIndicator, TerminalMessage
from gateway.terminal.chat import BatchChat, strip_control_characters
from gateway.terminal.remote_client import TerminalClientEvent
from gateway.terminal.session_events import (
    SessionEvent,
    SessionHeartbeat,
    SessionIdle,
    SessionSummary,
    stream_session_events,
)
from gateway.terminal.stdin import read_lines


def shown(text: str, *, final: bool = False, key: str = "k") -> TerminalMessage:
    return TerminalMessage(id=key, text=text, final=final)


@pytest.mark.parametrize(
    "hostile", ["\x1b]0;owned\x07", "\x1b[2J", "\x9b31m", "a\rb", "\x00", "\ud800", "\x7f"]
)
def test_answers_cannot_steer_the_terminal(hostile: str) -> None:
    text = strip_control_characters(f"x{hostile}y\n\tz")
    assert not any(ord(char) < 32 and char not in "\n\t" for char in text)
    assert not any(0x7F <= ord(char) < 0xA0 for char in text)
    assert text.encode()
    assert text.endswith("y\n\tz") or "\r" in hostile


class ScriptedConnection:
    """Answers each line with the next list of events."""

    def __init__(self, *answers: list[SessionEvent], result: str = "accepted") -> None:
        self.said: list[str] = []
        self._answers = list(answers)
        self._result = result
        self._send, self._receive = anyio.create_memory_object_stream[TerminalClientEvent](100)

    async def send(self, text: str, files: Sequence[Path] = (), *, line_id: str = "") -> str:
        assert not files
        self.said.append(text)
        if self._result == "accepted":
            for event in self._answers.pop(0):
                await self._send.send(event)
        return self._result

    async def press(self, token: str, message: str) -> str:
        raise NotImplementedError

    async def list_sessions(self) -> list[SessionSummary]:
        raise NotImplementedError

    def tell(self, event: TerminalClientEvent) -> None:
        self._send.send_nowait(event)

    def events(self) -> AsyncIterator[TerminalClientEvent]:
        return aiter(self._receive)

    def close(self) -> None:
        self._send.close()
        self._receive.close()


async def typed(*lines: str) -> AsyncIterator[str]:
    for line in lines:
        yield line


async def chatted(link: ScriptedConnection, *lines: str) -> str:
    out = io.StringIO()
    chat = BatchChat(link, typed(*lines), out, files=Path("/data/terminal"))
    with anyio.fail_after(20):
        await chat.run()
    link.close()
    return out.getvalue()


async def test_a_misspelled_way_out_is_no_message() -> None:
    link = ScriptedConnection()
    assert await chatted(link, "/quitt") == "(there is no /quitt: did you mean /quit?)\n"
    assert link.said == []


async def test_lines_are_answered_one_after_the_other() -> None:
    link = ScriptedConnection(
        [
            TerminalIndicator(state="working"),
            shown("Hi"),
            shown("Hi!", final=True),
            SessionHeartbeat(),
            SessionIdle(),
        ],
        [
            shown("Here.", key="b", final=True),
            TerminalFile(id="f", name="a.txt", path="s/a.txt"),
            SessionIdle(),
        ],
    )
    text = await chatted(link, "hello", "", "a file")
    assert text == "Hi!\nHere.\n[file] a.txt -> /data/terminal/s/a.txt\n"
    assert link.said == ["hello", "a file"]


@pytest.mark.parametrize("word", ["/quit", " /EXIT "])
async def test_a_command_leaves_the_chat(word: str) -> None:
    link = ScriptedConnection()
    assert await chatted(link, word, "never said") == ""
    assert link.said == []


async def test_only_finished_messages_are_printed_and_each_once() -> None:
    answer: list[SessionEvent] = [
        shown("Hel"),
        shown("Hello", final=True),
        shown("Hello", final=True),
    ]
    link = ScriptedConnection([*answer, shown("Bye", key="l", final=True), SessionIdle()])
    assert await chatted(link, "hi") == "Hello\nBye\n"


async def test_a_rest_before_the_answer_is_not_the_end() -> None:
    link = ScriptedConnection([SessionIdle(), shown("Late but here", final=True), SessionIdle()])
    assert await chatted(link, "hello") == "Late but here\n"


async def test_a_refused_line_is_reported() -> None:
    link = ScriptedConnection(result="empty")
    assert await chatted(link, "\u200b") == "(not accepted: empty)\n"


async def test_rests_come_after_the_last_event_of_an_answer() -> None:
    send, receive = anyio.create_memory_object_stream[TerminalEvent](10)
    settled: list[bool] = [False, True]

    async def is_settled() -> bool:
        if not settled[0]:
            await send.send(TerminalFile(id="f", name="late", path="late"))
        return settled.pop(0)

    seen: list[SessionEvent] = []
    with send, receive:
        await send.send(shown("Hi", final=True))
        with anyio.fail_after(20):
            async for item in stream_session_events(aiter(receive), is_settled, heartbeat_s=0.01):
                seen.append(item)
                if isinstance(item, SessionHeartbeat):
                    break
    kinds = [item.kind for item in seen]
    assert kinds == ["shown", "file", "idle", "heartbeat"]


async def test_lines_from_files_and_pipes(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes("one\r\nzwei ü\n\nrest".encode() + b"\xff")
    lines = await lines_of(file)
    assert lines == ["one", "zwei ü", "", "rest\ufffd"]
    assert await lines_of(Path("/dev/null")) == []


async def lines_of(file: Path) -> list[str]:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return [line async for line in read_lines(descriptor)]
    finally:
        os.close(descriptor)
