"""Commands in the background: started, polled, listed and stopped, in each sandbox, with their limits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import ToolMessage

from agent.errors import SandboxError
from agent.sandbox import background_commands
from agent.sandbox.background_commands import MAX_PER_THREAD, MAX_RUNNING, BackgroundCommands
from agent.sandbox.bubblewrap import probe_bubblewrap
from agent.sandbox.result import TAIL_BYTES
from tests.agent.agent_harness import AgentHarness, open_agent
from tests.agent.cached_conversation import ModelEntry, anthropic_entry, openai_entry
from tests.agent.plain_agent import THREAD
from tests.eventually import eventually
from tests.fakes.docker import machine
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall
from tests.fakes.model_switches import ModelSwitches
from tests.fakes.scripted import ScriptedChatModel

FAULT = probe_bubblewrap()
SANDBOXES = ("bubblewrap", "local", "docker")
LONG_S = 60.0
SERVER = "echo ready; echo error >&2; exec sleep 300"


@asynccontextmanager
async def opened(
    home: Path, sandbox: str, model: ScriptedChatModel | None = None, **config: object
) -> AsyncIterator[AgentHarness]:
    """Open an agent whose commands run in a sandbox of this kind."""
    if sandbox == "bubblewrap" and FAULT is not None:
        pytest.skip(f"bubblewrap does not work here: {FAULT}")
    with machine(home / "docker") as docker:
        sections: dict[str, dict[str, Any]] = {
            "bubblewrap": {"use": "bubblewrap"},
            "local": {"use": "local", "allow_host_bash": True},
            "docker": {"use": "docker", "docker": {"command": str(docker.program)}},
        }
        playing = model or ScriptedChatModel.playing()
        async with open_agent(home, playing, {"sandbox": sections[sandbox], **config}) as harness:
            yield harness


async def started(harness: AgentHarness, command: str, thread: str = THREAD) -> str:
    """Start a command in a thread; return its id."""
    sandbox = await harness.services.sandboxes.acquire(thread)
    return (await harness.services.background.start(thread, sandbox, command)).id


async def output_with(of: BackgroundCommands, command_id: str, *parts: str) -> str:
    """Poll until all of these parts were printed."""
    seen = ""

    async def has_all() -> bool:
        nonlocal seen
        seen += await of.poll(THREAD, command_id)
        return all(part in seen for part in parts)

    await eventually(has_all, within_s=LONG_S)
    return seen


@pytest.mark.parametrize("sandbox", SANDBOXES)
async def test_a_command_goes_on_while_others_run_and_is_stopped(
    tmp_path: Path, sandbox: str
) -> None:
    def call(call_name: str, call_id: str, **args: object) -> ModelReply:
        return ModelReply(calls=(ToolCall(name=call_name, args=args, id=call_id),))

    model = ScriptedChatModel.playing(
        call("bash", "c1", command=SERVER, run_in_background=True),
        call("bash_output", "c2", process_id="b1", wait_s=1),
        call("bash", "c3", command="echo beside"),
        ModelReply(text="It runs."),
        call("kill_bash", "c4", process_id="b1"),
        call("bash_output", "c5", process_id="b1"),
        ModelReply(text="It has ended."),
    )
    async with opened(tmp_path, sandbox, model) as harness:
        first = results(await harness.say("start it"))
        assert first[0].startswith("Started in the background as b1.")
        assert first[2] == "beside\n"
        printed = first[1] + await output_with(harness.services.background, "b1")
        if "error" not in printed:  # the machine was busy
            printed += await output_with(harness.services.background, "b1", "ready", "error")
        assert "[b1 is running, " in printed
        messages = await harness.say("stop it")
        assert not harness.services.background.running(THREAD)
    stopped, gone = results(messages)[3:]
    assert stopped.endswith("It was stopped.\n[b1 has ended]")
    assert gone.startswith("Error: there is no background process 'b1'")
    # While the command runs, each request ends with the list, which is not stored.
    listed = [str(prompt[-1].content) for prompt in model.prompts]
    assert [SERVER in text for text in listed] == [False, True, True, True, True, False, False]
    assert "[Background processes that are running now:\n- b1 (" in listed[4]
    assert listed[4].startswith("stop it\n\n")
    assert not any("Background processes" in message.text for message in messages)


def results(messages: list[Any]) -> list[str]:
    return [message.text for message in messages if isinstance(message, ToolMessage)]


@pytest.mark.parametrize("entry", [openai_entry, anthropic_entry])
async def test_requests_with_the_list_fit_strict_templates_and_keep_their_prefix(
    tmp_path: Path, entry: ModelEntry
) -> None:
    async with FakeModelServer(ModelSwitches(strict=True, caches_prefixes=True)) as server:
        title = {"enabled": False}
        async with opened(tmp_path, "local", models=[entry(server)], title=title) as harness:
            await started(harness, "sleep 300")
            server.reply(
                *(
                    ModelReply(
                        calls=(ToolCall(name="bash", args={"command": f"seq {n} 900"}, id=f"c{n}"),)
                    )
                    for n in range(8)
                ),
                "Done.",
            )
            await harness.say("go", model_name="server")
            await harness.say("and now?", model_name="server")
    assert not server.refusals
    assert all("- b1 (" in str(request.messages[-1]) for request in server.requests)
    assert sum("- b1 (" in str(m) for m in server.requests[-1].messages) == 1
    for before, request in pairwise(server.requests):
        assert request.cached_tokens > 0.95 * before.tokens


@pytest.mark.parametrize("sandbox", SANDBOXES)
async def test_an_ended_command_says_how_it_ended(tmp_path: Path, sandbox: str) -> None:
    async with opened(tmp_path, sandbox) as harness:
        background = harness.services.background
        good = await started(harness, "echo done > file; cat file")
        bad = await started(harness, "echo no >&2; exit 3")
        assert await background.poll(THREAD, good, wait_s=LONG_S) == "done\n[b1 has ended]"
        ended = await background.poll(THREAD, bad, wait_s=LONG_S)
        assert ended == "no\nExit Code: 3\n[b2 has ended]"
        with pytest.raises(SandboxError, match="no background process 'b1'"):
            await background.poll(THREAD, good)


async def test_commands_are_bounded_in_number_output_and_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, "local") as harness:
        background = harness.services.background
        for _ in range(MAX_PER_THREAD):
            await started(harness, "sleep 300")
        with pytest.raises(SandboxError, match="already running, which is the limit"):
            await started(harness, "sleep 300")
        await background.stop(THREAD, "b1")
        long = await started(harness, "seq 100000; sleep 300")
        printed = await output_with(background, long, "\n100000\n")
        assert "earlier bytes left out]\n" in printed or len(printed) > TAIL_BYTES
        await background.stop_all(THREAD)
        others = [f"t-{n}" for n in range(MAX_RUNNING // MAX_PER_THREAD)]
        for thread in others:
            for _ in range(MAX_PER_THREAD):
                await started(harness, "sleep 300", thread)
        with pytest.raises(SandboxError, match="too many background processes"):
            await started(harness, "sleep 300")
        for thread in others:
            await background.stop_all(thread)
        monkeypatch.setattr(background_commands, "MAX_AGE_S", 0.5)
        old = await started(harness, "sleep 300")
        ended = await background.poll(THREAD, old, wait_s=LONG_S)
        assert "it took longer than 0.5 s." in ended


async def test_commands_of_unused_threads_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, "local") as harness:
        background = harness.services.background
        others = [f"t-{n}" for n in range(MAX_RUNNING // MAX_PER_THREAD)]
        ids = {
            thread: [await started(harness, "sleep 300", thread) for _ in range(MAX_PER_THREAD)]
            for thread in others
        }
        with pytest.raises(SandboxError, match="too many background processes"):
            await started(harness, "sleep 300")
        background.running(others[0])  # as each request to the model does
        assert "is running" in await background.poll(others[1], ids[others[1]][0])
        monkeypatch.setattr(background_commands, "IDLE_S", 0.0)
        await started(harness, "sleep 300")
        left = {thread: len(background.running(thread)) for thread in (*others, THREAD)}
        assert left == {**dict.fromkeys(others, MAX_PER_THREAD), others[2]: 0, THREAD: 1}
        told = await background.poll(others[2], ids[others[2]][0])
        assert "to make room for another conversation" in told


@pytest.mark.parametrize("sandbox", SANDBOXES)
async def test_commands_end_with_their_thread_and_with_the_service(
    tmp_path: Path, sandbox: str
) -> None:
    first, second = (f"3000.{uuid4().int}" for _ in range(2))

    def runs(seconds: str) -> bool:
        return any(seconds in text for text in running_programs())

    async with opened(tmp_path, sandbox) as harness:
        await started(harness, f"exec sleep {first}", "t-1")
        await started(harness, f"exec sleep {second}", "t-2")
        await eventually(lambda: runs(f"sleep\0{first}") and runs(f"sleep\0{second}"))
        assert await harness.services.delete_files("t-1")
        assert not harness.services.background.running("t-1")
        # The kernel ends the processes of a killed sandbox a moment later.
        await eventually(lambda: not runs(first))
        assert runs(f"sleep\0{second}")
    await eventually(lambda: not runs(second))


def running_programs() -> list[str]:
    """Return the arguments of all processes of this machine."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found.append(file.read_text(errors="replace"))
    return found


async def test_a_time_limit_holds_in_the_background(tmp_path: Path) -> None:
    args = {"command": "sleep 300", "run_in_background": True, "timeout_s": 0.5}
    model = ScriptedChatModel.playing(
        ModelReply(calls=(ToolCall(name="bash", args=args, id="c1"),)), "Started."
    )
    async with opened(tmp_path, "local", model) as harness:
        assert results(await harness.say("go"))[0].endswith("It is stopped after 0.5 seconds.")
        ended = await harness.services.background.poll(THREAD, "b1", wait_s=LONG_S)
        assert "it took longer than 0.5 s." in ended


async def test_a_thread_does_not_reach_the_commands_of_another(tmp_path: Path) -> None:
    async with opened(tmp_path, "local") as harness:
        mine = await started(harness, "sleep 300")
        for call in (harness.services.background.poll, harness.services.background.stop):
            with pytest.raises(SandboxError, match="no background process"):
                await call("t-other", mine)
        assert harness.services.background.running(THREAD)
