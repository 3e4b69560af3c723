"""`parley chat` and `parley serve` at a real terminal: input, output, and ways to exit."""

import codecs
import os
import pty
import re
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import yaml

from tests.eventually import WITHIN_S
from tests.fakes import terminal_login
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.fork_server import ParleyProcess, fork_parley
from tests.journeys.service import ROOT, STOP_WITHIN_S, serving, with_model
from tests.ports import free_port

PROMPT, CTRL_C, CTRL_D, CTRL_O, DOWN = "you>", "\x03", "\x04", "\x0f", "\x1b[B"
EXIT_HINT = "to exit, press Ctrl-C again"
_ESCAPE = re.compile(r"\x1b(?:\[[?>=]?[0-9;]*[a-zA-Z]|[=>78]|\][^\x07]*\x07)")
_HALF_ESCAPE = re.compile(r"\x1b[^a-zA-Z]*\Z")
FILE = "/mnt/user-data/outputs/notes.txt"


class Terminal:
    """A person at a terminal of 80 columns.

    `read` is the text printed since the last match of `sees`, without escape sequences.
    """

    def __init__(self, descriptor: int, process: ParleyProcess) -> None:
        self._descriptor = descriptor
        self._process = process
        self.read = ""
        self._pending = ""
        # A read may end in the middle of a character.
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    async def sees(self, *texts: str, within_s: float = WITHIN_S) -> str:
        """Read until the texts were printed, one after another. Return everything printed until then."""
        seen = ""
        for text in texts:
            with anyio.move_on_after(within_s):
                while text not in self.read:
                    await self._more()
            assert text in self.read, f"no {text!r} in {seen + self.read!r}"
            before, found, self.read = self.read.partition(text)
            seen += before + found
        return seen

    async def leaves(self) -> int:
        """Wait for the program's end. Return its exit code."""
        with anyio.fail_after(STOP_WITHIN_S):
            return await self._process.wait()

    async def _more(self) -> None:
        await anyio.wait_readable(self._descriptor)
        try:
            self._pending += self._decode(os.read(self._descriptor, 65536))
        except OSError as error:  # EIO: the program has ended.
            raise AssertionError(f"ended after {self.read!r}") from error
        half = _HALF_ESCAPE.search(self._pending)
        whole = self._pending[: half.start()] if half else self._pending
        self._pending = half[0] if half else ""
        self.read += _ESCAPE.sub("", whole)


@asynccontextmanager
async def at_a_terminal(config: Path, home: Path, *arguments: str) -> AsyncIterator[Terminal]:
    """Run `parley ...` at its own terminal."""
    ours, theirs = pty.openpty()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(config.parent),
        "PARLEY_HOME": str(home),
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }
    program = (*arguments, "--config", str(config))
    files = (theirs, theirs, theirs)
    try:
        process = fork_parley(
            program, environment, config.parent, files, module=terminal_login.__name__
        )
        os.close(theirs)
        try:
            yield Terminal(ours, process)
        finally:
            process.send_signal(signal.SIGKILL)
    finally:
        os.close(ours)


def write_config(folder: Path, config: Mapping[str, Any]) -> Path:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({"gateway": {"port": free_port()}, **config}))
    return file


def answer(request: ModelRequest) -> ModelReply:
    """Hang or write a file if requested. Otherwise echo the message."""
    said, last = request.last_user_text, request.messages[-1]
    if said == "hang":
        return ModelReply(text="one two three", hang_after=2)
    if said == "ask":
        args = {"question": "Which?", "options": ["Red", "Green"]}
        return ModelReply(calls=(ToolCall("ask_clarification", args, id="a1"),))
    if said == "file" and last["role"] != "tool":
        args = {"description": "write", "path": FILE, "content": "important"}
        return ModelReply(calls=(ToolCall("write_file", args, id="w1"),))
    if said == "file" and last["tool_call_id"] == "w1":
        return ModelReply(calls=(ToolCall("present_files", {"filepaths": [FILE]}, id="p1"),))
    return ModelReply(text=f"You said: {said}")


async def test_chat_with_the_running_service(tmp_path: Path) -> None:
    async with FakeModelServer(answer=answer) as model:
        async with serving(tmp_path, with_model(model.base_url), "terminal") as service:
            async with at_a_terminal(service.config, service.home, "chat") as terminal:
                await terminal.sees("/help", PROMPT)
                await _talk(terminal, model)
                async with at_a_terminal(service.config, service.home, "chat") as second:
                    await second.sees("open in another terminal", "earlier in this conversation")
                    await second.sees("you> weiter, 你好 👋", "You said: weiter, 你好 👋", PROMPT)
                    second.type("from here\n")
                    await terminal.sees(
                        "you, in another terminal> from here", "You said: from here"
                    )
                    await second.sees("You said: from here", PROMPT)
                    second.type(CTRL_D)
                    assert await second.leaves() == 0
                await _get_a_file(terminal)
                await _choose(terminal)
                await _send_a_file(terminal, model, tmp_path / "list of 3.txt")
                terminal.type(CTRL_D)
                assert await terminal.leaves() == 0
            async with at_a_terminal(service.config, service.home, "chat") as terminal:
                await terminal.sees(PROMPT)
                await _stop_and_leave(terminal)
            assert service.running
        assert "Traceback" not in service.log.read_text()


