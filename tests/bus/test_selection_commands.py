"""/model, /agent, /skills and /forget, and their effect on later runs."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.config import ChannelPolicy, SessionConfig
from bus.locales.en import ENGLISH
from bus.messages import ReplyTarget
from bus.settings.memory_scope import global_user_id, memory_scope
from store.config import StoreConfig
from store.conversation_settings import ConversationSettings, ConversationSettingsStore
from store.conversations import ConversationKey
from store.database import Database
from tests.bus.harness import OPEN, inbound_message, running_bus
from tests.eventually import eventually

MODELS = "Available models:\n• gpt\n• qwen\nChoose with /model NAME."


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("/model", f"Current model: default (gpt)\n{MODELS}"),
        ("/model nothing", f"There is no model named “nothing”.\n{MODELS}"),
        ("/model QWEN", "The model of this chat is now qwen."),
        ("/model default", "The model of this chat is now the default (gpt)."),
        ("/agent", "Current agent: default\nAvailable agents:\n• reviewer\nChoose with /agent NAME."),
        ("/agent reviewer", "The agent of this chat is now reviewer."),
        ("/skills", "Enabled skills:\n• notes — Writes notes"),
        ("/memory tea", ENGLISH.memory_usage),
        ("/forget", "Facts that I remember about you: 2. /memory lists them, and /forget with a number deletes one. "
         "Send /forget yes to delete everything I remember about you."),
        ("/forget yes", "I deleted everything I remembered about you."),
        ("/forget 4", "Forgotten: **4** – sails"),
        ("/forget #1.", "Forgotten: **1** – likes tea"),
        ("/forget 2", "There is no fact 2 now. Send /memory to see the list."),
    ],
)  # fmt: skip
async def test_selection_commands_have_these_answers(
    tmp_path: Path, command: str, answer: str
) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send(command)
        await harness.expect_replies(answer)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("/model gpt", "Failed to fetch models information."),
        ("/agent", "Failed to fetch agents information."),
        ("/skills", "Failed to fetch skills information."),
        ("/usage", "Failed to fetch usage information."),
        ("/forget", "Failed to fetch memory information."),
        ("/forget yes", "Failed to delete memory."),
    ],
)
async def test_a_gateway_that_fails(tmp_path: Path, command: str, answer: str) -> None:
    async with running_bus(tmp_path) as harness:
        harness.gateway.documents = dict.fromkeys(
            ("models", "agents", "skills", "memory", "usage"), 500
        )
        await harness.send(command)
        await harness.expect_replies(answer)


async def test_there_is_nothing_to_forget(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.gateway.documents = {"memory": {"facts": []}}
        await harness.send("/forget")
        await harness.expect_replies(ENGLISH.memory_none.format(whose="you"))


async def test_a_chosen_model_and_agent_answer_the_next_message(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("/model qwen")
        await harness.send("/agent reviewer")
        await harness.wait_for_runs(0)
        await harness.expect_replies(
            "The model of this chat is now qwen.", "The agent of this chat is now reviewer."
        )
        await harness.send("hello")
        await harness.wait_for_runs(1)
        context = harness.server.runs[0].body["context"]
        assert (context["model_name"], context["agent_name"]) == ("qwen", "reviewer")


async def test_the_agent_learns_which_agents_people_may_choose(tmp_path: Path) -> None:
    """It can delegate only to these."""
    policy = OPEN.model_copy(update={"agents": ["reviewer"]})
    async with running_bus(tmp_path / "some", policy=policy) as harness:
        await harness.send("hello")
        await harness.wait_for_runs(1)
        assert harness.server.runs[0].body["context"]["allowed_agents"] == ["reviewer"]
    async with running_bus(tmp_path / "all") as harness:
        await harness.send("hello")
        await harness.wait_for_runs(1)
        assert "allowed_agents" not in harness.server.runs[0].body["context"]


async def test_a_topic_has_its_own_choice_once_it_has_begun(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("hello", topic="t1")
        await harness.wait_for_runs(1)
        await harness.expect_replies("Hello you")
        await harness.send("/model qwen", topic="t1")
        await harness.send(
            "/model gpt", topic="t2"
        )  # a topic that Slack opens by itself: meant for the chat
        await harness.expect_replies(
            "Hello you",
            "The model of this conversation is now qwen.",
            "The model of this chat is now gpt.",
        )
        for topic in ("t1", "t3"):
            await harness.send("again", topic=topic)
        await harness.wait_for_runs(3)
        chosen = {run.body["context"]["model_name"] for run in harness.server.runs[1:]}
        assert chosen == {"qwen", "gpt"}


async def test_a_choice_survives_a_restart(tmp_path: Path) -> None:
    async with Database.open(StoreConfig(), tmp_path) as database:
        key = ConversationKey(channel="fake", workspace="w", chat="c")
        await ConversationSettingsStore(database).save(key, ConversationSettings(model="qwen"))
    async with running_bus(tmp_path) as harness:
        await harness.send("hello")
        await harness.wait_for_runs(1)
        assert harness.server.runs[0].body["context"]["model_name"] == "qwen"


async def test_only_what_the_channel_allows_can_be_chosen(tmp_path: Path) -> None:
    policy = OPEN.model_copy(update={"models": ["qwen", "gone"], "agents": []})
    async with running_bus(tmp_path, policy=policy) as harness:
        only = "Available models:\n• qwen"
        for command in ("/models", "/model gpt", "/model qwen", "/agent reviewer"):
            await harness.send(command)
        await harness.expect_replies(
            only,
            f"There is no model named “gpt”.\n{only}\nChoose with /model NAME.",
            "The model of this chat is now qwen.",
            "There is no agent named “reviewer”.\nThere is no agent to choose.",
        )


async def test_a_choice_that_is_not_allowed_any_more_does_not_apply(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("/model gpt")
        await harness.send("/agent reviewer")
        await eventually(lambda: len(harness.platform.shown) == 2)
    policy = OPEN.model_copy(update={"models": ["qwen"], "agents": []})
    async with running_bus(tmp_path, policy=policy) as harness:
        await harness.send("hello", event="later")
        await harness.wait_for_runs(1)
        assert not {"model_name", "agent_name"} & harness.server.runs[0].body["context"].keys()
        await harness.send("/model", event="last")
        await eventually(
            lambda: any("Current model: default (gpt)" in text for text in harness.platform.texts)
        )


async def test_memory_belongs_to_the_user_in_private_and_to_the_chat_in_a_group(
    tmp_path: Path,
) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("/memory", user="ann")
        await harness.platform.until(1)
        await harness.send("/memory", user="ann", chat="g", is_private=False)
        await harness.platform.until(2)
        await harness.send("hi", user="ann", chat="g", is_private=False)
        await harness.wait_for_runs(1)
        await eventually(lambda: len(harness.platform.texts) == 3)
        # Chats do not wait for each other.
        [private] = [text for text in harness.platform.texts if "about you" in text]
        [group] = [text for text in harness.platform.texts if "about this chat" in text]
        assert "• **4** – sails (2026-03-02)" in private
        assert "• **4** – sails (Ann, 2026-03-02)" in group
        scopes = {query["scope"] for _, what, query in harness.gateway.asked if what == "memory"}
        assert scopes == {"person:fake:w:ann", "room:fake:w:g"}
        context = harness.server.runs[0].body["context"]
        assert context["memory_scope"] == "room:fake:w:g"
        assert context["user_id"] == "fake:w:ann"


async def test_answers_that_only_the_author_sees_do_not_reach_the_groups_memory(
    tmp_path: Path,
) -> None:
    """This is about the text that people type after a slash command on Slack."""
    async with running_bus(tmp_path) as harness:
        own = ReplyTarget(chat="g", response_url="https://hooks.test/x")
        await harness.send("/memory", user="ann", chat="g", is_private=False, reply_target=own)
        await harness.send("my pin", user="ann", chat="g", is_private=False, reply_target=own)
        await harness.wait_for_runs(1)
        assert harness.server.runs[0].body["context"]["memory_scope"] == "person:fake:w:ann"

        def scopes() -> set[str]:
            return {query["scope"] for _, what, query in harness.gateway.asked if what == "memory"}

        await eventually(lambda: scopes() == {"room:fake:w:g"})


BOSS = ChannelPolicy(dm_policy="open", group_policy="open", admin_users=["boss"])


@pytest.mark.parametrize(
    ("user", "number", "answer"),
    [
        ("ann", 4, "Forgotten: **4** – sails"),
        ("bob", 4, "Only Ann, who said fact 4, or an admin can delete it."),
        ("boss", 4, "Forgotten: **4** – sails"),
        ("bob", 1, "Forgotten: **1** – likes tea"),
    ],
)
async def test_in_a_group_a_fact_is_deleted_by_who_said_it_or_an_admin(
    tmp_path: Path, user: str, number: int, answer: str
) -> None:
    async with running_bus(tmp_path, policy=BOSS) as harness:
        await harness.send(f"/forget {number}", user=user, chat="g", is_private=False)
        await harness.expect_replies(answer)
        deleted = [path for method, path, _ in harness.gateway.asked if method == "DELETE"]
        fact_id = {4: "f2", 1: "f1"}[number]
        assert deleted == ([f"memory/facts/{fact_id}"] if answer.startswith("Forgotten") else [])


@pytest.mark.parametrize("command", ["/forget yes", "/forget"])
@pytest.mark.parametrize("user", ["ann", "boss"])
async def test_only_an_admin_deletes_the_memory_of_a_group(
    tmp_path: Path, user: str, command: str
) -> None:
    async with running_bus(tmp_path, policy=BOSS) as harness:
        await harness.send(command, user=user, chat="g", is_private=False)
        answers = {"/forget yes": "I deleted everything", "/forget": "Facts that I remember about"}
        answer = answers[command] if user == "boss" else ENGLISH.forget_not_admin
        await eventually(lambda: answer in "".join(harness.platform.texts))
        deleted = [path for method, path, _ in harness.gateway.asked if method == "DELETE"]
        assert deleted == (["memory"] if (user, command) == ("boss", "/forget yes") else [])


@pytest.mark.parametrize(
    ("command", "first", "last", "left"),
    [("/memory", 1, 20, 25), ("/memory 2", 21, 40, 5), ("/memory 9", 41, 45, 0)],
)
async def test_a_long_list_of_facts_has_pages(
    tmp_path: Path, command: str, first: int, last: int, left: int
) -> None:
    async with running_bus(tmp_path) as harness:
        harness.gateway.documents["memory"] = {
            "facts": [
                {"id": f"f{n}", "number": n, "content": f"fact {n} " + "x" * 400}
                for n in range(1, 46)
            ]
        }
        await harness.send(command)
        await eventually(lambda: "tell me what is right" in "".join(harness.platform.texts))
        shown = "\n".join(harness.platform.texts)
        assert re.findall(r"\*\*(\d+)\*\*", shown) == [str(n) for n in range(first, last + 1)]
        assert (f"{left} more: send /memory" in shown) == bool(left)
        assert len(shown) < 20 * 330 + 300


async def test_memory_is_that_of_the_agent_that_answers(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("/agent reviewer")
        await eventually(lambda: harness.platform.texts)
        await harness.send("/memory")
        await eventually(lambda: len(harness.platform.texts) == 2)
        asked = [query for _, what, query in harness.gateway.asked if what == "memory"]
        assert asked[-1]["agent"] == "reviewer"


@given(st.lists(st.tuples(st.text(), st.text(), st.booleans()), min_size=2, unique=True))
def test_no_two_people_or_chats_share_a_scope(seats: list[tuple[str, str, bool]]) -> None:
    inbounds = [
        inbound_message("x", "e", user=name, chat=name, is_private=private, key=ConversationKey(
            channel="fake", workspace=workspace, chat=name))
        for workspace, name, private in seats
    ]  # fmt: skip
    scopes = {memory_scope(inbound) for inbound in inbounds}
    assert len(scopes) == len(seats)
    assert len({global_user_id(inbound) for inbound in inbounds if inbound.is_private}) == len(
        [seat for seat in seats if seat[2]]
    )


async def test_the_default_says_which_model_answers(tmp_path: Path) -> None:
    """It is the session's model, or else the agent's, or else the first one."""
    async with running_bus(tmp_path / "agent") as harness:
        harness.gateway.documents["agents"] = {"agents": [{"name": "reviewer", "model": "qwen"}]}
        await harness.send("/agent reviewer")
        await harness.expect_replies("The agent of this chat is now reviewer.")
        await harness.send("/model")
        shown = f"Current model: default (qwen)\n{MODELS}"
        await eventually(lambda: shown in harness.platform.texts)
    session = SessionConfig(context={"model_name": "qwen"})
    policy = OPEN.model_copy(update={"session": session})
    async with running_bus(tmp_path / "session", policy=policy) as harness:
        await harness.send("/model default")
        await harness.expect_replies("The model of this chat is now the default (qwen).")


async def test_the_default_says_which_graph_answers_by_default(tmp_path: Path) -> None:
    session = SessionConfig(assistant_id="helper")
    policy = OPEN.model_copy(update={"session": session})
    async with running_bus(tmp_path, policy=policy, graphs=frozenset({"helper"})) as harness:
        # Send each after the answer to the previous one, because the commands of a chat run concurrently.
        told = [
            "The agent of this chat is now reviewer.",
            "The agent of this chat is now the default (helper).",
            "The agent of this chat is now lead_agent.",
        ]
        for count, agent in enumerate(("reviewer", "default", "lead_agent"), 1):
            await harness.send(f"/agent {agent}")
            await harness.expect_replies(*told[:count])
        await harness.send("hello")
        await harness.wait_for_runs(1)
        body = harness.server.runs[0].body
        assert (body["assistant_id"], "agent_name" in body["context"]) == ("lead_agent", False)
        await harness.send("/agent default")
        await eventually(lambda: harness.platform.texts.count(told[1]) == 2)
        await harness.send("again")
        await harness.wait_for_runs(2)
        assert harness.server.runs[1].body["assistant_id"] == "helper"


@pytest.mark.parametrize(
    ("is_private", "answer"),
    [
        (True, "• You: 150 tokens ($0.25) today, 1,150 tokens ($1.75) this month"),
        (
            False,
            "• You: 150 tokens ($0.25) today, 1,150 tokens ($1.75) this month\n"
            "• This chat: 150 tokens ($0.25) today, 1,150 tokens ($1.75) this month",
        ),
    ],
)
async def test_usage_of_the_person_and_the_group(
    tmp_path: Path, is_private: bool, answer: str
) -> None:
    today = datetime.now(UTC).date().isoformat()
    days = [
        {"day": f"{today[:7]}-00", "input_tokens": 900, "output_tokens": 100, "cost_usd": 1.5},
        {"day": today, "input_tokens": 100, "output_tokens": 50, "cost_usd": 0.25},
    ]
    async with running_bus(tmp_path) as harness:
        harness.gateway.documents["usage"] = {"totals": days}
        await harness.send("/usage", user="ann", chat="g", is_private=is_private)
        await harness.expect_replies(f"Usage in UTC days and months:\n{answer}")
        asked = [query for _, what, query in harness.gateway.asked if what == "usage"]
        assert {query["since"] for query in asked} == {f"{today[:7]}-01"}
        assert [set(query) - {"by", "since"} for query in asked] == [
            {name} for name in ("person", "room")[: len(asked)]
        ]
