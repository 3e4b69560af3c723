"""Extracts from a thread what memory is made of: what people wrote and the final answers. Pure."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from langchain_core.messages import AIMessage, BaseMessage

from agent.memory.scope import MemoryScope
from agent.models.failures import is_fallback
from agent.user_messages import is_user_message, strip_framework_blocks

CONTEXT_MESSAGES = 4
"""How many messages before a turn are shown with it, so that "the second one" can be understood."""

CUE_MESSAGES = 6
"""In how many of the last messages cues are looked for."""

MAX_SCANNED_MESSAGES = 30
"""So many messages of people are looked at, from the end: more than they write before they are answered."""

_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)

_CORRECTION = re.compile(
    r"""\b(?:
      that(?:'s|’s|\ is|\ was)\ (?:wrong|not\ (?:right|correct|what\ i|true)|incorrect)
    | you(?:'re|’re|\ are|\ were)\ (?:wrong|mistaken)
    | (?:you|you've|you\ have)\ (?:misunderstood|got\ (?:it|that|this)\ wrong)
    | wrong\ again | not\ what\ i\ (?:meant|asked|wanted) | i\ (?:meant|said)\b
    | (?:please\ )?(?:don't|don’t|do\ not|stop|never)\ do(?:ing)?\ (?:that|this|it)
    | try\ again | redo\ (?:it|this|that)
    | actually,?\ (?:it|i|no|the|my|we) | correction:
    )|不对|错了|不是这样|你搞错|你弄错|理解错|我的意思是|我说的是|重新来|重做|改一下|别这样|不要这样""",
    re.IGNORECASE | re.VERBOSE,
)
_REINFORCEMENT = re.compile(
    r"""\b(?:
      (?:yes|yep|yeah)[,!.]?\ (?:exactly|perfect|that(?:'s|’s|\ is)\ (?:it|right|correct|great))
    | exactly(?:\ (?:right|what|like))? | perfect | spot\ on | just\ what\ i\ (?:wanted|needed)
    | that(?:'s|’s|\ is)\ (?:exactly|right|correct|perfect|great|it\b)
    | keep\ (?:doing|it\ up|it\ like) | i\ (?:love|like)\ (?:this|that|it|how)
    )|完全正确|说得对|没错|正是|就是这样|很好|太好了|完美|继续保持|这样就对""",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryMessage:
    """One message as it is learnt from: without what the framework added to it."""

    id: str
    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTurn:
    """Something to learn from.

    Attributes:
        scope: Where to.
        thread_id: Where it was said.
        messages: What is new, in order.
        context: What stood right before it.
        is_correction: Whether somebody corrected the agent.
        is_reinforcement: Whether somebody praised how it did something.
    """

    scope: MemoryScope
    thread_id: str
    messages: tuple[MemoryMessage, ...]
    context: tuple[MemoryMessage, ...] = ()
    is_correction: bool = False
    is_reinforcement: bool = False


def extract_turn(
    spot: MemoryScope, thread_id: str, messages: Sequence[BaseMessage]
) -> MemoryTurn | None:
    """Return the last turn of a conversation, or None while nobody said something and was answered."""
    said = conversation_messages(_recent_messages(messages))
    asked = [position for position, one in enumerate(said) if one.role == "user"]
    if not asked or said[-1].role != "assistant":
        return None
    start = asked[-1]
    # People often write in several messages before they are answered: those belong to the turn.
    while start > 0 and said[start - 1].role == "user":
        start -= 1
    corrects, praises = detect_feedback(said[-CUE_MESSAGES:])
    return MemoryTurn(
        scope=spot,
        thread_id=thread_id,
        messages=tuple(said[start:]),
        context=tuple(said[max(0, start - CONTEXT_MESSAGES) : start]),
        is_correction=corrects,
        is_reinforcement=praises,
    )


def _recent_messages(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """Return the end of a conversation, from words of a person on: a thread may have thousands of messages."""
    left = MAX_SCANNED_MESSAGES
    for position in range(len(messages) - 1, -1, -1):
        left -= is_user_message(messages[position])
        if not left:
            return messages[position:]
    return messages


def conversation_messages(messages: Iterable[BaseMessage]) -> list[MemoryMessage]:
    """Return what people wrote and what they were finally told.

    Left out: what the framework wrote in a person's name, tool calls and results, answers that only say that no
    model could be reached, messages that were nothing but an upload, and the answers to those.
    """
    said: list[MemoryMessage] = []
    is_answered_for = True
    for message in messages:
        one = _memory_message(message)
        if is_user_message(message):
            is_answered_for = one is not None
        if one is not None and (is_answered_for or one.role == "user"):
            said.append(one)
    return said


def detect_feedback(said: Iterable[MemoryMessage]) -> tuple[bool, bool]:
    """Return whether people correct the agent, and whether they praise it; who corrects does not praise.

    >>> detect_feedback([MemoryMessage(id="1", role="user", text="No, that's wrong.")])
    (True, False)
    >>> detect_feedback([MemoryMessage(id="1", role="user", text="很好")])
    (False, True)
    """
    texts = [one.text for one in said if one.role == "user"]
    corrects = any(_CORRECTION.search(text) for text in texts)
    return corrects, not corrects and any(_REINFORCEMENT.search(text) for text in texts)


def _memory_message(message: BaseMessage) -> MemoryMessage | None:
    if is_user_message(message):
        text = strip_framework_blocks(message.text)
        return MemoryMessage(id=_message_id(message), role="user", text=text) if text else None
    if isinstance(message, AIMessage) and _is_final(message):
        text = _THINKING.sub("", message.text).strip()
        return MemoryMessage(id=_message_id(message), role="assistant", text=text) if text else None
    return None


def _is_final(message: AIMessage) -> bool:
    raw = message.additional_kwargs.get("tool_calls")
    return not (message.tool_calls or message.invalid_tool_calls or raw or is_fallback(message))


def _message_id(message: BaseMessage) -> str:
    return message.id or hashlib.sha256(message.text.encode("utf-8", "replace")).hexdigest()[:16]
