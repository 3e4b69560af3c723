"""The prompt that the next message in a chat would get, with the tokens of its parts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import orjson
from langchain_core.messages import BaseMessage, convert_to_openai_messages

from agent.factory import AgentFactory
from agent.prompt_recording import ModelPrompt, PromptRecorder
from agent.token_estimate import estimate_message_tokens, estimate_tokens
from bus.config import LEAD_AGENT, SessionConfig
from bus.messages import ConversationKey, InboundMessage, ReplyTarget, Sender, decode_inbound
from bus.runs.requests import AgentRunRequest, run_body
from bus.settings.language import LanguageResolver
from bus.settings.resolver import AllowedChoices, SettingsResolver
from bus.settings.sessions import (
    InvalidSession,
    SessionResolver,
    merge_layers,
    session_layers,
)
from gateway.config import Config
from gateway.langgraph.request_models import RunCreate
from gateway.langgraph.route import parse_json, validate_body
from gateway.langgraph.run_requests import build_run_request
from gateway.runtime.request import graph_input, request_options, runnable_config
from store.conversation_settings import ConversationSettingsStore
from store.conversations import ConversationStore
from store.database import Database
from store.errors import RowNotFound
from store.inbox import InboxStore

NEXT_MESSAGE = "(the next message)"

_SECTION = re.compile(r"<(\w+)>.*?</\1>", re.DOTALL)
"""A section of the system prompt."""

_OWN_PARTS = {"memory": "memory", "skill_system": "skills", "chat": "chat"}
"""Sections that are counted apart from the rest of the system prompt: tag -> part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPlace:
    """The place where the next message arrives.

    Attributes:
        channel: The channel's name.
        chat: The chat's ID on the platform; "" = a new private chat.
        topic: A topic or thread of the chat; "" = the topic with the newest message.
        user: The sender's ID; "" = the sender of the newest message.
    """

    channel: str
    chat: str = ""
    topic: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPart:
    """A part of a prompt, and its size in estimated tokens."""

    part: str
    name: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReport:
    """A prompt.

    Attributes:
        model: The entry of `models`.
        thread_id: The conversation's thread; None = it begins with this message.
        system: The system message.
        tools: The tools in OpenAI's form.
        messages: The conversation in OpenAI's form.
        parts: The sizes, in the order of the prompt.
        tokens: Their sum.
    """

    model: str
    thread_id: str | None
    system: str
    tools: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    parts: list[PromptPart] = field(default_factory=list)
    tokens: int = 0


async def report_prompt(
    config: Config, database: Database, agents: AgentFactory, place: PromptPlace
) -> PromptReport:
    """Return the prompt of the next message there. It is built as for a run, but calls no model and stores nothing.

    Raises:
        RowNotFound: There is no such channel, or a graph or an unknown agent answers there.
        AgentError, StoreError: The run could not start.
    """
    policies = config.bots.sections
    if place.channel not in policies:
        raise RowNotFound(f"There is no channel {place.channel}. There are: {', '.join(policies)}.")
    settings = SettingsResolver(
        ConversationSettingsStore(database), allowed=AllowedChoices(policies)
    )
    await settings.load()
    message = await _next_message(database, place)
    language = LanguageResolver(config.bus, policies, settings).resolve(message)
    target = replace(message.reply_target, language=language)
    message = replace(message, reply_target=target)
    sessions = SessionResolver(config.bus, policies, settings, config.graphs)
    try:
        session = sessions.resolve(message)
    except InvalidSession as error:
        raise RowNotFound(
            f"The agent {error.agent}, which answers there, does not exist."
        ) from error
    if session.assistant_id != LEAD_AGENT:
        raise RowNotFound(f"The graph {session.assistant_id} answers there, with its own prompt.")
    found = await ConversationStore(database).find(message.key)
    thread_id = found.thread_id if found is not None else None
    request = AgentRunRequest(
        thread_id=thread_id or str(uuid4()),
        assistant_id=LEAD_AGENT,
        message_id=message.event_id,
        inbound=message,
        text=message.prompt,
        config=session.config,
        context=session.context,
    )
    return _report(await _record(agents, request), thread_id)


