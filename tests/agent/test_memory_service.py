"""The memory service: extraction, prompt blocks, corrections, deletion, closing."""

import json
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from blockbuster import blockbuster_ctx
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from agent.config import AgentConfig
from agent.errors import FactNotFound, MemoryInvalid
from agent.memory.schema import EMPTY_DOCUMENT, MemoryDocument
from agent.memory.scope import MemoryScope
from agent.memory.service import MemoryService, open_memory
from agent.options import RunContext
from tests.agent.memory_model import MemoryModel
from tests.eventually import eventually
from tests.fakes.scripted import ScriptedChatModel

ANN = MemoryScope(scope="person:slack:T1:U1")
BOB = MemoryScope(scope="person:slack:T1:U2")


def settings(**memory: object) -> AgentConfig:
    real = {"name": "m", "use": "somebody:Model", "model": "m"}
    return AgentConfig.model_validate({"models": [real], "memory": memory})


def caller(where: MemoryScope = ANN, thread: str = "t1") -> RunContext:
    return RunContext(thread_id=thread, memory_scope=where.scope, agent_name=where.agent)


def turn(text: str, answer: str = "I see.") -> list[AnyMessage]:
    return [HumanMessage(text, id=f"h-{text}"), AIMessage(answer, id=f"a-{text}")]


@asynccontextmanager
async def memory(
    home: Path,
    model: BaseChatModel,
    *,
    flush_s: float = 20.0,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    **keys: object,
) -> AsyncIterator[MemoryService]:
    async def given(_: str | None) -> BaseChatModel:
        return model

    config = settings(**keys)
    async with open_memory(home, lambda: config, given, flush_s=flush_s, now=now) as service:
        yield service


def saved_turns(home: Path) -> list[str]:
    return [path.read_text() for path in (home / "memory" / "pending").glob("*")]


def contents(document: MemoryDocument) -> list[str]:
    return [fact.content for fact in document.facts]


# ---- learning and showing ----------------------------------------------------------------------


async def test_closing_learns_what_waits_and_the_next_start_shows_it(tmp_path: Path) -> None:
    async with memory(tmp_path, MemoryModel()) as service:
        await service.enqueue_turn(turn("I sail markone"), caller())
        await service.enqueue_turn(turn("I cook marktwo"), caller(BOB))
        assert await service.prompt_block(caller()) == ""
    async with memory(tmp_path, MemoryModel()) as service:
        block = await service.prompt_block(caller())
        assert "- [context | 0.90] markone" in block
        assert "marktwo" not in block
        (fact,) = (await service.get(ANN)).facts
        assert (fact.source, fact.created_at[-1]) == ("t1", "Z")
    assert saved_turns(tmp_path) == []


async def test_each_change_is_told(tmp_path: Path) -> None:
    changes: list[str] = []

    async def given(_: str | None) -> BaseChatModel:
        return MemoryModel()

    config = settings()
    told = partial(changes.append, "changed")
    async with open_memory(tmp_path, lambda: config, given, on_change=told) as service:
        await service.enqueue_turn(turn("I sail markone"), caller())
    assert changes == ["changed"]
    async with open_memory(tmp_path, lambda: config, given, on_change=told) as service:
        (fact,) = (await service.get(ANN)).facts
        await service.delete_fact(ANN, fact.id)
        await service.clear(ANN)
    assert len(changes) == 3


async def test_all_turns_until_a_conversation_is_quiet_are_one_update(
    tmp_path: Path,
) -> None:
    model = MemoryModel()
    async with memory(tmp_path, model) as service:
        first = turn("markone")
        await service.enqueue_turn(first, caller())
        await service.enqueue_turn([*first, *turn("that's wrong, marktwo")], caller())
        await service.enqueue_turn([*first, AIMessage("again", id="x")], caller())
    (question,) = model.questions
    assert "markone" in question
    assert "marktwo" in question
    assert "corrected" in question


async def test_before_messages_are_dropped_they_are_learned_from_at_once(tmp_path: Path) -> None:
    model = MemoryModel()
    async with memory(tmp_path, model, debounce_seconds=300) as service:
        said = turn("markone")
        await service.enqueue_turn(said, caller())
        await service.enqueue_turn(turn("markother"), caller(BOB, thread="t2"))
        service.before_summarization(said, caller())
        await eventually(
            lambda: service.get(ANN), lambda document: contents(document) == ["markone"]
        )
        service.before_summarization(said, caller())
        assert len(model.questions) == 1


async def test_the_block_is_built_once_until_the_document_changes(tmp_path: Path) -> None:
    async with memory(tmp_path, MemoryModel()) as service:
        await service.create_fact(ANN, "sails")
        first = service.block_now(caller())
        assert service.block_now(caller()) is first
        await service.create_fact(ANN, "cooks")
        assert "cooks" in service.block_now(caller())
        assert "sails" not in service.block_now(caller(BOB))


