"""The embedded client around the whole agent: turns, threads, and options."""

import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from blockbuster import blockbuster_ctx
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from typing_extensions import Unpack, override

from agent.client import AsyncParleyClient, ParleyClient, StreamEvent, open_client
from agent.client.options import ClientOptions
from agent.errors import (
    AgentInvalid,
    AgentNotFound,
    ClientClosed,
    ModelNotFound,
    ThreadIdInvalid,
    UploadNotFound,
    UploadTooLarge,
)
from agent.locales.en import ENGLISH
from agent.paths import OUTPUTS
from store.errors import StoreLocked
from tests.agent.test_skills import put
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel, registered

QUIET: dict[str, Any] = {"memory": {"enabled": False}}


@asynccontextmanager
async def opened(
    home: Path,
    model: ScriptedChatModel,
    *,
    saver: InMemorySaver | None = None,
    sections: dict[str, Any] | None = None,
    **options: Unpack[ClientOptions],
) -> AsyncIterator[AsyncParleyClient]:
    with registered(model) as keys:
        config = {**QUIET, "models": [keys], **(sections or {})}
        async with open_client(config, home=home, checkpointer=saver, **options) as client:
            yield client


@contextmanager
def blocking(home: Path, model: ScriptedChatModel) -> Iterator[ParleyClient]:
    with (
        registered(model) as keys,
        ParleyClient({**QUIET, "models": [keys]}, home=home) as client,
    ):
        yield client


def spoken(events: list[StreamEvent]) -> list[dict[str, Any]]:
    return [event.data for event in events if event.type == "messages-tuple"]


def asked(model: ScriptedChatModel, call: int = -1) -> list[str]:
    """Return the people's messages that a model was shown."""
    return [str(one.text) for one in model.prompts[call] if isinstance(one, HumanMessage)]


def system(model: ScriptedChatModel) -> str:
    return next(str(one.text) for one in model.prompts[-1] if isinstance(one, SystemMessage))


# --- turns -----------------------------------------------------------------------------------------------------


async def test_a_turn_is_streamed_in_the_recorded_sequence(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedChatModel.playing("Hello there")) as client:
        events = [event async for event in client.stream("hi", "t1")]
    assert [event.type for event in events] == [*["messages-tuple"] * 3, "values", "end"]
    assert [one["content"] for one in spoken(events)] == ["Hello ", "there", ""]
    assert len({one["id"] for one in spoken(events)}) == 1
    state = events[-2].data
    assert set(state) == {"title", "messages", "artifacts"}
    assert [(one["type"], one["content"]) for one in state["messages"]] == [
        ("human", "hi"),
        ("ai", "Hello there"),
    ]
    assert events[-1].data["usage"] == spoken(events)[-1]["usage_metadata"]


async def test_later_turns_remember_and_do_not_repeat(tmp_path: Path) -> None:
    write = ToolCall(name="write_file", args={"path": f"{OUTPUTS}/a.txt", "content": "hi"}, id="c1")
    show = ToolCall(name="present_files", args={"filepaths": [f"{OUTPUTS}/a.txt"]}, id="c2")
    model = ScriptedChatModel.playing(
        ModelReply(text="I write.", calls=(write,)),
        ModelReply(calls=(show,)),
        "Written.",
        "Still there.",
    )
    async with opened(tmp_path, model) as client:
        first = [event async for event in client.stream("write", "t1")]
        second = [event async for event in client.stream("and now?", "t1")]
        assert await client.get_artifact("t1", "mnt/user-data/outputs/a.txt") == (
            b"hi",
            "text/plain",
        )
    calls = [one["tool_calls"] for one in spoken(first) if "tool_calls" in one]
    assert calls == [[{"name": one.name, "args": one.args, "id": one.id}] for one in (write, show)]
    results = [one for one in spoken(first) if one["type"] == "tool"]
    assert [(one["name"], one["tool_call_id"]) for one in results] == [
        ("write_file", "c1"),
        ("present_files", "c2"),
    ]
    assert "".join(one["content"] for one in spoken(second)) == "Still there."
    assert not any(one["type"] == "tool" or "tool_calls" in one for one in spoken(second))
    assert second[-2].data["artifacts"] == [f"{OUTPUTS}/a.txt"]
    counted = [one["usage_metadata"] for one in spoken(second) if "usage_metadata" in one]
    assert [second[-1].data["usage"]] == counted
    assert asked(model) == ["write", "and now?"]


