"""The status on a delegation's message: the documented texts, and the statuses that the middleware sets."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command

from agent.middleware.tool_errors import ToolErrorMiddleware
from agent.streaming import delegated_usage
from agent.subagents.status import (
    STATUSES,
    parse_error,
    parse_status,
    status_kwargs,
    with_status,
)
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

CASES = [
    ("Task Succeeded. Result: three pages were written", "completed", None),
    ("Task failed. Error: a tool raised RuntimeError", "failed", "RuntimeError"),
    ("Task cancelled by user.", "cancelled", None),
    ("Task timed out. Error: 900 seconds", "timed_out", "900"),
    (
        "Task polling timed out after 15 minutes. This may indicate the background task is stuck. Status: RUNNING",
        "polling_timed_out",
        "15",
    ),
    ("Task polling timed out after 1 minutes. Status: RUNNING", "polling_timed_out", None),
    ("Error: Unknown subagent type 'foo'. Available: bash", "failed", "Unknown subagent"),
    ("Error: Host bash subagent is disabled by configuration", "failed", "disabled"),
    ("Error: Task 1234 disappeared from background tasks", "failed", "disappeared"),
    (
        "Error: Tool 'task' failed with TypeError: not iterable. Continue with available context, "
        "or choose an alternative tool.",
        "failed",
        "TypeError",
    ),
    ("Investigating ...", None, None),
    ("  Task Succeeded. Result: ok  ", "completed", None),
    ("  Task cancelled by user.\n", "cancelled", None),
]


@pytest.mark.parametrize(("text", "status", "error"), CASES)
def test_texts_of_the_tool_name_their_status(
    text: str, status: str | None, error: str | None
) -> None:
    assert parse_status(text) == status
    assert error is None or error in (parse_error(text) or "")
    if status in (None, "completed", "cancelled"):
        assert parse_error(text) is None


def test_a_stamp_has_a_known_status_and_no_blank_error() -> None:
    assert {status_kwargs(status)["subagent_status"] for status in STATUSES} == {
        *("completed", "failed", "cancelled", "timed_out", "polling_timed_out")
    }
    assert status_kwargs("failed", "  ") == {"subagent_status": "failed"}
    assert status_kwargs("failed") == {"subagent_status": "failed"}
    with pytest.raises(ValueError, match="no subagent status 'done'"):
        status_kwargs("done")


def test_a_stamp_keeps_what_was_there_and_survives_json() -> None:
    message = ToolMessage(
        "Task failed. Error: no", tool_call_id="1", additional_kwargs={"mine": [1]}
    )
    told = with_status(message)
    assert told.additional_kwargs == {
        "mine": [1],
        "subagent_status": "failed",
        "subagent_error": "no",
    }
    assert ToolMessage.model_validate_json(told.model_dump_json()) == told
    assert message.additional_kwargs == {"mine": [1]}
    assert with_status(told) is told


def test_the_tools_own_stamp_holds_whatever_its_text_looks_like() -> None:
    message = ToolMessage(
        "Error handling explained", tool_call_id="1", additional_kwargs=status_kwargs("completed")
    )
    assert with_status(message) is message


def test_usage_is_read_from_tool_messages_only() -> None:
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    kwargs = {"subagent_token_usage": usage}
    told = ToolMessage("x", tool_call_id="1", additional_kwargs=kwargs)
    assert delegated_usage(told) == usage
    assert delegated_usage(HumanMessage("x", additional_kwargs=kwargs)) is None
    assert delegated_usage(ToolMessage("x", tool_call_id="1")) is None


# ---- in a graph ----------------------------------------------------------------------------------


def answering(name: str, answer: object) -> BaseTool:
    async def tool() -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return StructuredTool.from_function(coroutine=tool, name=name, description="answers")


async def answered(name: str, answer: object) -> ToolMessage:
    model = ScriptedChatModel.playing(
        ModelReply(calls=(ToolCall(name=name, args={}, id="c"),)), "done"
    )
    graph: Any = create_agent(model, [answering(name, answer)], middleware=[ToolErrorMiddleware()])
    state = await graph.ainvoke({"messages": [HumanMessage("go")]})
    message = state["messages"][2]
    assert isinstance(message, ToolMessage)
    return message


async def test_errors_of_the_task_tool_have_a_status() -> None:
    message = await answered("task", LookupError("nobody"))
    assert message.additional_kwargs == {
        "subagent_status": "failed",
        "subagent_error": "LookupError: nobody",
    }


@pytest.mark.parametrize(
    ("answer", "status"),
    [("Task Succeeded. Result: 1", "completed"), ("Task timed out. Error: 9", "timed_out")],
)
async def test_a_plain_answer_of_task_is_stamped(answer: str, status: str) -> None:
    assert (await answered("task", answer)).additional_kwargs["subagent_status"] == status


async def test_other_tools_and_commands_are_left_alone() -> None:
    assert (await answered("ls", "Task failed. Error: no")).additional_kwargs == {}
    assert (await answered("ls", ValueError("no"))).additional_kwargs == {}
    message = ToolMessage("Task failed. Error: no", tool_call_id="c", name="task")
    commanded = await answered("task", Command(update={"messages": [message]}))
    assert commanded.additional_kwargs == {}