async def report_agent_prompt(
    config: Config, agents: AgentFactory, agent_name: str | None
) -> PromptReport:
    """Return the prompt of the first message to an agent, outside of chats; None = the lead agent.

    Raises:
        AgentError: There is no such agent, or it cannot be used.
    """
    layers = session_layers(config.bus.session, SessionConfig(), channel="", user_id="", chat="")
    session = merge_layers(layers).session
    own = {"agent_name": agent_name} if agent_name else {}
    context = {key: value for key, value in session.context.items() if key != "agent_name"}
    message = InboundMessage(
        event_id=str(uuid4()),
        message_id="",
        key=ConversationKey(channel="", workspace="", chat=""),
        reply_target=ReplyTarget(chat=""),
        sender=Sender(user_id=""),
        text=NEXT_MESSAGE,
        is_private=True,
        is_addressed=True,
    )
    request = AgentRunRequest(
        thread_id=str(uuid4()),
        assistant_id=LEAD_AGENT,
        message_id=message.event_id,
        inbound=message,
        text=message.prompt,
        config=session.config,
        context={**context, **own},
    )
    return _report(await _record(agents, request), None)


async def _next_message(database: Database, place: PromptPlace) -> InboundMessage:
    """Return a message like the chat's newest one."""
    newest = None
    if place.chat:
        newest = await InboxStore(database).find_newest(place.channel, place.chat, place.topic)
    if newest is not None:
        message = replace(
            decode_inbound(newest.body),
            key=newest.key,
            event_id=str(uuid4()),
            text=NEXT_MESSAGE,
            quoted="",
            attachments=(),
            rewind_point=None,
            is_addressed=True,
            answers_row=0,
            parts=(),
        )
    else:
        chat = place.chat or place.user or "new"
        message = InboundMessage(
            event_id=str(uuid4()),
            message_id="",
            key=ConversationKey(channel=place.channel, workspace="", chat=chat, topic=place.topic),
            reply_target=ReplyTarget(chat=chat),
            sender=Sender(user_id="new"),
            text=NEXT_MESSAGE,
            is_private=not place.chat,
            is_addressed=True,
        )
    return replace(message, sender=Sender(user_id=place.user)) if place.user else message


async def _record(agents: AgentFactory, request: AgentRunRequest) -> ModelPrompt:
    body = {**run_body(request), "assistant_id": request.assistant_id}
    checked = validate_body(RunCreate, parse_json(orjson.dumps(body)))
    run = build_run_request(checked, request.thread_id)
    options = request_options(run)
    config = runnable_config(
        run, options, run_id=str(uuid4()), thread_id=request.thread_id, graph_id=LEAD_AGENT
    )
    run_input: Any = graph_input(run)
    return await PromptRecorder(agents).record(config, run_input, config["configurable"])


def _report(prompt: ModelPrompt, thread_id: str | None) -> PromptReport:
    system = "\n\n".join(m.text for m in prompt.messages if m.type == "system")
    messages = [message for message in prompt.messages if message.type != "system"]
    parts = [
        *_tool_parts(prompt),
        *_system_parts(system),
        *_message_parts(messages),
    ]
    return PromptReport(
        model=prompt.model_name,
        thread_id=thread_id,
        system=system,
        tools=[dict(tool) for tool in prompt.tools],
        messages=convert_to_openai_messages(messages),
        parts=parts,
        tokens=sum(part.tokens for part in parts),
    )


def _tool_parts(prompt: ModelPrompt) -> Iterator[PromptPart]:
    for tool in prompt.tools:
        text = orjson.dumps(tool).decode()
        name = str(tool.get("function", tool).get("name"))
        yield PromptPart(part="tools", name=name, tokens=estimate_tokens(text))


def _system_parts(system: str) -> Iterator[PromptPart]:
    """Yield the sections of a system prompt, and the text between them, in order."""
    at = 0
    for section in _SECTION.finditer(system):
        if between := system[at : section.start()].strip():
            yield PromptPart(part="system", name="text", tokens=estimate_tokens(between))
        tag = section[1]
        part = _OWN_PARTS.get(tag, "system")
        yield PromptPart(part=part, name=tag, tokens=estimate_tokens(section[0]))
        at = section.end()
    if rest := system[at:].strip():
        yield PromptPart(part="system", name="text", tokens=estimate_tokens(rest))


def _message_parts(messages: list[BaseMessage]) -> Iterator[PromptPart]:
    *earlier, newest = messages
    if earlier:
        name = f"{len(earlier)} earlier messages"
        tokens = estimate_message_tokens(earlier)
        yield PromptPart(part="conversation", name=name, tokens=tokens)
    tokens = estimate_message_tokens([newest])
    yield PromptPart(part="conversation", name="the next message", tokens=tokens)
