"""The real `parley serve` and `parley chat`: start, chat, stop."""

import contextlib
import os
import pty
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from subprocess import CalledProcessError

import anyio
import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from bus.messages import OutboundText, ReplyTarget, encode_outbound
from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database
from store.outbox import NewOutboxRow, OutboxStore
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply
from tests.fork_server import ParleyProcess, fork_parley
from tests.gateway.test_cli import environment, one_line, parley
from tests.journeys.service import serving, with_model
from tests.ports import free_port

STOP_WITHIN_S = 12.0


async def test_a_model_without_its_package_is_reported_at_the_start(tmp_path: Path) -> None:
    entry = {"name": "far", "use": "no_such_package:Model", "model": "m"}
    async with serving(tmp_path, {"models": [entry]}, "terminal") as service:
        told = "  - the model far cannot be used: Could not import module no_such_package"
        assert told in service.log.read_text()
        assert await service.stop() == 0


async def test_misspelled_keys_are_warnings_at_the_start(tmp_path: Path) -> None:
    entry = {"name": "a", "use": "langchain_openai:ChatOpenAI", "model": "m", "api_key": "k"}
    tree = {"models": [{**entry, "temprature": 0}], "titel": {"enabled": False}}
    async with serving(tmp_path, tree, "terminal") as service:
        told = service.log.read_text()
        assert "titel: unknown key, ignored; did you mean `title`?" in told
        assert "models[0].temprature: unknown key, not an argument of ChatOpenAI" in told
        assert await service.stop() == 0


async def test_a_refused_websocket_is_no_error_of_the_service(tmp_path: Path) -> None:
    async with serving(tmp_path, {}, "terminal") as service:
        with pytest.raises(InvalidStatus, match="401"):
            await connect(f"ws{service.url.removeprefix('http')}/api/threads/x/stream/events")
        assert await service.stop() == 0
    assert "completing handshake" not in service.log.read_text()


async def test_a_stream_that_the_stop_cuts_off_is_no_error_of_the_service(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, {}, "terminal") as service,
        service.client() as client,
        client.stream("GET", "/api/channels/terminal/main/events") as events,
    ):
        lines = events.aiter_lines()
        assert await anext(lines) == ": attached"
        assert await service.stop() == 0
    log = service.log.read_text()
    assert "ASGI" not in log
    assert "Traceback" not in log


async def test_a_changed_log_level_holds_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path, {"log_level": "warning"}, "terminal") as service:
        text = service.config.read_text()
        service.config.write_text(text.replace("log_level: warning", "log_level: info"))
        applied = "the changed configuration has been applied"
        await eventually(lambda: applied in service.log.read_text())


async def test_a_service_starts_answers_and_stops(tmp_path: Path) -> None:
    async with serving(tmp_path, {}, "terminal", fork=False) as service:
        banner = service.log.read_text()
        token = (service.home / "admin_token").read_text().strip()
        for part in (service.url, "demo", "slack", "telegram", "feishu", "terminal", "admin_token"):
            assert part in banner
        async with httpx.AsyncClient(base_url=service.url) as stranger:
            assert (await stranger.get("/api/models")).status_code == 401
            rebound = await stranger.get("/health", headers={"Host": "evil.example"})
            assert rebound.status_code == 421
        code, out, err = await service.command(
            "chat", stdin="hello\n/models\nwrite a file a.txt saying hi\n"
        )
        assert (code, err) == (0, "")
        assert "hello" in out
        assert "Available models:\n• demo" in out
        (saved,) = re.findall(r"\[file\] a\.txt -> (.+)", out)
        assert (await anyio.Path(saved).read_text()).strip() == "hi"
        code, out, _ = await service.command("threads")
        assert code == 0
        assert "terminal" in out
        code, _, err = await service.command("serve")
        assert (code, "in use" in err) == (1, True)
        assert await service.stop() == 0
        await service.start()
        await service.until_connected("terminal")
        code, out, _ = await service.command("chat", stdin="hello again\n")
        assert code == 0
        assert "first message" not in out
    text = service.log.read_text()
    assert "Traceback" not in text
    assert token not in text, "other users may be able to read the log"


