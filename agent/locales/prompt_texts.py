"""Texts of the system prompt, one field per section, with {named} placeholders."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTexts:
    """The system prompt in one language. Placeholders are the same in every language.

    Attributes:
        role: Who the agent is, and how it writes.
        work: How to work: finish, check, say what is missing, several calls at once.
        limits: What the agent cannot do in a chat.
        folders: The thread's folders: {workspace}, {uploads}, {outputs}.
        commands: The shell.
        sources: How to cite, for agents with web tools.
        questions: When to ask.
        delegation: Subagents: {concurrency}, {types}.
        trust: What counts as an instruction.
        bootstrap: The conversation that sets up an agent.
        private_chat: {where}, {named}.
        private_named: The person in a private chat: {name}.
        group_chat: {named}, {where}, {in_topic}, {silence}.
        group_named, in_topic: The group's {title}, and its {topic}.
        terminal: {where} for a chat in a terminal.
        platforms: The names of the platforms.
        on_platform: {where} for a chat on a {platform}.
        writing: How to write for each platform, by its name.
        origins: Instructions for a message that no person sent, by its origin: {silence}.
    """

    role: str
    work: str
    limits: str
    folders: str
    commands: str
    sources: str
    questions: str
    delegation: str
    trust: str
    bootstrap: str
    private_chat: str
    private_named: str
    group_chat: str
    group_named: str
    in_topic: str
    terminal: str
    platforms: Mapping[str, str]
    on_platform: str
    writing: Mapping[str, str]
    origins: Mapping[str, str]