async def test_a_conversation_keeps_its_block_until_it_rests(tmp_path: Path) -> None:
    now = [datetime(2026, 3, 1, tzinfo=UTC)]
    async with memory(tmp_path, MemoryModel(), now=lambda: now[0]) as service:
        await service.create_fact(ANN, "sails")
        first = service.block_now(caller())
        await service.enqueue_turn(turn("I cook markone"), caller())
        service.before_summarization([], caller())
        await eventually(lambda: service.get(ANN), lambda document: "markone" in contents(document))
        now[0] += timedelta(minutes=9)
        assert service.block_now(caller()) is first
        assert "markone" in service.block_now(caller(thread="t2"))
        now[0] += timedelta(minutes=9)
        assert service.block_now(caller()) is first
        now[0] += timedelta(minutes=10)
        assert "markone" in service.block_now(caller())


async def test_a_conversation_that_never_rests_gets_new_facts_every_hour(tmp_path: Path) -> None:
    now = [datetime(2026, 3, 1, tzinfo=UTC)]
    async with memory(tmp_path, MemoryModel(), now=lambda: now[0]) as service:
        await service.create_fact(ANN, "sails")
        first = service.block_now(caller())
        await service.enqueue_turn(turn("I cook markone"), caller())
        service.before_summarization([], caller())
        await eventually(lambda: service.get(ANN), lambda document: "markone" in contents(document))
        blocks = []
        for _ in range(130):
            now[0] += timedelta(minutes=1)
            blocks.append(service.block_now(caller()))
        assert [blocks.index(block) + 1 for block in dict.fromkeys(blocks)] == [1, 60]
        assert blocks[0] is first
        assert "markone" in blocks[-1]


async def test_nothing_is_learned_from_courtesies(tmp_path: Path) -> None:
    model = MemoryModel()
    async with memory(tmp_path, model) as service:
        for text in ("Thanks!", "👍", "谢谢", "What is 2 + 2?"):
            await service.enqueue_turn(turn(text), caller(thread=text))
    assert model.questions == []
    assert saved_turns(tmp_path) == []


async def test_deleted_facts_disappear_from_prompts_at_once(tmp_path: Path) -> None:
    async with memory(tmp_path, MemoryModel()) as service:
        document = await service.create_fact(ANN, "sails")
        assert "sails" in service.block_now(caller())
        await service.delete_fact(ANN, document.facts[0].id)
        assert service.block_now(caller()) == ""
        await service.create_fact(ANN, "cooks")
        assert "cooks" in service.block_now(caller())
        await service.clear(ANN)
        assert service.block_now(caller()) == ""


@pytest.mark.parametrize("keys", [{"enabled": False}, {"injection_enabled": False}])
async def test_switched_off(tmp_path: Path, keys: dict[str, Any]) -> None:
    async with memory(tmp_path, MemoryModel()) as service:
        await service.create_fact(ANN, "known")
    model = MemoryModel()
    async with memory(tmp_path, model, **keys) as service:
        assert await service.prompt_block(caller()) == ""
        await service.enqueue_turn(turn("markone"), caller())
    assert len(model.questions) == (0 if "enabled" in keys else 1)


async def test_the_demo_model_is_never_asked(tmp_path: Path) -> None:
    async def nobody(_: str | None) -> BaseChatModel:
        raise AssertionError("no model is needed")

    config = AgentConfig()
    async with open_memory(tmp_path, lambda: config, nobody) as service:
        await service.enqueue_turn(turn("hello"), caller())
    assert not (tmp_path / "memory").exists()


async def test_a_model_that_fails_or_talks_changes_nothing_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = json.dumps(
        {"user": {}, "history": {}, "newFacts": [{"content": "good", "confidence": 1}]}
        | {"factsToRemove": []}
    )
    model = ScriptedChatModel.playing(RuntimeError("secret text"), "Just talk.", good)
    with caplog.at_level(logging.INFO):
        async with memory(tmp_path, model, debounce_seconds=300) as service:
            for number in range(3):
                where = MemoryScope(scope=f"p{number}")
                await service.enqueue_turn(turn("I sail"), caller(where))
                service.before_summarization([], caller(where))
            await eventually(
                lambda: service.get(MemoryScope(scope="p2")),
                lambda document: contents(document) == ["good"],
            )
            assert await service.get(MemoryScope(scope="p0")) == EMPTY_DOCUMENT
            assert await service.get(MemoryScope(scope="p1")) == EMPTY_DOCUMENT
    assert [record.getMessage() for record in caplog.records] == [
        "Memory extraction failed: RuntimeError"
    ]


