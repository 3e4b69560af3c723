"""Selects the messages of a thread that memory is extracted from: people's messages and final answers. Pure."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from langchain_core.messages import AIMessage, BaseMessage

from agent.memory.scope import MemoryScope
from agent.models.failures import is_fallback
from agent.models.thinking_tags import without_thinking
from agent.speakers import HOOK, Speaker, author_of
from agent.user_messages import is_user_message, strip_framework_blocks

CONTEXT_MESSAGES = 4
"""Number of earlier messages to include as context, so that the model understands words such as "the second one"."""

CUE_MESSAGES = 6
"""Number of latest messages to search for feedback."""

MAX_SCANNED_MESSAGES = 30
"""Maximum number of user messages to scan from the end. People write fewer before they get an answer."""


_QUOTED = re.compile(r"^(?:>[^\n]*|\[[^\n]*\])$\n?", re.MULTILINE)
"""Matches quotations of other people in a message, with the line above them (`bots/text/quotations.py`). They are not
the sender's words, and their author may not be allowed to use the bot."""

_CORRECTION = re.compile(
    r"""\b(?:
      that(?:'s|’s|\ is|\ was)\ (?:wrong|not\ (?:right|correct|what\ i|true)|incorrect)
    | you(?:'re|’re|\ are|\ were)\ (?:wrong|mistaken)
    | (?:you|you've|you\ have)\ (?:misunderstood|got\ (?:it|that|this)\ wrong)
    | wrong\ again | not\ what\ i\ (?:meant|asked|wanted) | i\ (?:meant|said)\b
    | (?:please\ )?(?:don't|don’t|do\ not|stop|never)\ do(?:ing)?\ (?:that|this|it)
    | try\ again | redo\ (?:it|this|that)
    | actually,?\ (?:it|i|no|the|my|we) | correction: | no,\ (?:it|i|my|our|we|the)\b
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
    """One message without the framework's additions.

    Attributes:
        id: Its id in the thread.
        role: Who wrote it.
        text: The author's own words.
        speaker_id: The id of the person who wrote it, on the platform; "" = unknown, or the assistant.
        speaker: Their name.
    """

    id: str
    role: Literal["user", "assistant"]
    text: str
    speaker_id: str = ""
    speaker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTurn:
    """A turn to extract memory from.

    Attributes:
        scope: The document to update.
        thread_id: The thread.
        said_at: When the turn ended, ISO 8601 with zone; "" = unknown.
        messages: The turn's messages, in order.
        context: The messages right before it.
        is_correction: Whether a person corrected the agent.
        is_reinforcement: Whether a person praised how the agent did something.
    """

    scope: MemoryScope
    thread_id: str
    messages: tuple[MemoryMessage, ...]
    said_at: str = ""
    context: tuple[MemoryMessage, ...] = ()
    is_correction: bool = False
    is_reinforcement: bool = False


def extract_turn(
    scope: MemoryScope, thread_id: str, messages: Sequence[BaseMessage], *, said_at: str = ""
) -> MemoryTurn | None:
    """Return a conversation's last turn, or None if no user message has an answer yet."""
    said = conversation_messages(_recent_messages(messages))
    asked = [position for position, one in enumerate(said) if one.role == "user"]
    if not asked or said[-1].role != "assistant":
        return None
    start = asked[-1]
    # Consecutive user messages belong to the same turn.
    while start > 0 and said[start - 1].role == "user":
        start -= 1
    corrects, praises = detect_feedback(said[-CUE_MESSAGES:])
    return MemoryTurn(
        scope=scope,
        thread_id=thread_id,
        said_at=said_at,
        messages=tuple(said[start:]),
        context=tuple(said[max(0, start - CONTEXT_MESSAGES) : start]),
        is_correction=corrects,
        is_reinforcement=praises,
    )


def _recent_messages(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """Return the end of a conversation, starting with a user message. A thread may have thousands of messages."""
    left = MAX_SCANNED_MESSAGES
    for position in range(len(messages) - 1, -1, -1):
        left -= is_user_message(messages[position])
        if not left:
            return messages[position:]
    return messages


def conversation_messages(messages: Iterable[BaseMessage]) -> list[MemoryMessage]:
    """Return user messages and final answers.

    Excludes the framework's own human messages, tool calls and results, answers that only report a model failure,
    quoted and forwarded text, messages that contain only such text or an upload, events from other systems, and the
    answers to them.
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


_COURTESIES = frozenset(
    """hi hello hey good morning afternoon evening night bye goodbye see you thanks thank thx ty cheers great nice cool
    awesome perfect lol haha please there all everyone so much very a lot again team folks welcome 你好 您好 大家好
    早上好 早 晚上好 晚安 再见 拜拜 谢谢 谢谢你 谢谢大家 多谢 感谢 辛苦了 太好了 很好 不错 哈哈 哈哈哈 嗨 こんにちは
    おはよう おはようございます こんばんは ありがとう ありがとうございます おやすみ""".split()  # noqa: SIM905 - a readable list
)
_CONSENTS = frozenset(
    """ok okay yes yeah yep no nope sure fine right got it go on continue 好 好的 好吧 嗯 嗯嗯 对 是 是的 行 可以 不
    不用 不是 知道了 明白 明白了 收到 继续 はい いいえ 了解 わかりました""".split()  # noqa: SIM905 - a readable list
)
_FIRST_PERSON = re.compile(
    r"\b(?:i|i'm|me|my|mine|we|us|our|ours)\b|我|咱|俺|本人|私|僕|うち", re.IGNORECASE
)
_WORDS = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_STATEMENT = re.compile(r"[.!](?=\s)|[。！;；\n](?=.)")
"""Matches the end of a statement if more text follows."""
_QUESTION_ENDS = ("?", "？")


def is_trivial(messages: Iterable[MemoryMessage]) -> bool:
    """Return whether messages contain nothing to learn: only courtesies, emoji, and questions about other topics.

    "Yes" or "no" counts as something to learn if the assistant had asked a question.

    >>> said = lambda *texts: [MemoryMessage(id=t, role="user", text=t) for t in texts]
    >>> [is_trivial(said(text)) for text in ("Thanks!", "👍", "谢谢", "What is 2 + 2?", "ok", "好的")]
    [True, True, True, True, True, True]
    >>> [is_trivial(said(text)) for text in ("I sail", "Can you book my flight?", "我住在上海", "Deploy on Friday")]
    [False, False, False, False]
    >>> is_trivial([MemoryMessage(id="1", role="assistant", text="Is it in May?"), *said("yes")])
    False
    """
    asked = False
    for one in messages:
        if one.role == "assistant":
            asked = "?" in one.text or "？" in one.text
        elif not _is_trivial_text(one.text, asked=asked):
            return False
    return True


def _is_trivial_text(text: str, *, asked: bool) -> bool:
    words = set(_WORDS.findall(text.casefold()))
    if words <= _COURTESIES:
        return True
    if words <= _COURTESIES | _CONSENTS:
        return not asked
    is_question = text.rstrip().endswith(_QUESTION_ENDS) and _STATEMENT.search(text) is None
    return is_question and _FIRST_PERSON.search(text) is None


def detect_feedback(said: Iterable[MemoryMessage]) -> tuple[bool, bool]:
    """Return whether users correct the agent, and whether they praise it. A correction excludes praise.

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
        text = _QUOTED.sub("", strip_framework_blocks(message.text)).strip()
        if not text or message.additional_kwargs.get("origin") == HOOK:
            return None
        author = author_of(message) or Speaker(id="")
        return MemoryMessage(
            id=_message_id(message),
            role="user",
            text=text,
            speaker_id=author.id,
            speaker=author.name,
        )
    if isinstance(message, AIMessage) and _is_final(message):
        text = without_thinking(message.text).strip()
        return MemoryMessage(id=_message_id(message), role="assistant", text=text) if text else None
    return None


def _is_final(message: AIMessage) -> bool:
    raw = message.additional_kwargs.get("tool_calls")
    return not (message.tool_calls or message.invalid_tool_calls or raw or is_fallback(message))


def _message_id(message: BaseMessage) -> str:
    return message.id or hashlib.sha256(message.text.encode("utf-8", "replace")).hexdigest()[:16]