async def test_commands_find_a_service_at_another_port(tmp_path: Path) -> None:
    """`serve --port` differs from the configuration. Commands find the address in the lock file."""
    async with serving(tmp_path, {}, "terminal") as service:
        text = service.config.read_text().replace(str(service.port), str(free_port()))
        service.config.write_text(text)
        for command in (("threads",), ("pairing", "list"), ("doctor", "--no-model")):
            code, out, err = await service.command(*command)
            assert (code, err) == (0, ""), command
            if command[0] == "doctor":
                assert f"running at {service.url}" in out
        await service.kill()
        code, out, _ = await service.command("doctor", "--no-model")
        assert "not running" in out


async def test_a_service_whose_data_folder_is_gone_stops_with_one_line(tmp_path: Path) -> None:
    async with serving(tmp_path, {}, "terminal") as service:
        service.home.rename(tmp_path / "elsewhere")
        process = service._process
        assert process is not None
        with anyio.fail_after(30):
            assert await process.wait() == 1
        text = service.log.read_text()
    assert text.splitlines()[-1].startswith(f"parley: {service.home}: the data folder is gone")
    assert "Traceback" not in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
async def test_a_start_on_a_full_disk_says_so_in_one_line(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        await anyio.run_process(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)])
    except CalledProcessError:
        pytest.skip("mounting is not allowed here")
    try:
        for size in (60, 40, 8):
            (disk / "fill").write_bytes(b"x" * size * 1024)
            arguments = ("serve", "--port", str(free_port()))
            run = partial(parley, tmp_path, *arguments, PARLEY_HOME=str(disk / "home"))
            code, _, err = await anyio.to_thread.run_sync(run)
            assert code == 1
            assert "the disk is full" in one_line(err)
    finally:
        await anyio.run_process(["umount", str(disk)])


async def test_a_second_process_and_a_wrong_token_are_reported(tmp_path: Path) -> None:
    async with serving(tmp_path, {}, "terminal") as service:
        other = tmp_path / "other"
        other.mkdir()
        config = f"gateway: {{port: {free_port()}}}"
        run = partial(parley, other, "serve", config=config, PARLEY_HOME=str(service.home))
        code, _, err = await anyio.to_thread.run_sync(run)
        assert code == 1
        assert "Another Parley process" in one_line(err)
        code, _, err = await anyio.to_thread.run_sync(
            lambda: parley(
                other,
                "chat",
                config=f"gateway: {{port: {service.port}}}",
                PARLEY_ADMIN_TOKEN="wrong-token",
            )
        )
        assert code == 1
        assert "PARLEY_ADMIN_TOKEN" in one_line(err)


