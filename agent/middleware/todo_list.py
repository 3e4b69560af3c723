"""Plan mode: the write_todos tool, and reminders of open steps."""

from collections.abc import Sequence
from typing import Any, Literal, cast

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain.tools import ToolRuntime
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command
from pydantic import BaseModel, Field
from typing_extensions import override

from agent.middleware.handler_types import ModelHandler
from agent.middleware.system_message import append_to_system_message
from agent.middleware.tool_calls import has_calls
from agent.models.failures import is_fallback
from agent.state import ThreadState, Todo
from agent.tool_names import EXEMPT_KEY
from agent.user_messages import PLAN_REMINDER, SUMMARY, is_user_message

TOOL = "write_todos"
MAX_REMINDERS = 2
"""Maximum number of reminders of open steps per turn."""

PROMPT = """\
<todo_list>
For work that takes three or more steps, keep a list with write_todos; for less, just do the work.
- Pass the complete list each time: every call replaces it. Call the tool at most once per message.
- While you work, exactly one step is in_progress. Mark it completed as soon as it is done, before you start the next.
- Add steps that come up and remove steps that are no longer needed. A failed step is not completed.
- The list is for you. When everything is done, give the user the result in a message without tool calls.
</todo_list>"""

DESCRIPTION = (
    "Write the list of steps for work that takes three or more. The new list replaces the old one."
)

PARALLEL_CALLS_ERROR = (
    "Error: write_todos was called more than once in one message, so no list was saved. "
    "Call it once with the complete list."
)

SAME_ID_ERROR = (
    "Error: Two steps have the id {id!r}, so no list was saved. Give each step its own id."
)

_TOOL_REASONS = frozenset({"tool_calls", "tool_use", "function_call"})

Request = ModelRequest[Any]
Response = ModelResponse[Any]


class TodoStep(BaseModel):
    """One step of the list, as the model writes it."""

    id: str = Field(min_length=1, max_length=64, description="Keep it in later lists: todo-1.")
    title: str = Field(min_length=1, description="What to do, in a few words.")
    status: Literal["pending", "in_progress", "completed"]


class WriteTodosArgs(BaseModel):
    """Arguments of write_todos."""

    todos: list[TodoStep]


async def _write_todos(runtime: ToolRuntime, **arguments: object) -> Command[Any] | str:
    steps = WriteTodosArgs.model_validate(arguments).todos
    ids = [step.id for step in steps]
    for one in ids:
        if ids.count(one) > 1:
            return SAME_ID_ERROR.format(id=one)
    todos = [Todo(id=step.id, title=step.title, status=step.status) for step in steps]
    result = ToolMessage("OK", tool_call_id=runtime.tool_call_id or "", name=TOOL)
    return Command(update={"todos": todos, "messages": [result]})


def _write_todos_tool() -> BaseTool:
    return StructuredTool.from_function(
        coroutine=_write_todos,
        name=TOOL,
        description=DESCRIPTION,
        args_schema=WriteTodosArgs,
        metadata={EXEMPT_KEY: True},
    )


class TodoListMiddleware(AgentMiddleware[ThreadState, Any]):
    """Provides write_todos. LangChain's own has no `id` and no `title`, and its middleware adds a graph step.

    Parallel calls are rejected here, in the response. If the model gives a final answer while steps are open, it gets a
    reminder (in the request only) and is called again; the answer stays in the thread. If a summary replaced the last
    write_todos call, the list is shown again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tools = [_write_todos_tool()]

    @override
    async def awrap_model_call(self, request: Request, handler: ModelHandler) -> Response:
        asked, left = _add_plan(request), _reminders_left(request)
        response = _reject_parallel_calls(await handler(asked))
        answers: list[BaseMessage] = []
        while left and _stops_early(request, response):
            answers += response.result
            left -= 1
            response = _reject_parallel_calls(
                await handler(_add_reminder(asked, answers, _open_todos(request)))
            )
        return ModelResponse(result=[*answers, *response.result]) if answers else response


def _add_plan(request: Request) -> Request:
    """Return the request with the rules, and with the list if the model no longer sees it."""
    asked = request.override(
        system_message=append_to_system_message(request.system_message, PROMPT)
    )
    todos = _todos(request)
    if not todos or _is_plan_visible(request.messages):
        return asked
    # Insert it right after the summary, if any: never between a call and its result, nor after the user's message.
    at = 1 if request.messages and request.messages[0].name == SUMMARY else 0
    reminder = HumanMessage(
        f"Your current list of steps:\n{_format_todos(todos)}",
        name=PLAN_REMINDER,
        additional_kwargs={"hide_from_ui": True},
    )
    return asked.override(messages=[*request.messages[:at], reminder, *request.messages[at:]])


def _is_plan_visible(messages: Sequence[AnyMessage]) -> bool:
    return any(
        call["name"] == TOOL
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    )


def _reject_parallel_calls(response: Response) -> Response:
    """Answer each of several parallel write_todos calls with an error, because it is unclear which list counts."""
    calls = [
        call
        for message in response.result
        if isinstance(message, AIMessage)
        for call in message.tool_calls
        if call["name"] == TOOL
    ]
    if len(calls) <= 1:
        return response
    errors = [
        ToolMessage(PARALLEL_CALLS_ERROR, tool_call_id=call["id"] or "", name=TOOL, status="error")
        for call in calls
    ]
    return ModelResponse(result=[*response.result, *errors])


def _stops_early(request: Request, response: Response) -> bool:
    return bool(_open_todos(request)) and _is_final(response.result)


def _is_final(messages: Sequence[BaseMessage]) -> bool:
    """Return whether these messages are an answer that has text and no calls in any provider's form."""
    last = messages[-1] if messages else None
    if not isinstance(last, AIMessage) or is_fallback(last) or not last.text.strip():
        return False
    return not (
        has_calls(last)
        or last.response_metadata.get("finish_reason") in _TOOL_REASONS
        or last.response_metadata.get("stop_reason") in _TOOL_REASONS
    )


def _reminders_left(request: Request) -> int:
    """Return how many reminders are left. Each final answer in this turn used one."""
    used = 0
    for message in reversed(request.state["messages"]):
        if is_user_message(message):
            break
        used += _is_final([message])
    return max(0, MAX_REMINDERS - used)


def _add_reminder(
    request: Request, answers: Sequence[BaseMessage], steps: Sequence[Todo]
) -> Request:
    reminder = HumanMessage(
        f"These steps of your list are still open:\n{_format_todos(steps)}\n"
        "Continue with them. If they are done or no longer needed, update the list. Then repeat your complete "
        "answer: only your last message reaches the user.",
        name=PLAN_REMINDER,
        additional_kwargs={"hide_from_ui": True},
    )
    messages: Any = [*request.messages, *answers, reminder]
    return request.override(messages=messages)


def _open_todos(request: Request) -> list[Todo]:
    return [todo for todo in _todos(request) if todo["status"] != "completed"]


def _todos(request: Request) -> list[Todo]:
    """Return the valid steps in the state. API clients may also have written invalid ones."""
    found = request.state.get("todos")
    fields = Todo.__annotations__.keys()
    return [
        cast("Todo", todo)
        for todo in (found if isinstance(found, list) else ())
        if isinstance(todo, dict) and fields <= todo.keys()
    ]


def _format_todos(todos: Sequence[Todo]) -> str:
    return "\n".join(f"- [{todo['status']}] {todo['id']}: {todo['title']}" for todo in todos)
