"""A message's path through the running bus."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus
from typing_extensions import override

from bus.commands import COMMANDS, help_text
from bus.config import BusConfig, ChannelPolicy, SessionConfig
from bus.errors import DeliveryError, IntakeClosed, unwrapped
from bus.inbound.notices import COLLECT_S
from bus.locales import LANGUAGES
from bus.locales.en import ENGLISH
from bus.messages import ButtonPress, MessageDeletion, MessageEdit, PressResponse, Sender
from bus.platform import ChannelHealth, ConnectionState, Disposition, Intake
from bus.retry import Backoff
from bus.supervision import AdapterSupervisor
from store.conversations import ConversationKey
from store.errors import RowNotFound
from store.work_group import WORK_GROUP
from tests.bus.harness import BusHarness, attachment, running_bus
from tests.eventually import eventually
from tests.fakes.database import RepeatingDatabase
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.fakes.platform import PART_CHARS, CardPlatform, FakePlatform
from tests.faults.injection import Faults, FaultyDatabase, ProcessKilled

KEY = ConversationKey(channel="fake", workspace="w", chat="c")


def hanging() -> Script:
    return Script(hang_after=0)


def saying(*words: str) -> Script:
    return Script(words=words)


async def state_of(harness: BusHarness, event: str) -> str:
    return next(row.state for row in await harness.bus.inbox.list_recent() if row.event_id == event)


async def test_a_message_is_answered_once_whatever_the_platform_repeats(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        assert await harness.send("hi", event="e1") is Disposition.ACCEPTED
        assert await harness.send("hi", event="e1") is Disposition.DUPLICATE
        assert await harness.send("hi", event="other", message_id="e1") is Disposition.DUPLICATE
        await harness.expect_replies("Hello you")
        assert harness.prompts() == ["hi"]
        assert harness.bus.counters() == {
            ("fake", Disposition.ACCEPTED): 1,
            ("fake", Disposition.DUPLICATE): 2,
        }


async def test_messages_of_a_conversation_are_answered_one_by_one_in_order(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.server.scripts.extend(saying(f"answer {i}") for i in range(5))
        for index in range(5):
            await harness.send(f"question {index}")
        await eventually(lambda: len(harness.platform.texts) == 5)
        assert harness.prompts() == [f"question {i}" for i in range(5)]
        assert harness.platform.texts == [f"answer {i}" for i in range(5)]
        assert len(harness.server.threads) == 1


async def test_a_hanging_conversation_delays_neither_others_nor_commands(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.server.scripts.append(hanging())
        await harness.send("hang", chat="a")
        await harness.wait_for_runs(1)
        await harness.send("behind it", chat="a")
        await harness.send("/help", chat="a")
        await harness.send("hi", chat="b")
        await harness.expect_replies(*HELP, "Hello you")
        assert harness.prompts() == ["hang", "hi"]


async def test_the_limit_counts_only_running_agents(tmp_path: Path) -> None:
    async with running_bus(
        tmp_path, config=BusConfig(max_concurrent_runs=2, drain_s=0.1)
    ) as harness:
        harness.server.scripts.extend([hanging(), hanging()])
        for chat in ("a", "b", "c"):
            await harness.send(f"from {chat}", chat=chat)
        await harness.wait_for_runs(2)
        await harness.send("/status", chat="c")
        await eventually(lambda: len(harness.platform.texts) == 1)
        [status] = harness.platform.texts
        assert status.startswith("Active thread: ")
        assert len(harness.server.runs) == 2
        await harness.send("/stop", chat="a")
        await harness.expect_replies(status, "Stopped.", "Hello you")


async def test_a_turn_stopped_before_it_began_never_runs(tmp_path: Path) -> None:
    async with running_bus(
        tmp_path, config=BusConfig(max_concurrent_runs=1, drain_s=0.1)
    ) as harness:
        harness.server.scripts.append(hanging())
        await harness.send("hang", chat="a")
        await harness.wait_for_runs(1)
        await harness.send("waits for a place", chat="b")
        await harness.send("/stop", chat="b")
        await harness.expect_replies("Stopped.")
        await harness.send("/stop", chat="a")
        await harness.expect_replies("Stopped.", "Stopped.")
        await harness.send("hi", chat="b")
        await harness.expect_replies("Stopped.", "Stopped.", "Hello you")
        assert harness.prompts() == ["hang", "hi"]


async def test_refused_messages_are_marked_where_the_platform_can(tmp_path: Path) -> None:
    platform = CardPlatform("fake")
    config = BusConfig(max_queue=1, drain_s=0.1)
    async with running_bus(tmp_path, config=config, platform=platform) as harness:
        harness.server.scripts.append(hanging())
        await harness.send("hang")
        await harness.wait_for_runs(1)
        reasons = [await harness.send(f"more {i}") for i in range(3)]
        assert reasons == [Disposition.ACCEPTED] + [Disposition.QUEUE_FULL] * 2
        await eventually(lambda: platform.indicators.count("refused") == 2)


async def test_a_queue_is_as_long_as_configured(tmp_path: Path) -> None:
    async with running_bus(tmp_path, config=BusConfig(max_queue=30, drain_s=0.1)) as harness:
        harness.server.scripts.append(hanging())
        await harness.send("hang")
        await harness.wait_for_runs(1)
        reasons = [await harness.send(f"more {i}") for i in range(31)]
        assert reasons == [Disposition.ACCEPTED] * 30 + [Disposition.QUEUE_FULL]


async def test_an_idle_conversation_costs_nothing(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        for index in range(20):
            await harness.send("hi", chat=f"chat {index}")
        await eventually(lambda: len(harness.platform.texts) == 20)
        mailboxes = harness.bus._conversations
        await eventually(lambda: not mailboxes._active)
        assert [mailboxes._present, mailboxes._former, mailboxes._row_ids] == [{}, {}, set()]


async def test_each_message_refused_by_a_full_queue_is_reported(tmp_path: Path) -> None:
    async with running_bus(tmp_path, config=BusConfig(max_queue=2, drain_s=0.1)) as harness:
        harness.server.scripts.append(hanging())
        await harness.send("hang")
        await harness.wait_for_runs(1)
        reasons = [await harness.send(f"more {i}") for i in range(5)]
        assert reasons == [Disposition.ACCEPTED] * 2 + [Disposition.QUEUE_FULL] * 3
        notice = "I still have 2 messages in this conversation to answer, so I did not accept this one. " \
                 "Please wait a moment and send it again."  # fmt: skip
        await eventually(lambda: notice in harness.platform.texts)
        assert await harness.send("more 4", event="e6") is Disposition.DUPLICATE
        assert await harness.send("/status") is Disposition.ACCEPTED
        more = ENGLISH.refused_more.format(count=2)
        await eventually(lambda: harness.platform.texts[-1] == more)
        assert await harness.send("again") is Disposition.QUEUE_FULL
        assert harness.platform.texts.count(notice) == 1
    # A notice that was not sent when Parley stopped is sent after the next start.
    async with running_bus(tmp_path) as harness:
        await eventually(lambda: ENGLISH.refused_more.format(count=1) in harness.platform.texts)


async def test_no_kill_makes_a_refusal_silent(tmp_path: Path) -> None:
    """Each refusal is stored together with its notice, even if the notice waits for further refusals."""
    faults = Faults()
    config = BusConfig(max_queue=1, drain_s=0.0)

    async def be_killed() -> None:
        async with running_bus(
            tmp_path, config=config, wrap=lambda database: FaultyDatabase(database, faults)
        ) as harness:
            harness.server.scripts.append(hanging())
            await harness.send("hang")
            await harness.wait_for_runs(1)
            assert await harness.send("wait") is Disposition.ACCEPTED
            reasons = {await harness.send(f"too much {i}") for i in range(4)}
            assert reasons == {Disposition.QUEUE_FULL}
            faults.kill()

    with pytest.raises(ProcessKilled), unwrapped():
        await be_killed()
    more = ENGLISH.refused_more.format(count=3)
    async with running_bus(tmp_path, config=config) as harness:
        await eventually(lambda: harness.platform.texts.count(more) == 1)


async def test_a_refusal_whose_transaction_runs_twice_is_reported_once(tmp_path: Path) -> None:
    """Units run again if another one in their batch fails, or, on PostgreSQL, if another node was first."""
    config = BusConfig(max_queue=1, drain_s=0.1)
    async with running_bus(tmp_path, config=config, wrap=RepeatingDatabase) as harness:
        harness.server.scripts.append(hanging())
        await harness.send("hang")
        await harness.wait_for_runs(1)
        await harness.send("wait")
        for _ in range(3):
            assert await harness.send("too much") is Disposition.QUEUE_FULL
        first, two = ENGLISH.queue_full.format(count=1), ENGLISH.refused_more.format(count=2)
        await eventually(lambda: two in harness.platform.texts)
        assert [harness.platform.texts.count(text) for text in (first, two)] == [1, 1]
        assert ENGLISH.refused_more.format(count=1) not in harness.platform.texts


async def test_refused_messages_are_counted_once_and_reported_at_intervals(tmp_path: Path) -> None:
    config = BusConfig(max_queue=1, drain_s=0.1)
    async with running_bus(tmp_path, config=config) as harness:

        async def refuse(count: int) -> None:
            for _ in range(count):
                assert await harness.send("too much") is Disposition.QUEUE_FULL

        def told(text: str) -> int:
            return harness.platform.texts.count(text)

        harness.server.scripts.append(hanging())
        await harness.send("hang")
        await harness.wait_for_runs(1)
        await harness.send("wait")
        first = ENGLISH.queue_full.format(count=1)
        one, three = (ENGLISH.refused_more.format(count=count) for count in (1, 3))
        await refuse(2)
        harness.clock.ahead += COLLECT_S
        await refuse(3)
        await eventually(lambda: (told(first), told(one), told(three)) == (1, 1, 0))
        harness.clock.ahead += COLLECT_S
        await harness.send("/status")  # wakes the worker, which waits in real time
        await eventually(lambda: (told(first), told(one), told(three)) == (1, 1, 1))
        harness.clock.ahead += 2 * COLLECT_S
        await refuse(1)
        await eventually(lambda: told(first) == 2)


async def test_a_misspelled_command_is_answered_with_the_right_one(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("/modle")
        await harness.expect_replies("There is no such command. Did you mean /model?")
        assert harness.server.runs == []
        for text in ("/modle gpt", "/usr", "/modle/x", "modle"):
            await harness.send(text)
        await harness.wait_for_runs(4)


async def test_stop_ends_the_running_turn_and_the_next_one_starts(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("/stop")
        await harness.expect_replies("Nothing is running.")
        harness.server.scripts.append(hanging())
        await harness.send("hang")
        await harness.wait_for_runs(1)
        await harness.send("next")
        await harness.send("/stop")
        await harness.expect_replies("Nothing is running.", "Stopped.", "Hello you")
        assert harness.server.runs[0].canceled.is_set()
        assert harness.prompts() == ["hang", "next"]


async def test_stop_outside_a_group_conversation_stops_ones_own_turns(tmp_path: Path) -> None:
    group: dict[str, object] = {"is_private": False, "chat": "room"}
    async with running_bus(tmp_path) as harness:
        harness.server.scripts.extend([hanging(), hanging()])
        await harness.send("hang", **group, topic="1", user="ann")
        await harness.send("hang too", **group, topic="2", user="bob")
        await harness.wait_for_runs(2)
        await harness.send("/stop", **group, user="eve")
        await harness.expect_replies("Nothing is running.")
        await harness.send("/stop", **group, user="ann")
        await harness.expect_replies("Nothing is running.", "Stopped.")
        await eventually(lambda: any(run.canceled.is_set() for run in harness.server.runs))
        stopped = [run.body["input"]["messages"][0]["content"] for run in harness.server.runs
                   if run.canceled.is_set()]  # fmt: skip
        assert stopped == ["hang"]


async def test_stop_in_a_topic_where_nothing_runs_leaves_other_topics_alone(tmp_path: Path) -> None:
    group: dict[str, object] = {"is_private": False, "chat": "room"}
    async with running_bus(tmp_path) as harness:
        gate = anyio.Event()
        harness.server.scripts.append(Script(gate=gate))
        await harness.send("work", **group, topic="1")
        await harness.wait_for_runs(1)
        await harness.send("/stop", **group, topic="2")
        await harness.expect_replies("Nothing is running.")
        gate.set()
        await harness.expect_replies("Nothing is running.", "Hello you")


async def test_stop_as_a_message_of_its_own_stops_ones_own_turns(tmp_path: Path) -> None:
    """On Slack, and in chains of replies, a message outside every thread starts a thread named by its own ID."""
    group: dict[str, object] = {"is_private": False, "chat": "room"}
    async with running_bus(tmp_path) as harness:
        harness.server.scripts.append(hanging())
        await harness.send("hang", **group, topic="1")
        await harness.wait_for_runs(1)
        await harness.send("/stop", event="e2", **group, topic="e2")
        await harness.expect_replies("Stopped.")


async def test_new_starts_a_fresh_thread_although_the_old_one_hangs(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.server.scripts.extend([hanging(), saying("fresh")])
        await harness.send("hang")
        await harness.wait_for_runs(1)
        await harness.send("waits behind it")
        await harness.send("/new")
        await harness.send("hello")
        await harness.expect_replies("New conversation started.", "fresh")
        old, new = harness.server.runs[0].thread_id, harness.server.runs[1].thread_id
        assert old != new
        harness.server.runs[0].canceled.set()
        harness.server.runs[0].status = "success"
        harness.server.runs[0].changed.set()
        await eventually(lambda: len(harness.server.runs) == 3)
        assert harness.prompts() == ["hang", "hello", "waits behind it"]
        assert harness.server.runs[2].thread_id == old
        found = await harness.bus.conversations.find(KEY)
        assert found is not None
        assert found.thread_id == new


async def test_status_names_the_thread_in_full(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("/status")
        await harness.expect_replies("No active conversation.")
        await harness.send("hi")
        await harness.expect_replies("No active conversation.", "Hello you")
        await harness.send("/status")
        [thread_id] = harness.server.threads
        await harness.expect_replies(
            "No active conversation.", "Hello you", f"Active thread: {thread_id}"
        )


HELP = [
    help_text(ENGLISH)[start : start + PART_CHARS]
    for start in range(0, len(help_text(ENGLISH)), PART_CHARS)
]
"""The answer to /help, as the platform splits it."""

FACTS = (
    "What I remember about you (2):\n"
    "• **1** – likes tea (entered by an administrator, 2026-03-01)\n"
    "• **4** – sails (2026-03-02)\n"
    "To delete one of them, send /forget and its number. To correct one, tell me what is right."
)


@pytest.mark.parametrize(
    ("command", "answer", "documents"),
    [
        ("/models", "Available models:\n• gpt\n• qwen", {}),
        ("/models", "No models configured.", {"models": {"models": []}}),
        ("/models", "Failed to fetch models information.", {"models": 500}),
        ("/models", "Failed to fetch models information.", {"models": ["strange"]}),
        ("/memory", FACTS, {}),
        ("/memory", "Failed to fetch memory information.", {"memory": 404}),
        ("  /MEMORY ", FACTS, {}),
        ("/memory", "I remember nothing about you yet.", {"memory": {"facts": []}}),
    ],
)
async def test_lookups_ask_the_gateway(
    tmp_path: Path, command: str, answer: str, documents: dict[str, object]
) -> None:
    async with running_bus(tmp_path) as harness:
        harness.gateway.documents.update(documents)
        await harness.send(command)
        await harness.expect_replies(answer)
        assert await state_of(harness, "e1") == "done"


async def test_a_command_that_meets_a_bug_says_that_it_failed(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.platform.fail("split", RuntimeError("a bug"))
        await harness.send("/help", event="e1")
        await harness.expect_replies(ENGLISH.command_failed)
        assert await state_of(harness, "e1") == "dead"
        # If even that notice cannot be stored, the next command is still answered, and this one runs again.
        harness.platform.fail("split", RuntimeError("a bug"), times=2)
        await harness.send("/help", event="e2")
        await eventually(lambda: not harness.platform._failures["split"])
        await harness.send("/memory", event="e3")
        await harness.expect_replies(ENGLISH.command_failed, *HELP, FACTS)


def test_help_is_made_from_the_table() -> None:
    lines = help_text(ENGLISH).splitlines()
    assert lines[0] == "Available commands:"
    assert [line.partition(" — ")[2] for line in lines[1:]] == [one.help for one in COMMANDS]
    assert "/new — Start a new conversation" in lines
    assert any(line.startswith("/forget [number | yes] — ") for line in lines)
    for texts in LANGUAGES.values():
        assert f"/timezone [Area/City] — {texts.help('timezone')}" in help_text(texts)
    assert {command.name for command in COMMANDS} == {
        "help", "new", "status", "models", "model", "agent", "skills", "memory", "forget", "stop",
        "bootstrap", "retry", "undo", "export", "language", "why", "usage", "schedule", "timezone",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["/mnt/data/x.csv", "//new", "/unknown thing", "not /new"])
async def test_text_that_merely_starts_with_a_slash_is_chat(tmp_path: Path, text: str) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send(text)
        await harness.expect_replies("Hello you")
        assert harness.prompts() == [text]


async def test_bootstrap_is_a_turn_with_its_own_context(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("/bootstrap")
        await harness.expect_replies("Hello you")
        await harness.send("/bootstrap be brief")
        await harness.expect_replies("Hello you", "Hello you")
        assert harness.prompts() == ["Initialize workspace", "be brief"]
        assert [run.body["context"].get("is_bootstrap") for run in harness.server.runs] == [
            True,
            True,
        ]
        assert len(harness.server.threads) == 1


async def test_bootstrap_does_not_wait_behind_a_hanging_run(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.server.scripts.append(hanging())
        await harness.send("hang")
        await harness.wait_for_runs(1)
        await harness.send("/bootstrap")
        await harness.send("and then")
        await harness.expect_replies("Hello you", "Hello you")
        assert harness.prompts() == ["hang", "Initialize workspace", "and then"]
        assert harness.server.runs[0].thread_id != harness.server.runs[1].thread_id
        assert harness.server.runs[1].thread_id == harness.server.runs[2].thread_id


async def test_an_interrupting_message_ends_the_turn_before_it(tmp_path: Path) -> None:
    config = BusConfig(session=SessionConfig(busy="interrupt"), drain_s=0.1)
    async with running_bus(tmp_path, config=config) as harness:
        harness.server.scripts.append(hanging())
        await harness.send("first")
        await harness.wait_for_runs(1)
        await harness.send("second")
        await harness.expect_replies("Hello you")
        assert harness.prompts() == ["first", "second"]
        assert harness.server.runs[0].canceled.is_set()


async def test_the_run_gets_the_merged_session(tmp_path: Path) -> None:
    policy = ChannelPolicy(
        dm_policy="open",
        session=SessionConfig(
            assistant_id="Code_Reviewer",
            context={"is_plan_mode": True},
            users={"boss": SessionConfig(config={"recursion_limit": 7})},
        ),
    )
    async with running_bus(tmp_path, policy=policy) as harness:
        await harness.send("hi", user="boss")
        await harness.expect_replies("Hello you")
        body = harness.server.runs[0].body
        assert body["assistant_id"] == "lead_agent"
        assert body["config"]["recursion_limit"] == 7
        context = body["context"]
        assert context["agent_name"] == "code-reviewer"
        assert context["is_plan_mode"] is True
        assert context["thinking_enabled"] is True
        assert context["channel_user_id"] == "boss"
        assert context["channel_name"] == "fake"


async def test_an_impossible_session_is_reported(tmp_path: Path) -> None:
    policy = ChannelPolicy(dm_policy="open", session=SessionConfig(assistant_id="no such/agent"))
    async with running_bus(tmp_path, policy=policy) as harness:
        await harness.send("hi")
        await eventually(lambda: harness.platform.texts)
        assert "agent name" in harness.platform.texts[0]
        assert await state_of(harness, "e1") == "dead"


async def test_a_bug_in_a_turn_is_reported_and_the_next_message_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Clumsy(FakePlatform):
        bad = True

        @override
        def split(self, markdown: str) -> Sequence[str]:
            if self.bad:
                self.bad = False
                raise ZeroDivisionError("a bug")
            return super().split(markdown)

    async with running_bus(tmp_path, platform=Clumsy()) as harness:
        await harness.send("one")
        await eventually(lambda: ENGLISH.failed[:90] in "".join(harness.platform.texts))
        await harness.send("two")
        await eventually(lambda: "Hello you" in harness.platform.texts)
        assert await state_of(harness, "e1") == "dead"
    assert "ZeroDivisionError" in caplog.text


async def test_a_bug_in_an_indicator_costs_no_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    platform = CardPlatform("fake")
    for method in ("working", "finished", "patch"):
        platform.fail(method, ZeroDivisionError("a bug"))
    async with running_bus(tmp_path, platform=platform) as harness:
        gate = harness.hold_next_run("Hello")
        await harness.send("one")
        await eventually(lambda: "working" in platform.calls)
        gate.set()
        await eventually(lambda: platform.shown and platform.shown[0].final)
        await harness.send("two")
        await eventually(lambda: len(platform.shown) == 2 and platform.shown[1].final)
        assert await state_of(harness, "e1") == await state_of(harness, "e2") == "done"
    assert platform.texts[-1] == "Hello you"
    assert "ZeroDivisionError" in caplog.text


async def test_files_that_came_along_are_named_to_the_agent(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("", attachments=(attachment("a.pdf"), attachment("b\n[x].png")))
        await harness.expect_replies("Hello you")
        assert harness.prompts() == [
            "[Attachment that could not be read: a.pdf]\n[Attachment that could not be read: b [x].png]"
        ]


async def test_hostile_text_is_answered(tmp_path: Path) -> None:
    text = "\x00\ud800" + "𝕏" * 1_000_000
    async with running_bus(tmp_path) as harness:
        assert await harness.send(text, event="e\ud8001") is Disposition.ACCEPTED
        await harness.expect_replies("Hello you")
        [prompt] = harness.prompts()
        assert prompt.startswith("\ufffd𝕏")
        assert "1,000,002 characters" in prompt
        assert len(prompt) < 200_200


async def test_a_follow_up_finds_the_conversation_it_answers(tmp_path: Path) -> None:
    group: dict[str, object] = {"is_private": False, "chat": "room", "track_replies": True}
    async with running_bus(tmp_path) as harness:
        await harness.send("root", event="m1", topic="m1", **group)
        await harness.expect_replies("Hello you")
        answer = harness.platform.shown[0].id
        await harness.send("more", event="m2", topic="m2", replies_to=(answer,), **group)
        assert (
            await harness.send("psst", event="m3", topic="m3", is_addressed=False, **group)
            is Disposition.NOT_ADDRESSED
        )
        followed = await harness.send(
            "go on", event="m4", topic="m4", is_addressed=False, replies_to=("m2",), **group
        )
        assert followed is Disposition.ACCEPTED
        await harness.expect_replies("Hello you", "Hello you", "Hello you")
        assert len({run.thread_id for run in harness.server.runs}) == 1


async def test_a_restart_takes_up_what_was_accepted(tmp_path: Path) -> None:
    async with FakeLangGraph() as server:
        server.scripts.append(hanging())
        async with running_bus(tmp_path, server=server) as harness:
            await harness.send("hang", chat="a")
            await harness.wait_for_runs(1)
            await harness.send("waits", chat="a")
        [run] = server.runs
        run.status = "interrupted"
        async with running_bus(tmp_path, server=server) as harness:
            await harness.expect_replies("Hello you", "Hello you")
            assert [row.state for row in await harness.bus.inbox.list_recent()] == ["done", "done"]
            assert {run.thread_id for run in server.runs} == {run.thread_id}


async def test_after_a_restart_a_hanging_old_thread_does_not_block_the_new_one(
    tmp_path: Path,
) -> None:
    async with FakeLangGraph() as server:
        server.scripts.extend([hanging(), hanging(), hanging()])
        async with running_bus(tmp_path, server=server) as harness:
            await harness.send("hang")
            await harness.wait_for_runs(1)
            await harness.send("behind")
            await harness.send("/new")
            await harness.expect_replies("New conversation started.")
            await harness.send("also hangs")
            await harness.wait_for_runs(2)
        old, new = (run.thread_id for run in server.runs)
        server.runs[1].status = "success"
        server.scripts.clear()
        async with running_bus(tmp_path, server=server) as harness:
            await eventually(lambda: harness.platform.texts)
            rows = {row.event_id: row for row in await harness.bus.inbox.list_recent()}
            assert rows["e1"].state == "running"
            assert (rows["e2"].state, rows["e2"].thread_id) == ("new", old)
            assert (rows["e4"].state, rows["e4"].thread_id) == ("done", new)


async def test_a_run_that_ends_while_stopping_is_still_answered(tmp_path: Path) -> None:
    platform = FakePlatform()
    async with FakeLangGraph() as server:
        server.scripts.append(Script(words=("late", " answer"), hang_after=1))
        async with anyio.create_task_group() as tasks, running_bus(tmp_path, platform=platform, server=server,
                         config=BusConfig(drain_s=5)) as harness:  # fmt: skip
            await harness.send("hi")
            await harness.wait_for_runs(1)
            tasks.start_soon(_finish, harness, server)
        assert platform.texts == ["late"]


async def _finish(harness: BusHarness, server: FakeLangGraph) -> None:
    await eventually(lambda: harness.bus.local_intake._capacity._closed)
    with pytest.raises(IntakeClosed):
        await harness.send("too late")
    [run] = server.runs
    run.status = "success"
    run.canceled.set()
    run.changed.set()


async def test_a_stranger_is_paired_before_a_run_starts(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=ChannelPolicy(dm_policy="pairing")) as harness:
        assert await harness.send("hi", user="7") is Disposition.PAIRING
        assert await harness.send("hello?", user="7") is Disposition.PAIRING
        assert await harness.send("/models", user="7") is Disposition.PAIRING
        await eventually(lambda: harness.platform.texts)
        [asked] = await harness.bus.pairings.list_all()
        assert len(asked.code) == 8
        assert not set(asked.code) & set("0O1I")
        assert asked.code in harness.platform.texts[0]
        approved = await harness.bus.approve(asked.code.lower())
        assert approved == replace(asked, text="", notice="", approved_at=approved.approved_at)
        assert await harness.send("hi again", user="7") is Disposition.ACCEPTED
        await eventually(lambda: "Hello you" in harness.platform.texts)
        assert harness.prompts() == ["hi again"]
        assert sum(asked.code in text for text in harness.platform.texts) == 1
        assert await harness.send("hi", user="8") is Disposition.PAIRING
        with pytest.raises(RowNotFound):
            await harness.bus.approve("WRONGXXX")


async def test_failed_deliveries_can_be_sent_again_or_dropped(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.platform.fail("send", DeliveryError("kicked out"), times=2)
        await harness.send("/status", chat="a")
        await harness.send("/status", chat="b")

        await eventually(lambda: harness.platform.calls == ["send", "send"])
        await harness.bus._context.delivery.wait_idle()
        ids = [row.id for row in await harness.bus.outbox.list_recent(states=["failed"])]
        await harness.bus.deliveries.discard(ids[0])
        await harness.bus.deliveries.resend(ids[1])
        await harness.expect_replies("No active conversation.")


async def test_a_crashing_adapter_is_restarted_and_the_others_go_on(tmp_path: Path) -> None:
    class CrashingPlatform(FakePlatform):
        starts = 0
        group: str | None = None

        @override
        async def run(self, intake: Intake, *, task_status: TaskStatus[None]) -> None:
            self.starts += 1
            self.group = WORK_GROUP.get()
            raise ExceptionGroup("", [RuntimeError("boom")])

    bad = CrashingPlatform("bad")
    async with running_bus(tmp_path, others={"bad": bad}) as harness:
        await eventually(lambda: bad.starts)
        assert harness.bus.health()["bad"].state is ConnectionState.RECONNECTING
        assert "RuntimeError" in harness.bus.health()["bad"].detail
        assert harness.bus.health()["fake"].state is ConnectionState.CONNECTED
        await harness.send("hi")
        await harness.expect_replies("Hello you")
        await harness.bus.restart("bad")
        await eventually(lambda: bad.starts == 2)
        with pytest.raises(RowNotFound):
            await harness.bus.restart("nowhere")


async def test_commands_are_a_work_group_of_their_own_and_their_turns_are_not(
    tmp_path: Path,
) -> None:
    groups: list[str | None] = []
    async with running_bus(tmp_path) as harness:
        harness.platform.when_sent = lambda: groups.append(WORK_GROUP.get())
        WORK_GROUP.set("fake")
        await harness.send("hi")
        await eventually(lambda: len(groups) == 1)
        # This message is in another chat. In the first chat, the task that still records the first answer would send
        # it.
        await harness.send("/status", chat="other")
        await eventually(lambda: len(groups) == 2)
        await harness.send("/retry")
        await eventually(lambda: len(groups) == 3)
        assert WORK_GROUP.get() == "fake"
    assert groups == ["fake", "fake/commands", "fake"]


async def test_supervision_waits_between_crashes_and_gives_an_ended_adapter_up() -> None:
    class Mortal(FakePlatform):
        starts = 0
        group: str | None = None

        @override
        async def run(self, intake: Intake, *, task_status: TaskStatus[None]) -> None:
            self.starts += 1
            self.group = WORK_GROUP.get()
            if self.starts < 4:
                raise RuntimeError("boom")

    adapter = Mortal()
    supervised = AdapterSupervisor(
        adapter, now=lambda: 5.0, backoff=Backoff(first_s=0.001, cap_s=0.002)
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervised.run, _NoIntake())
        await eventually(lambda: supervised.health().state is ConnectionState.FAILED)
        assert adapter.starts == 4
        assert adapter.group == adapter.name
        assert supervised.health() == ChannelHealth(
            state=ConnectionState.FAILED, detail="It ended by itself; restart it.", since=5.0
        )
        supervised.restart()
        await eventually(lambda: adapter.starts == 5)
        tasks.cancel_scope.cancel()


class _NoIntake(Intake):
    @override
    async def has_conversation(self, key: ConversationKey) -> bool:
        raise AssertionError

    @override
    async def receive(self, inbound: object) -> Disposition:
        raise AssertionError

    @override
    async def handle_button_press(self, press: ButtonPress) -> PressResponse:
        raise AssertionError

    @override
    async def migrate_chat(
        self, channel: str, workspace: str, old_chat: str, new_chat: str
    ) -> None:
        raise AssertionError(old_chat)

    @override
    async def handle_edit(self, edit: MessageEdit) -> Disposition:
        raise AssertionError

    @override
    async def handle_deletion(self, deletion: MessageDeletion) -> Disposition:
        raise AssertionError

    @override
    async def handle_bot_added(self, key: ConversationKey, added_by: Sender) -> None:
        raise AssertionError(key)

    @override
    def report_ignored(self, channel: str, reason: Disposition, detail: str = "") -> None:
        raise AssertionError


async def test_rows_of_a_disabled_channel_wait_until_it_is_enabled(tmp_path: Path) -> None:
    """The channel is disabled between two starts. Its messages and answers are kept."""
    broken = FakePlatform("fake")
    broken.fail("send", DeliveryError("503", retryable=True, retry_after_s=60.0), times=9)
    async with running_bus(tmp_path, platform=broken) as harness:
        await harness.send("owed", chat="a")
        await eventually(lambda: "send" in broken.calls)
        harness.server.scripts.append(hanging())
        await harness.send("unanswered", chat="b")
        await harness.wait_for_runs(2)
    async with running_bus(tmp_path, platform=FakePlatform("other")) as harness:
        assert [row.state for row in await harness.bus.outbox.list_recent()] == ["pending"]
        assert len(await harness.bus.inbox.list_unfinished()) == 1
        assert harness.platform.calls == []
    async with running_bus(tmp_path, platform=FakePlatform("fake")) as harness:
        await eventually(lambda: bool(harness.platform.texts))