async def test_it_serves_with_closed_standard_streams(tmp_path: Path) -> None:
    port = free_port()
    command = f"exec {sys.executable} -m gateway serve --port {port} <&- >&- 2>&-"
    process = await anyio.open_process(
        ["sh", "-c", command], cwd=tmp_path, env=environment(tmp_path)
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:

            async def is_ready() -> bool:
                with contextlib.suppress(httpx.TransportError):
                    return (await client.get("/health/ready")).status_code == httpx.codes.OK
                return False

            await eventually(is_ready)
        process.send_signal(signal.SIGHUP)
        with anyio.fail_after(STOP_WITHIN_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.aclose()


async def test_it_stops_in_time_while_a_run_hangs(tmp_path: Path) -> None:
    async with FakeModelServer() as model:
        model.reply(ModelReply(text="one two three", hang_after=1))
        config = {**with_model(model.base_url), "channels": {"drain_s": 1}}
        async with serving(tmp_path, config, "terminal") as service, service.client() as client:
            said = await client.post("/api/channels/terminal/s/messages", json={"text": "hang"})
            assert said.status_code == 202
            await eventually(lambda: model.requests)
            process = service._process
            assert process is not None
            process.send_signal(signal.SIGTERM)
            with anyio.fail_after(STOP_WITHIN_S):
                assert await process.wait() == 0
    assert "Traceback" not in service.log.read_text()


async def test_chat_without_a_service_runs_the_agent_here(tmp_path: Path) -> None:
    code, out, err = await anyio.to_thread.run_sync(
        lambda: parley(
            tmp_path,
            "chat",
            stdin="hello\n/status\n/quit\nnever said\n",
            config=f"gateway: {{port: {free_port()}}}",
        )
    )
    assert (code, err) == (0, "")
    assert "hello" in out
    assert "Active thread: " in out
    assert "never said" not in out
    assert (tmp_path / "home" / "parley.log").exists()
    assert not (tmp_path / "home" / "admin_token").exists()


async def test_chat_alone_leaves_the_messages_of_platforms_to_the_service(tmp_path: Path) -> None:
    config = f"gateway: {{port: {free_port()}}}"
    place = ReplyTarget(chat="c")
    body = encode_outbound(OutboundText(channel="slack", reply_target=place, markdown="owed"))
    key = ConversationKey(channel="slack", workspace="w", chat="c")
    async with Database.open(StoreConfig(), tmp_path / "home") as database:
        await OutboxStore(database).enqueue([NewOutboxRow(key="1", conversation=key, body=body)])
    run = partial(parley, tmp_path, "chat", stdin="hello\n", config=config)
    code, out, err = await anyio.to_thread.run_sync(run)
    assert (code, out) == (1, "")
    assert "slack" in one_line(err)
    async with Database.open(StoreConfig(), tmp_path / "home") as database:
        (row,) = await OutboxStore(database).list_open()
        assert row.state == "pending"


class Pseudoterminal:
    """A person at a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    async def until(self, text: str) -> None:
        """Read until `text` has been printed since the last call."""
        with anyio.fail_after(30):
            while text not in self.seen:
                await anyio.wait_readable(self._descriptor)
                try:
                    self.seen += os.read(self._descriptor, 65536).decode("utf-8", "replace")
                except OSError as error:  # EIO: the other side closed
                    raise AssertionError(f"ended without {text!r}: {self.seen!r}") from error
        self.seen = self.seen.partition(text)[2]


@asynccontextmanager
async def at_a_terminal(
    folder: Path, *arguments: str
) -> AsyncIterator[tuple[Pseudoterminal, ParleyProcess]]:
    ours, theirs = pty.openpty()
    try:
        process = fork_parley(arguments, environment(folder), folder, (theirs, theirs, theirs))
        os.close(theirs)
        try:
            yield Pseudoterminal(ours), process
        finally:
            process.send_signal(signal.SIGKILL)
    finally:
        os.close(ours)


@pytest.mark.parametrize("leave", ["\x04", "signal"])
async def test_serve_at_a_terminal_opens_the_chat(tmp_path: Path, leave: str) -> None:
    port = free_port()
    (tmp_path / "config.yaml").write_text(f"gateway: {{port: {port}}}")
    async with at_a_terminal(tmp_path, "serve") as (screen, process):
        await screen.until(f"http://127.0.0.1:{port}")
        await screen.until("you>")
        screen.type("good morning\n")
        await screen.until("You said: good morning")
        await screen.until("you>")
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"http://127.0.0.1:{port}/health")).status_code == 200
        if leave == "signal":
            process.send_signal(signal.SIGINT)
        else:
            screen.type(leave)
        await screen.until("Stopping")
        with anyio.fail_after(STOP_WITHIN_S):
            assert await process.wait() == 0
    assert (tmp_path / "home" / "parley.log").stat().st_size > 0


async def test_no_chat_leaves_the_terminal_to_the_log(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(f"gateway: {{port: {free_port()}}}")
    async with at_a_terminal(tmp_path, "serve", "--no-chat") as (screen, process):
        await screen.until("logs      here")
        process.send_signal(signal.SIGTERM)
        with anyio.fail_after(STOP_WITHIN_S):
            assert await process.wait() == 0
    assert not (tmp_path / "home" / "parley.log").exists()


async def test_closed_output_does_not_stop_it(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "config.yaml").write_text(f"gateway: {{port: {port}}}")
    reading, writing = os.pipe()
    os.close(reading)
    with Path(os.devnull).open("rb") as nothing:  # noqa: ASYNC230 - not a file on disk
        files = (nothing.fileno(), writing, writing)
        process = fork_parley(["serve"], environment(tmp_path), tmp_path, files)
    os.close(writing)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        try:
            await eventually(lambda: has_started(client), every_s=0.05)
            process.send_signal(signal.SIGTERM)
            with anyio.fail_after(STOP_WITHIN_S):
                assert await process.wait() == 0
        finally:
            process.send_signal(signal.SIGKILL)


async def has_started(client: httpx.AsyncClient) -> bool:
    """Request a page that needs a token. Requests wait while the service starts."""
    try:
        return (await client.get("/api/models", timeout=30)).status_code == 401
    except httpx.TransportError:
        return False