async def test_chat_returns_the_last_words(tmp_path: Path) -> None:
    look = ToolCall(name="ls", args={"path": OUTPUTS}, id="c1")
    ask = ToolCall(name="ask_clarification", args={"question": "Which one?"}, id="c2")
    model = ScriptedChatModel.playing(
        ModelReply(text="Let me look.", calls=(look,)),
        "Nothing there.",
        ModelReply(calls=(ask,)),
        *[ModelReply()] * 2,  # an empty answer is retried once
    )
    async with opened(tmp_path, model) as client:
        assert await client.chat("look", "t1") == "Nothing there."
        assert await client.chat("take it", "t1") == "❓ Which one?"
        assert await client.chat("hm", "t2") == ""


async def test_a_turn_without_a_thread_gets_one_of_its_own(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing("One.", "Two.")
    async with opened(tmp_path, model) as client:
        await client.chat("first")
        await client.chat("second")
        assert asked(model) == ["second"]
        threads = (await client.list_threads())["thread_list"]
    assert len({thread["thread_id"] for thread in threads}) == 2


async def test_turns_of_one_thread_wait_for_each_other(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(
        *(ModelReply(text=text, token_delay_s=0.001) for text in ("One.", "Two.", "Three."))
    )
    async with opened(tmp_path, model) as client, anyio.create_task_group() as tasks:
        for said in ("a", "b", "c"):
            tasks.start_soon(client.chat, said, "t1")
    assert [asked(model, n) for n in range(3)] == [["a"], ["a", "b"], ["a", "b", "c"]]


async def test_leaving_early_stops_the_turn_and_lets_the_next_one_run(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing("A long answer.", "Here.")
    async with opened(tmp_path, model) as client:
        async with aclosing(client.stream("go", "t1")) as events:
            assert (await anext(events)).data["content"] == "A "
        with anyio.fail_after(20):
            assert await client.chat("again", "t1") == "Here."
    assert asked(model) == ["go", "again"]


async def test_a_turn_that_is_cancelled_leaves_its_thread_free(tmp_path: Path) -> None:
    hanging = ScriptedChatModel.playing("never")
    hanging.hold()
    async with opened(tmp_path, hanging) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.chat, "wait", "t1")
            await hanging.called.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(20):
            assert (await client.delete_thread("t1"))["success"] is True


async def test_a_turn_accepts_these_options(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing("a", "b", "c")
    async with opened(tmp_path, model, plan_mode=True) as client:
        await client.chat("x", "t1")
        planned = system(model)
        await client.chat("x", "t1", plan_mode=False)
        plain = system(model)
        await client.chat("x", "t1", subagent_enabled=True)
        delegating = system(model)
    assert "write_todos" in planned
    assert "write_todos" not in plain
    assert "<delegation>" in delegating
    assert "<delegation>" not in plain


async def test_a_turn_is_bounded_in_steps(tmp_path: Path) -> None:
    look = ModelReply(calls=(ToolCall(name="ls", args={"path": OUTPUTS}, id="c1"),))
    async with opened(tmp_path, ScriptedChatModel.playing(*[look] * 9)) as client:
        assert await client.chat("go on", "t1", recursion_limit=3) == ENGLISH.step_limit_reached
        assert [row["thread_id"] for row in (await client.list_threads())["thread_list"]] == ["t1"]


@pytest.mark.parametrize("thread", ["../t", "a b", "x" * 65, "tést"])
async def test_a_thread_id_becomes_a_folder(tmp_path: Path, thread: str) -> None:
    model = ScriptedChatModel.playing("no")
    async with opened(tmp_path, model) as client:
        for refused in (client.chat("hi", thread), client.delete_thread(thread)):
            with pytest.raises(ThreadIdInvalid):
                await refused
    assert model.prompts == []


async def test_invalid_options_of_a_turn_are_refused(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing("no")
    async with opened(tmp_path, model) as client:
        with pytest.raises(ModelNotFound, match="gpt-9"):
            await client.chat("hi", model_name="gpt-9")
        with pytest.raises(AgentNotFound):
            await client.chat("hi", agent_name="nobody")
        with pytest.raises(AgentInvalid):
            await client.chat("hi", agent_name="../x")
        with pytest.raises(ValueError, match="recursion_limit"):
            await client.chat("hi", recursion_limit=0)
        with pytest.raises(TypeError):
            await client.chat("hi", modle_name="x")  # type: ignore[call-arg]  # a slip of the pen
    assert model.prompts == []


async def test_a_failing_model_is_reported(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(ConnectionError("at 10.0.0.7"))
    sections = {"llm_retry": {"max_attempts": 1}}
    async with opened(tmp_path, model, sections=sections) as client:
        events = [event async for event in client.stream("hi", "t1")]
        assert await client.chat("again", "t1") == "(done)"
    (told,) = spoken(events)
    assert told["additional_kwargs"]["error_fallback"]
    assert told["content"]
    assert "10.0.0.7" not in told["content"]


# --- agent options ---------------------------------------------------------------------------------------------


class RecordingMiddleware(AgentMiddleware[Any, Any]):
    """Counts the calls it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    @override
    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        self.seen.append(str(request.messages[-1].text))
        return await handler(request)


async def test_a_callers_middleware_is_next_to_the_model(tmp_path: Path) -> None:
    noting = RecordingMiddleware()
    model = ScriptedChatModel.playing(ConnectionError("reset"), "Hello.")
    retry = {"llm_retry": {"first_wait_s": 0}}
    async with opened(tmp_path, model, sections=retry, middlewares=[noting]) as client:
        assert await client.chat("hi") == "Hello."
    assert noting.seen == ["hi", "hi"]


async def test_middleware_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing()
    async with opened(
        tmp_path, model, middlewares=[RecordingMiddleware(), RecordingMiddleware()]
    ) as client:
        with pytest.raises(ValueError, match="RecordingMiddleware is given twice"):
            await client.chat("hi")


async def test_only_available_skills_are_in_the_prompt(tmp_path: Path) -> None:
    for name in ("prose", "verse"):
        put(tmp_path / "skills" / "custom" / name, name)
    model = ScriptedChatModel.playing("a", "b")
    async with opened(tmp_path, model, available_skills={"verse"}) as client:
        await client.chat("hi")
        assert len((await client.list_skills())["skills"]) > 1
    assert "verse/SKILL.md" in system(model)
    assert "prose/SKILL.md" not in system(model)
    async with opened(tmp_path, model, available_skills=[]) as client:
        await client.chat("hi")
    assert "SKILL.md" not in system(model)


async def test_a_single_name_is_no_list_of_skills(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="list of names"):
        async with opened(tmp_path, ScriptedChatModel.playing(), available_skills="verse"):
            pass


async def test_traces_are_labelled_with_the_environment(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedChatModel.playing(), environment="staging") as client:
        assert client._services.tracing._label == "staging"


async def test_a_custom_agent_speaks(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing("Arr.", "Arr!")
    async with opened(tmp_path, model, agent_name="Pirate") as client:
        await client.create_agent("pirate", soul="You are a pirate.")
        await client.chat("hi")
        assert "You are a pirate." in system(model)
        await client.update_agent("pirate", soul="You are an admiral.")
        await client.chat("hi")
    assert "You are an admiral." in system(model)


async def test_a_skill_that_is_switched_off_is_gone_from_the_next_turn(tmp_path: Path) -> None:
    put(tmp_path / "skills" / "custom" / "verse", "verse")
    model = ScriptedChatModel.playing("a", "b", "c")
    async with opened(tmp_path, model) as client:
        await client.chat("hi", "t1")
        assert "verse/SKILL.md" in system(model)
        await client.update_skill("verse", enabled=False)
        await client.chat("hi", "t1")
        assert "verse/SKILL.md" not in system(model)
        await client.reset_agent()
        assert await client.chat("hi", "t1") == "c"


# --- threads ---------------------------------------------------------------------------------------------------


async def test_threads_are_kept_in_the_data_folder(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing("One.", "Two.", "Three.")
    async with opened(tmp_path, model) as client:
        await client.chat("first things", "a")
        await client.chat("second things", "b")
    async with opened(tmp_path, model) as client:
        listed = (await client.list_threads())["thread_list"]
        assert [(row["thread_id"], row["title"]) for row in listed] == [
            ("b", "second things"),
            ("a", "first things"),
        ]
        assert await client.chat("more", "a") == "Three."
        assert asked(model) == ["first things", "more"]
        (newest,) = (await client.list_threads(limit=1))["thread_list"]
        assert newest["thread_id"] == "a"
        assert newest["created_at"] == listed[1]["created_at"] < newest["updated_at"]
        thread = await client.get_thread("a")
        assert thread["checkpoints"][-1]["checkpoint_id"] == newest["latest_checkpoint_id"]


async def test_a_thread_is_shown_step_by_step(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedChatModel.playing("One.")) as client:
        await client.chat("hi", "a")
        thread = await client.get_thread("a")
        assert (await client.get_thread("b")) == {"thread_id": "b", "checkpoints": []}
    steps = thread["checkpoints"]
    assert thread["thread_id"] == "a"
    assert [step["parent_checkpoint_id"] for step in steps] == [
        None,
        *[step["checkpoint_id"] for step in steps[:-1]],
    ]
    assert steps == sorted(steps, key=lambda step: str(step["ts"]))
    assert [one["content"] for one in steps[-1]["values"]["messages"]] == ["hi", "One."]
    assert steps[0]["metadata"]["source"] == "input"


async def test_a_thread_goes_with_its_files(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("notes")
    async with opened(tmp_path / "home", ScriptedChatModel.playing("One.", "Two.")) as client:
        await client.chat("hi", "a")
        await client.upload_files("a", [file])
        await client.delete_thread("a")
        assert (await client.list_threads())["thread_list"] == []
        assert (await client.get_thread("a"))["checkpoints"] == []
        assert (await client.list_uploads("a"))["count"] == 0
        assert (await client.delete_thread("a"))["success"] is True
        assert await client.chat("anew", "a") == "Two."


async def test_threads_of_a_callers_checkpointer(tmp_path: Path) -> None:
    saver, model = InMemorySaver(), ScriptedChatModel.playing("One.", "Two.", "Three.")
    async with opened(tmp_path, model, saver=saver) as client:
        await client.chat("first", "a")
        await client.chat("second", "b")
    async with opened(tmp_path, model, saver=saver) as client:
        await client.chat("more", "a")
        listed = (await client.list_threads())["thread_list"]
        assert [(row["thread_id"], row["title"]) for row in listed] == [
            ("a", "first"),
            ("b", "second"),
        ]
        assert listed[0]["created_at"] < listed[1]["created_at"] < listed[0]["updated_at"]
        steps = (await client.get_thread("a"))["checkpoints"]
        assert steps[-1]["checkpoint_id"] == listed[0]["latest_checkpoint_id"]
        assert len((await client.list_threads(limit=1))["thread_list"]) == 1
        assert (await client.list_threads(limit=-1))["thread_list"] == []
        assert (await client.list_threads(limit=0))["thread_list"] == []
        await client.delete_thread("a")
        assert [row["thread_id"] for row in (await client.list_threads())["thread_list"]] == ["b"]
    assert asked(model) == ["first", "more"]
    async with opened(tmp_path, model) as client:  # it left nothing in the data folder
        assert (await client.list_threads())["thread_list"] == []


async def test_one_client_at_a_time_uses_a_data_folder(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedChatModel.playing()):
        with pytest.raises(StoreLocked):
            async with open_client(home=tmp_path):
                pass


# --- files -----------------------------------------------------------------------------------------------------


async def test_files_are_checked_before_any_is_copied(tmp_path: Path) -> None:
    good = tmp_path / "good.txt"
    good.write_text("good")
    async with opened(tmp_path / "home", ScriptedChatModel.playing()) as client:
        with pytest.raises(FileNotFoundError):
            await client.upload_files("t1", [good, tmp_path / "none.txt"])
        with pytest.raises(ValueError, match="not a file"):
            await client.upload_files("t1", [good, tmp_path])
        with pytest.raises(ValueError, match="no files"):
            await client.upload_files("t1", [])
        with pytest.raises(UploadTooLarge):
            await client.upload_files("t1", [good] * 11)
        assert (await client.list_uploads("t1")) == {"files": [], "count": 0}
        with pytest.raises(UploadNotFound):
            await client.delete_upload("t1", "good.txt")


async def test_uploaded_files_are_in_the_prompt(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("notes")
    model = ScriptedChatModel.playing("I see.")
    async with opened(tmp_path / "home", model) as client:
        await client.upload_files("t1", [str(file)])
        await client.chat("read it", "t1")
    assert "notes.txt" in asked(model)[0]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("mnt/user-data/outputs/none.txt", FileNotFoundError),
        ("mnt/user-data/outputs", ValueError),
        ("mnt/user-data/outputs/../../x", ValueError),
        ("/etc/passwd", ValueError),
        ("mnt/user-data", ValueError),
        ("", ValueError),
        ("mnt/user-data/outputs/link", FileNotFoundError),
    ],
)
async def test_artifacts_do_not_lead_out(tmp_path: Path, path: str, error: type[Exception]) -> None:
    async with opened(tmp_path, ScriptedChatModel.playing()) as client:
        outputs = tmp_path / "threads" / "t1" / "user-data" / "outputs"
        outputs.mkdir(parents=True)
        (outputs / "link").symlink_to("/etc/passwd")
        with pytest.raises(error) as caught:
            await client.get_artifact("t1", path)
    assert str(tmp_path) not in str(caught.value)


async def test_nothing_blocks_the_loop(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("notes")
    put(tmp_path / "home" / "skills" / "custom" / "verse", "verse")
    async with opened(tmp_path / "home", ScriptedChatModel.playing("One.")) as client:
        with blockbuster_ctx(scanned_modules=["agent"]):
            await client.upload_files("t1", [file])
            await client.chat("hi", "t1")
            await client.get_artifact("t1", "mnt/user-data/uploads/notes.txt")
            await client.update_skill("verse", enabled=False)
            await client.create_agent("a", soul="b")
            await client.update_mcp_config({})
            await client.create_memory_fact("likes tea")
            await client.delete_thread("t1")
            with pytest.raises(FileNotFoundError):
                await client.install_skill(tmp_path / "none.skill")


# --- without an event loop -------------------------------------------------------------------------------------


def test_a_script(tmp_path: Path) -> None:
    with ParleyClient(home=tmp_path) as client:
        assert client.chat("hi", "my-thread").startswith("You said: hi")
        events = list(client.stream("again", "my-thread"))
        assert events[-1].type == "end"
        assert client.list_models()["models"][0]["name"] == "demo"
        assert client.list_threads()["thread_list"][0]["thread_id"] == "my-thread"
    with ParleyClient(home=tmp_path) as client:
        assert client.list_threads()["thread_list"][0]["thread_id"] == "my-thread"


def test_errors_come_out_as_they_are(tmp_path: Path) -> None:
    with blocking(tmp_path, ScriptedChatModel.playing("a")) as client:
        with pytest.raises(ModelNotFound):
            client.chat("hi", model_name="none")
        with pytest.raises(ModelNotFound):
            next(client.stream("hi", model_name="none"))
        with pytest.raises(RuntimeError, match="already open"):
            client.__enter__()
        with pytest.raises(StoreLocked), ParleyClient(home=tmp_path):
            pass
        assert client.chat("hi") == "a"


def test_an_error_of_the_program_comes_out_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="its own"), ParleyClient(home=tmp_path):
        raise KeyError("its own")


async def test_an_error_of_an_asynchronous_program_comes_out_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="its own"):
        async with opened(tmp_path, ScriptedChatModel.playing()):
            raise KeyError("its own")


def test_a_client_that_is_not_open_says_so(tmp_path: Path) -> None:
    client = ParleyClient(home=tmp_path)
    with pytest.raises(ClientClosed, match="with ParleyClient"):
        client.chat("hi")
    with client:
        pass
    with pytest.raises(ClientClosed):
        next(client.stream("hi"))
    with client:
        assert client.get_model("none") is None


def test_a_stream_may_be_left_early(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(" ".join(["word"] * 2000), "Two.", "Three.")
    with blocking(tmp_path, model) as client:
        for event in client.stream("go", "t1"):
            assert event.data["content"] == "word "
            break
        assert client.chat("again", "t1") == "Two."
        left = client.stream("go", "t1")
        next(left)
    assert model.prompts  # closing the client during a turn does not hang
    left.close()  # type: ignore[attr-defined]  # it is a generator


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt the tests even if they run as a background job of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class InterruptingMiddleware(AgentMiddleware[Any, Any]):
    """Sends the main thread a signal on the first model call, and does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self._is_done = False

    @override
    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        if not self._is_done:
            self._is_done = True
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await anyio.sleep_forever()
        return await handler(request)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_breaks_a_turn_off_and_the_client_goes_on(tmp_path: Path) -> None:
    with (
        registered(ScriptedChatModel.playing("Here.")) as keys,
        ParleyClient(
            {**QUIET, "models": [keys]}, home=tmp_path, middlewares=[InterruptingMiddleware()]
        ) as client,
    ):
        with pytest.raises(KeyboardInterrupt):
            client.chat("hi", "t1")
        assert client.chat("again", "t1") == "Here."


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_a_script(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        ParleyClient(home=tmp_path, middlewares=[InterruptingMiddleware()]) as client,
    ):
        list(client.stream("hi", "t1"))
    with ParleyClient(home=tmp_path) as client:  # the data folder is free again
        assert [row["thread_id"] for row in client.list_threads()["thread_list"]] == ["t1"]


def test_several_threads_may_use_one_client(tmp_path: Path) -> None:
    answers: list[str] = []
    with blocking(tmp_path, ScriptedChatModel.playing()) as client:
        workers = [
            threading.Thread(target=lambda n=n: answers.append(client.chat("hi", f"t{n}")))
            for n in range(4)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert answers == ["(done)"] * 4


async def test_it_may_be_used_beside_a_running_loop(tmp_path: Path) -> None:
    def script() -> str:
        with blocking(tmp_path, ScriptedChatModel.playing("Hello.")) as client:
            return client.chat("hi")

    assert await anyio.to_thread.run_sync(script) == "Hello."


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert methods(ParleyClient) == methods(AsyncParleyClient)
