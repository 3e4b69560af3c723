"""ask_clarification: asks the user a question and ends the turn. Also formats questions. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from agent.locales import AgentMessages
from agent.locales.en import ENGLISH
from agent.tool_names import EXEMPT_KEY

NAME = "ask_clarification"

ICONS = {
    "missing_info": "❓",
    "ambiguous_requirement": "🤔",
    "approach_choice": "🔀",
    "risk_confirmation": "⚠️",
    "suggestion": "💡",
}


class AskClarificationArgs(BaseModel):
    """Arguments of ask_clarification."""

    question: str = Field(description="The question. It must make sense on its own.")
    clarification_type: Literal[
        "missing_info",
        "ambiguous_requirement",
        "approach_choice",
        "risk_confirmation",
        "suggestion",
    ] = Field(default="missing_info", description="The kind of question.")
    context: str | None = Field(default=None, description="Why you ask, in one sentence.")
    # Models send lists, JSON strings and plain strings; see `parse_options`.
    options: list[str] | str | None = Field(default=None, description="Answers to choose from.")


def ask_clarification_tool() -> BaseTool:
    """Build ask_clarification. ClarificationMiddleware answers its calls; this code runs only without it."""

    async def ask_clarification(**arguments: object) -> str:
        return question_text(arguments)

    return StructuredTool.from_function(
        coroutine=ask_clarification,
        name=NAME,
        description=(
            "Ask the user if you cannot continue without an answer: information is missing or ambiguous, there are "
            "several approaches, or an action is risky. This ends your turn; the answer is the next message."
        ),
        args_schema=AskClarificationArgs,
        return_direct=True,
        metadata={EXEMPT_KEY: True},
    )


def question_text(arguments: Mapping[str, Any], messages: AgentMessages = ENGLISH) -> str:
    r"""Format a question for the user.

    >>> question_text({"question": "Which?", "options": ["a", "b"]})
    '❓ Which?\n\n  1. a\n  2. b'
    """
    icon = ICONS.get(str(arguments.get("clarification_type")), ICONS["missing_info"])
    question = str(arguments.get("question") or "").strip() or messages.default_question
    context = arguments.get("context")
    text = f"{icon} {context}\n\n{question}" if context else f"{icon} {question}"
    options = parse_options(arguments.get("options"))
    if options:
        text += "\n\n" + "\n".join(f"  {n}. {option}" for n, option in enumerate(options, start=1))
    return text


def parse_options(given: object) -> list[str]:
    """Return the options from any form in which models send them.

    >>> parse_options('["a", "b"]'), parse_options("just this"), parse_options(None), parse_options([1, {"label": "x"}])
    (['a', 'b'], ['just this'], [], ['1', 'x'])
    """
    return [option for option in _leaves(_parsed(given), depth=4) if option.strip()]


def _parsed(given: object) -> object:
    if not isinstance(given, str):
        return given
    try:
        parsed: object = json.loads(given)
    except (ValueError, RecursionError):
        return given
    return parsed


def _leaves(given: object, depth: int) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    elif isinstance(given, bool) or given is None:
        return
    elif isinstance(given, int | float):
        yield str(given)
    elif depth > 0 and isinstance(given, Mapping):
        for value in given.values():
            yield from _leaves(value, depth - 1)
    elif depth > 0 and isinstance(given, list | tuple):
        for value in given:
            yield from _leaves(value, depth - 1)