async def test_a_caller_with_an_invalid_scope_gets_no_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = MemoryModel()
    async with memory(tmp_path, model) as service:
        await service.create_fact(MemoryScope(), "of the default scope")
        for bad in (
            MemoryScope(scope="x" * 600),
            MemoryScope(scope="a\nb"),
            MemoryScope(agent="../a"),
        ):
            assert await service.prompt_block(caller(bad)) == ""
            await service.enqueue_turn(turn("markone"), caller(bad))
    assert model.questions == []


async def test_a_document_that_cannot_be_read_does_not_stop_a_run(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / ANN.folder).write_text("a file where the folder should be")
    async with memory(tmp_path, MemoryModel()) as service:
        assert await service.prompt_block(caller()) == ""


async def test_the_folder_can_be_chosen(tmp_path: Path) -> None:
    async with memory(tmp_path, MemoryModel(), storage_path="notes/people") as service:
        await service.create_fact(ANN, "x")
    assert (tmp_path / "notes" / "people" / ANN.folder / "memory.json").exists()


async def test_nothing_blocks_the_loop(tmp_path: Path) -> None:
    with blockbuster_ctx(scanned_modules=["agent"]):
        async with memory(tmp_path, MemoryModel()) as service:
            await service.create_fact(ANN, "known")
            await service.enqueue_turn(turn("markone"), caller())
            assert "known" in await service.prompt_block(caller())
            assert len(await service.list_scopes()) == 1
            await service.clear(BOB)
            await service.reload(ANN)


# ---- closing -----------------------------------------------------------------------------------


async def test_a_model_that_hangs_does_not_hold_up_the_end_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    model = MemoryModel()
    model.hold()
    with anyio.fail_after(20):
        async with memory(tmp_path, model, flush_s=0.05, debounce_seconds=1) as service:
            await service.enqueue_turn(turn("markone"), caller())
            service.before_summarization([], caller())
            await model.called.wait()
            await service.enqueue_turn(turn("marktwo"), caller(BOB))
    async with memory(tmp_path, MemoryModel()):
        pass
    async with memory(tmp_path, MemoryModel()) as service:
        assert contents(await service.get(ANN)) == ["markone"]
        assert contents(await service.get(BOB)) == ["marktwo"]


async def test_waiting_turns_are_on_disk_before_the_model_is_called(tmp_path: Path) -> None:
    model = MemoryModel()
    may_answer = model.hold()
    closed = anyio.Event()

    async def open_and_close() -> None:
        async with memory(tmp_path, model) as service:
            await service.enqueue_turn(turn("markone"), caller())
        closed.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(open_and_close)
        with anyio.fail_after(20):
            await model.called.wait()
            assert "markone" in "".join(saved_turns(tmp_path))
            may_answer.set()
            await closed.wait()
    assert saved_turns(tmp_path) == []


KILLED = """
import os, signal, sys
import anyio
from pathlib import Path
from tests.agent.memory_model import MemoryModel
from tests.agent.test_memory_service import BOB, caller, memory, turn

async def main():
    model = MemoryModel()
    model.hold()
    async with memory(Path(sys.argv[1]), model, debounce_seconds=300) as service:
        await service.enqueue_turn(turn("markone"), caller())
        await service.enqueue_turn(turn("marktwo"), caller(BOB))
        service.before_summarization([], caller())
        await model.called.wait()  # the first turn is being processed
        await service.enqueue_turn(turn("markthree"), caller())
        os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main)
"""


