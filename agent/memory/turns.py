"""What of a conversation is worth remembering: what people said and what they were finally told. Pure."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from langchain_core.messages import AIMessage, BaseMessage

from agent.authors import is_from_a_person, own_words
from agent.memory.scopes import Spot
from agent.models.failures import is_fallback

EARLIER = 4
"""How many messages before a turn are shown with it, so that "the second one" can be understood."""

CUE_MESSAGES = 6
"""In how many of the last messages cues are looked for."""

LOOKED_AT = 30
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
class Said:
    """One message as it is learnt from: without what the framework added to it."""

    id: str
    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Something to learn from.

    Attributes:
        spot: Where to.
        thread_id: Where it was said.
        said: What is new, in order.
        earlier: What stood right before it.
        is_correction: Whether somebody corrected the agent.
        is_reinforcement: Whether somebody praised how it did something.
    """

    spot: Spot
    thread_id: str
    said: tuple[Said, ...]
    earlier: tuple[Said, ...] = ()
    is_correction: bool = False
    is_reinforcement: bool = False


def exchange_of(spot: Spot, thread_id: str, messages: Sequence[BaseMessage]) -> Exchange | None:
    """Return the last turn of a conversation, or None while nobody said something and was answered."""
    said = said_in(_end_of(messages))
    asked = [position for position, one in enumerate(said) if one.role == "user"]
    if not asked or said[-1].role != "assistant":
        return None
    start = asked[-1]
    # People often write in several messages before they are answered: those belong to the turn.
    while start > 0 and said[start - 1].role == "user":
        start -= 1
    corrects, praises = cues(said[-CUE_MESSAGES:])
    return Exchange(
        spot=spot,
        thread_id=thread_id,
        said=tuple(said[start:]),
        earlier=tuple(said[max(0, start - EARLIER) : start]),
        is_correction=corrects,
        is_reinforcement=praises,
    )


def _end_of(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """Return the end of a conversation, from words of a person on: a thread may have thousands of messages."""
    left = LOOKED_AT
    for position in range(len(messages) - 1, -1, -1):
        left -= is_from_a_person(messages[position])
        if not left:
            return messages[position:]
    return messages


def said_in(messages: Iterable[BaseMessage]) -> list[Said]:
    """Return what people wrote and what they were finally told.

    Left out: what the framework wrote in a person's name, tool calls and results, answers that only say that no
    model could be reached, messages that were nothing but an upload, and the answers to those.
    """
    said: list[Said] = []
    is_answered_for = True
    for message in messages:
        one = _said(message)
        if is_from_a_person(message):
            is_answered_for = one is not None
        if one is not None and (is_answered_for or one.role == "user"):
            said.append(one)
    return said


def cues(said: Iterable[Said]) -> tuple[bool, bool]:
    """Return whether people correct the agent, and whether they praise it; who corrects does not praise.

    >>> cues([Said(id="1", role="user", text="No, that's wrong.")])
    (True, False)
    >>> cues([Said(id="1", role="user", text="很好")])
    (False, True)
    """
    texts = [one.text for one in said if one.role == "user"]
    corrects = any(_CORRECTION.search(text) for text in texts)
    return corrects, not corrects and any(_REINFORCEMENT.search(text) for text in texts)


def _said(message: BaseMessage) -> Said | None:
    if is_from_a_person(message):
        text = own_words(message.text)
        return Said(id=_id_of(message), role="user", text=text) if text else None
    if isinstance(message, AIMessage) and _is_final(message):
        text = _THINKING.sub("", message.text).strip()
        return Said(id=_id_of(message), role="assistant", text=text) if text else None
    return None


def _is_final(message: AIMessage) -> bool:
    raw = message.additional_kwargs.get("tool_calls")
    return not (message.tool_calls or message.invalid_tool_calls or raw or is_fallback(message))


def _id_of(message: BaseMessage) -> str:
    return message.id or hashlib.sha256(message.text.encode("utf-8", "replace")).hexdigest()[:16]