async def _stop_and_leave(terminal: Terminal) -> None:
    """The first Ctrl-C stops the answer, the second warns, and the third ends the program."""
    await _answer_begins(terminal)
    terminal.type(CTRL_C)
    await terminal.sees("Stopped", PROMPT)
    terminal.type(CTRL_C)
    await terminal.sees(EXIT_HINT, PROMPT)
    terminal.type(CTRL_C)
    assert await terminal.leaves() == 0


async def _answer_begins(terminal: Terminal) -> None:
    """Request an answer that hangs after two words. If they arrive separately, the live view is drawn between them."""
    terminal.type("hang\n")
    await terminal.sees("one", "two")


async def _talk(terminal: Terminal, model: FakeModelServer) -> None:
    terminal.type("hello\n")
    await terminal.sees("You said: hello", PROMPT)
    await _answer_begins(terminal)
    terminal.type("/stop\n")
    await terminal.sees("Stopped", PROMPT)
    await model.until(lambda m: m.requests[-1].closed_by_client)
    terminal.type("/help\n")
    await terminal.sees("Available commands:", "/new", PROMPT)
    long_line = "word " * 2400 + "end"
    terminal.type(f"\x1b[200~{long_line}\x1b[201~\n")
    await terminal.sees("You said: word", PROMPT)
    assert model.requests[-1].last_user_text == long_line
    terminal.type("weiter, 你好 👋\n")
    await terminal.sees("You said: weiter, 你好 👋", PROMPT)


async def _choose(terminal: Terminal) -> None:
    """Choose an answer and another chat with the arrow keys."""
    terminal.type("ask\n")
    await terminal.sees("Which?", "› Red")
    terminal.type(DOWN)
    await terminal.sees("› Green")
    terminal.type("\r")
    await terminal.sees("you> Green", "You said: Green", PROMPT)
    terminal.type("/sessions trip\n")
    await terminal.sees("(chat trip)", PROMPT)
    terminal.type("hello\n")
    await terminal.sees("You said: hello", PROMPT)
    terminal.type("/sessions\n")
    await terminal.sees("› trip")
    terminal.type(DOWN)
    await terminal.sees("› main")
    terminal.type("\r")
    await terminal.sees("(chat main)", "you> Green", PROMPT)


async def _get_a_file(terminal: Terminal) -> None:
    terminal.type("file\n")
    shown = await terminal.sees("You said: file", "[file] notes.txt -> ", "\n")
    saved = shown.rpartition("-> ")[2].strip()
    assert await anyio.Path(saved).read_text() == "important"
    await terminal.sees(PROMPT)
    terminal.type(CTRL_O)
    await terminal.sees("🔧 write_file write", f"path: {FILE}", PROMPT)


async def _send_a_file(terminal: Terminal, model: FakeModelServer, file: Path) -> None:
    await anyio.Path(file).write_text("eggs, milk, needle")
    terminal.type(f"/attach '{file}'\n")
    await terminal.sees(f"attached {file.name}, 18 bytes", PROMPT)
    terminal.type("what is in it?\n")
    await terminal.sees("You said: ", PROMPT)
    assert f"/mnt/user-data/uploads/{file.name}" in str(model.requests[-1].messages)


async def test_chat_with_nothing_running_is_left_by_ctrl_c(tmp_path: Path) -> None:
    async with FakeModelServer(answer=answer) as model:
        config = write_config(
            tmp_path, {**with_model(model.base_url), "channels": {"drain_s": 0.2}}
        )
        async with at_a_terminal(config, tmp_path / "home", "chat") as terminal:
            await terminal.sees(PROMPT)
            terminal.type("hello\n")
            await terminal.sees("You said: hello", PROMPT)
            await _send_a_file(terminal, model, tmp_path / "notes.txt")
            await _stop_and_leave(terminal)
            assert "Traceback" not in terminal.read


async def test_serve_at_a_terminal_is_a_chat_at_once(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    async with at_a_terminal(config, tmp_path / "home", "serve") as terminal:
        await terminal.sees("http://127.0.0.1:", "demo", PROMPT)
        terminal.type("write a file a.txt saying hi\n")
        await terminal.sees("[file] a.txt -> ", PROMPT)
        terminal.type(CTRL_D)
        rest = await terminal.sees("Stopping")
        assert "Traceback" not in rest
        assert await terminal.leaves() == 0
