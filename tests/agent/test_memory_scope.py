"""No memory of one scope appears in another, for many people, rooms, platforms and agents, and with hostile ids.

The bus creates the scopes from platform messages, and turns run through the real middleware and service.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage

from agent.config import AgentConfig
from agent.memory.scope import MemoryScope
from agent.memory.service import MemoryService, open_memory
from agent.middleware.final_answer import FinalAnswerMiddleware
from agent.middleware.memory_and_date import MemoryAndDateMiddleware
from agent.sandbox.local import LocalSandboxProvider
from agent.state import ThreadState
from agent.thread_storage import ThreadStorage
from bus.messages import InboundMessage, ReplyTarget, Sender
from bus.settings.memory_scope import memory_scope
from store.conversations import ConversationKey
from tests.agent.memory_model import MemoryModel
from tests.fakes.scripted import ScriptedChatModel

CONFIG = AgentConfig.model_validate({"models": [{"name": "m", "use": "a:B", "model": "m"}]})

HOSTILE = (
    *("U1", "u1", "U1 ", "U1:", ":U1", "U1:U2", "U1%3AU2", "%", "%25"),
    *("../U1", "U1/../U2", "..", ".", "a/b", "a\\b", "default", "person:slack:T1:U1", "room"),
    *("é", "e\u0301", "Ａ", "A", "а", "a", "ı", "i", "ß", "ss", "\u202eU1", "U1\u200b", "你好"),
    *("x" * 200, "person-slack-t1-u1-9a97008ee12ed6a36e9835613ca1c97b", "*", "?", "NUL", "~"),
)
ids = st.sampled_from(HOSTILE) | st.text(
    st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12
)


@dataclass(frozen=True)
class MemoryUser:
    """A person in a place, talking to an agent."""

    channel: str
    workspace: str
    chat: str
    user: str
    private: bool
    agent: str | None

    @property
    def scope(self) -> str:
        key = ConversationKey(channel=self.channel, workspace=self.workspace, chat=self.chat)
        inbound = InboundMessage(
            event_id="e",
            message_id="m",
            key=key,
            reply_target=ReplyTarget(chat=self.chat),
            sender=Sender(user_id=self.user),
            text="hello",
            is_private=self.private,
            is_addressed=True,
        )
        return memory_scope(inbound)

    @property
    def owner(self) -> tuple[object, ...]:
        """The expected owner of the memory, as a tuple, so that ids cannot run together."""
        if self.private:
            return ("person", self.channel, self.workspace, self.user, self.agent)
        return ("room", self.channel, self.workspace, self.chat, self.agent)


speakers = st.builds(
    MemoryUser,
    channel=st.sampled_from(["slack", "telegram", "feishu", "terminal"]),
    workspace=ids,
    chat=ids,
    user=ids,
    private=st.booleans(),
    agent=st.sampled_from([None, "writer", "coder", "write-r", "default", "memory"]),
)


class MemoryChats:
    """Turns of different people with one agent."""

    def __init__(self, memory: MemoryService, home: Path) -> None:
        self._model = ScriptedChatModel.playing()
        self._graph = create_agent(
            self._model,
            middleware=[
                FinalAnswerMiddleware(memory, LocalSandboxProvider(ThreadStorage(home))),
                MemoryAndDateMiddleware(memory),
            ],
            state_schema=ThreadState,
        )

    async def say(self, speaker: MemoryUser | None, text: str, *, thread: str) -> str:
        """Run one turn, and return the model's system message."""
        context: dict[str, Any] = {"thread_id": thread}
        if speaker is not None:
            context |= {"memory_scope": speaker.scope, "agent_name": speaker.agent}
        await self._graph.ainvoke({"messages": [HumanMessage(text, id=text)]}, context=context)
        return self._model.prompts[-1][0].text


async def nobody_sees_another_s(home: Path, people: Sequence[MemoryUser]) -> None:
    async with open_memory(home, lambda: CONFIG, MemoryModel().given) as memory:
        chats = MemoryChats(memory, home)
        for number, speaker in enumerate(people):
            await chats.say(speaker, f"markno{number}end", thread=f"t{number}")
        await chats.say(None, "marknobodyend", thread="t")
    # Closing extracted everything. A new thread of each person now finds that person's facts and no others.
    hanging = MemoryModel()
    hanging.hold()
    async with open_memory(home, lambda: CONFIG, hanging.given, flush_s=0) as memory:
        chats = MemoryChats(memory, home)
        for speaker in people:
            shown = await chats.say(speaker, "hello again", thread="later")
            found = {n for n in range(len(people)) if f"markno{n}end" in shown}
            assert found == {n for n, one in enumerate(people) if one.owner == speaker.owner}
            assert "marknobodyend" not in shown
        shown = await chats.say(None, "hello again", thread="later")
        assert "marknobodyend" in shown
        assert "markno0end" not in shown
        await forgetting_reaches_nobody_else(memory, people)


async def forgetting_reaches_nobody_else(
    memory: MemoryService, people: Sequence[MemoryUser]
) -> None:
    first = people[0]
    for one in people:
        assert (await memory.get(where(one))).facts
    await memory.clear(where(first))
    for one in people:
        is_same = one.owner == first.owner
        is_within = first.agent is None and one.owner[:-1] == first.owner[:-1]
        assert bool((await memory.get(where(one))).facts) != (is_same or is_within)


def where(speaker: MemoryUser) -> MemoryScope:
    return MemoryScope(scope=speaker.scope, agent=speaker.agent)


@settings(max_examples=15, deadline=None)
@given(st.lists(speakers, min_size=2, max_size=7))
def test_nothing_of_one_scope_appears_in_another(people: list[MemoryUser]) -> None:
    with tempfile.TemporaryDirectory() as home:
        anyio.run(nobody_sees_another_s, Path(home), people)


@given(speakers, speakers)
def test_two_owners_never_share_a_file(one: MemoryUser, other: MemoryUser) -> None:
    same_scope = one.owner[:-1] == other.owner[:-1]
    assert (where(one).folder == where(other).folder) == same_scope


def test_every_pair_of_hostile_ids_is_distinguished() -> None:
    """No two of them share a folder, even on a case-insensitive file system."""
    people = [
        MemoryUser(channel, "T1", chat, user, private, None)
        for channel in ("slack", "telegram")
        for private in (True, False)
        for chat, user in zip(HOSTILE, reversed(HOSTILE), strict=True)
    ]
    folders = {where(one).folder.casefold() for one in people}
    assert len(folders) == len({one.owner for one in people}) == 4 * len(set(HOSTILE))