async def test_queued_turns_survive_a_kill_and_are_processed_once(tmp_path: Path) -> None:
    killed = await anyio.run_process([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    model = MemoryModel()
    async with memory(tmp_path, model) as service:
        pass
    assert len(model.questions) == 2
    assert saved_turns(tmp_path) == []
    async with memory(tmp_path, model) as service:
        assert contents(await service.get(ANN)) == ["markone", "markthree"]
        assert contents(await service.get(BOB)) == ["marktwo"]
    assert len(model.questions) == 2


@pytest.mark.parametrize("cancelled", range(4))
async def test_turns_that_end_together_are_all_saved(tmp_path: Path, cancelled: int) -> None:
    """This holds even if any of them is cancelled while it waits for the disk."""
    scopes = [anyio.CancelScope() for _ in range(20)]
    async with memory(tmp_path, MemoryModel(), flush_s=0.0, debounce_seconds=300) as service:

        async def enqueue(number: int) -> None:
            with scopes[number]:
                await service.enqueue_turn(turn(f"said{number}."), caller(thread=f"t{number}"))

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(enqueue, number)
            for _ in range(cancelled):
                await anyio.lowlevel.checkpoint()
            scopes[cancelled].cancel()
        saved = "".join(saved_turns(tmp_path))
    others = [f"said{n}." for n in range(20) if n != cancelled]
    assert [text for text in others if text not in saved] == []


async def test_cancelling_closes_in_order(tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks, memory(tmp_path, MemoryModel()) as service:
        await service.enqueue_turn(turn("markone"), caller())
        tasks.cancel_scope.cancel()
        await anyio.lowlevel.checkpoint()
    async with memory(tmp_path, MemoryModel()) as service:
        assert contents(await service.get(ANN)) == ["markone"]


async def test_an_error_in_the_block_stays_itself(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with memory(tmp_path, MemoryModel()):
            raise KeyError("mine")


# ---- correcting and forgetting -----------------------------------------------------------------


async def test_facts_can_be_added_changed_and_removed(tmp_path: Path) -> None:
    async with memory(tmp_path, MemoryModel()) as service:
        document = await service.create_fact(ANN, "  likes tea ", "Preference", 1)
        (fact,) = document.facts
        assert (fact.content, fact.category, fact.confidence) == ("likes tea", "preference", 1.0)
        assert fact.source == "manual"
        assert document.last_updated
        changed = await service.update_fact(ANN, fact.id, {"confidence": 0.25})
        assert changed.facts[0].content == "likes tea"
        assert changed.facts[0].confidence == 0.25
        assert await service.get(BOB) == EMPTY_DOCUMENT
        gone = await service.delete_fact(ANN, fact.id)
        assert gone.facts == ()
        for refused in (
            service.update_fact(ANN, fact.id, {"content": "x"}),
            service.delete_fact(ANN, fact.id),
        ):
            with pytest.raises(FactNotFound):
                await refused


@pytest.mark.parametrize(
    ("content", "category", "confidence"),
    [
        ("", "context", 0.5),
        (" \n\x00", "context", 0.5),
        ("x" * 1001, "context", 0.5),
        ("x", "gossip", 0.5),
        ("x", "context", 1.01),
        ("x", "context", -0.01),
        ("x", "context", float("nan")),
        ("x", "context", float("inf")),
        ("x", "context", True),
    ],
)
async def test_a_fact_that_breaks_a_rule_is_refused(
    tmp_path: Path, content: str, category: str, confidence: float
) -> None:
    async with memory(tmp_path, MemoryModel()) as service:
        with pytest.raises(MemoryInvalid):
            await service.create_fact(ANN, content, category, confidence)
        (fact,) = (await service.create_fact(ANN, "good")).facts
        changes = {"content": content, "category": category, "confidence": confidence}
        with pytest.raises(MemoryInvalid):
            await service.update_fact(ANN, fact.id, changes)
        assert (await service.get(ANN)).facts == (fact,)


async def test_a_document_can_be_taken_elsewhere(tmp_path: Path) -> None:
    from_file = {"facts": [{"id": "f1", "content": "你好"}], "user": {}, "version": "1.0"}
    async with memory(tmp_path, MemoryModel()) as service:
        document = await service.replace(ANN, from_file)
        assert contents(document) == contents(await service.get(ANN)) == ["你好"]
        with pytest.raises(MemoryInvalid):
            await service.replace(ANN, {"facts": "none"})
        others: tuple[dict[str, object], ...] = ({}, {"version": "1.0"}, {"models": []})
        for another_file in others:
            with pytest.raises(MemoryInvalid):
                await service.replace(ANN, another_file)
        assert contents(await service.reload(ANN)) == ["你好"]


async def test_facts_forgotten_during_an_update_stay_forgotten(
    tmp_path: Path,
) -> None:
    model = MemoryModel()
    may_answer = model.hold()
    async with memory(tmp_path, model) as service:
        await service.create_fact(ANN, "known")
        await service.enqueue_turn(turn("markone"), caller())
        service.before_summarization([], caller())
        with anyio.fail_after(20):
            await model.called.wait()
        await service.enqueue_turn(turn("marktwo"), caller(thread="t2"))
        assert await service.clear(ANN) == EMPTY_DOCUMENT
        may_answer.set()
    assert not (tmp_path / "memory" / ANN.folder).exists()


async def test_a_persons_changes_during_an_update_are_kept(tmp_path: Path) -> None:
    model = MemoryModel()
    may_answer = model.hold()
    async with memory(tmp_path, model) as service:
        await service.enqueue_turn(turn("markone"), caller())
        service.before_summarization([], caller())
        with anyio.fail_after(20):
            await model.called.wait()
        await service.create_fact(ANN, "by hand")
        may_answer.set()
    async with memory(tmp_path, MemoryModel()) as service:
        assert contents(await service.get(ANN)) == ["by hand", "markone"]


async def test_changes_side_by_side_lose_nothing(tmp_path: Path) -> None:
    async with memory(tmp_path, MemoryModel()) as service:
        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(service.create_fact, ANN, f"fact {number}")
        assert len((await service.get(ANN)).facts) == 30
