"""schedule: sets up, lists, changes and deletes schedules in this chat or other chats of the requesting person.

Its schema is short, because every request in a chat contains it. The action `help` explains the fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.options import thread_id_for_run
from agent.tools.results import tool_message

NAME = "schedule"

ScheduleAction = Literal["create", "list", "change", "pause", "resume", "delete", "timezone"]

HELP = """\
create: prompt (the message you get when due), when, and if needed chat, name, timezone, until, active_hours, check
list
change: number (as list counts them) and the fields to change
pause, resume, delete: number
timezone: timezone; saves the time zone of the requesting person
when, in local time: 2026-12-24T18:00, `in 20m`, `every 30m`, `every 1d`, or five cron fields: `0 9 * * 1-5`
timezone: IANA name, if the person said where they are. until: last day, 2026-12-31. active_hours: 09:00-18:00
check: a bash command; you get the prompt only when its output has changed
chat: where your answer to the prompt appears, if not in this chat: name or ID of a chat of this person, or `me`
(private). A message there says who set it up. Repeat the time and its zone to the person."""


class ScheduleArgs(BaseModel):
    """A call: the action and its fields (see `HELP`)."""

    model_config = ConfigDict(extra="forbid")

    action: ScheduleAction
    number: int = 0
    prompt: str = Field(default="", max_length=20_000)
    when: str = Field(default="", max_length=200)
    timezone: str = Field(default="", max_length=64)
    name: str = Field(default="", max_length=100)
    until: str = Field(default="", max_length=40)
    active_hours: str = Field(default="", max_length=11)
    check: str = Field(default="", max_length=4000)
    chat: str = Field(default="", max_length=200)


class ScheduleToolArgs(BaseModel):
    """Arguments of schedule."""

    action: str
    fields: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleCall:
    """A call of the tool in a run on a thread."""

    thread_id: str
    arguments: ScheduleArgs


class ScheduleRefused(Exception):
    """The call was refused. The message tells the model why."""


class ScheduleBackend(Protocol):
    """Carries out the calls."""

    async def call(self, call: ScheduleCall) -> str:
        """Return the result for the model. Raises ScheduleRefused."""
        ...


def schedule_tool(backend: ScheduleBackend) -> BaseTool:
    """Build the tool. The backend knows the requesting person and the chat."""

    async def schedule(
        action: str, runtime: ToolRuntime, fields: Mapping[str, Any] | None = None
    ) -> ToolMessage:
        if action == "help":
            return tool_message(runtime, NAME, HELP)
        try:
            arguments = ScheduleArgs.model_validate({**(fields or {}), "action": action})
        except ValidationError as error:
            wrong = ", ".join(str(one["loc"][0]) for one in error.errors())
            return tool_message(runtime, NAME, f"Error: invalid: {wrong}\n{HELP}", failed=True)
        thread_id = thread_id_for_run(runtime.context, runtime.config)
        try:
            said = await backend.call(ScheduleCall(thread_id=thread_id, arguments=arguments))
        except ScheduleRefused as error:
            return tool_message(runtime, NAME, f"Error: {error}", failed=True)
        return tool_message(runtime, NAME, said)

    return StructuredTool.from_function(
        coroutine=schedule,
        name=NAME,
        description="Reminders and recurring work in a chat, when a person asks. Call action `help` first.",
        args_schema=ScheduleToolArgs,
    )
