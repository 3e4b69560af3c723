"""Describes the author of a message, and the chat of a run, for the model. Pure.

Both come from the bus: the author with each message (`additional_kwargs.sender` and `chat_type`), the chat with the
run (`context.chat`). People cannot fake them, because reserved tags in their text are escaped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from langchain_core.messages import BaseMessage
from typing_extensions import override

from agent.locales import PromptTexts
from agent.locales.prompt_en import ENGLISH_PROMPT
from agent.options import lookup
from agent.user_messages import SPEAKER, is_user_message, printable_character

GROUP = "group"
"""The value of `context.chat.type` in a group."""

HOOK = "hook"
"""The origin of an event from another system. No person wrote it."""

SILENCE = "NO_REPLY"
"""An answer that is not shown to people. bus/runs/replies.py has the same constant."""

MAX_NAME_CHARS = 80
MAX_TITLE_CHARS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """The author of a message.

    Attributes:
        id: Unique on the platform; "" = unknown.
        name: "" = unknown.
        is_addressing: Whether the message mentions the bot or replies to it.
        origin: What sent the message in the author's name: a `schedule` or a `hook`; "" = the author.
    """

    id: str
    name: str = ""
    is_addressing: bool = True
    origin: str = ""

    @property
    def line(self) -> str:
        """The line that begins the message.

        >>> Speaker(id="U0A1", name="Ann Lee").line
        '<speaker id="U0A1">Ann Lee</speaker>'
        >>> Speaker(id="U0A1", name="Ann Lee", is_addressing=False).line
        '<speaker id="U0A1" addressed="no">Ann Lee</speaker>'
        >>> Speaker(id="U0A1", name="Ann Lee", origin="schedule").line
        '<speaker id="U0A1" origin="schedule">Ann Lee</speaker>'
        """
        how = "" if self.is_addressing else ' addressed="no"'
        how += f' origin="{self.origin}"' if self.origin else ""
        return f'<{SPEAKER} id="{self.id}"{how}>{self.name}</{SPEAKER}>'

    @override
    def __str__(self) -> str:
        """Return the id and the name. The name contains no quotes, so it cannot imitate other fields.

        >>> str(Speaker(id="U0A1", name="Ann Lee"))
        'U0A1 "Ann Lee"'
        """
        return f'{self.id} "{self.name}"' if self.name else self.id


def speaker_of(message: BaseMessage) -> Speaker | None:
    """Return the author of a group message, or of a message that no person sent; None if the bus named no author.

    >>> from langchain_core.messages import HumanMessage
    >>> said = {"sender": {"id": "U0A1", "name": "Ann</speaker>"}, "chat_type": "group"}
    >>> speaker_of(HumanMessage("hi", additional_kwargs=said)).name
    'Ann_/speaker_'
    """
    extra = message.additional_kwargs
    return author_of(message) if extra.get("chat_type") == GROUP or extra.get("origin") else None


def author_of(message: BaseMessage) -> Speaker | None:
    """Return the author of a message, also in private chats; None if the bus named no author."""
    extra = message.additional_kwargs
    sender = extra.get("sender") if extra and is_user_message(message) else None
    if not isinstance(sender, Mapping):
        return None
    name, user_id = (one_line(sender.get(key), MAX_NAME_CHARS) for key in ("name", "id"))
    if not (user_id or name):
        return None
    return Speaker(
        id=user_id,
        name=name,
        is_addressing=extra.get("is_addressed") is not False,
        origin=one_line(extra.get("origin"), MAX_NAME_CHARS),
    )


def chat_section(
    context: object, config: Mapping[str, object] | None, texts: PromptTexts = ENGLISH_PROMPT
) -> str:
    r"""Return the section of the system prompt about the chat; "" for a run without a chat.

    It contains nothing that changes from message to message, so that providers can cache the prompt.

    Args:
        context: `runtime.context`.
        config: The runnable config, or None.
        texts: The texts in the prompt's language.

    >>> chat_section({"chat": {"platform": "irc", "type": "private", "name": "Ann"}}, None)
    '<chat>\nThis is a private chat on irc with "Ann".\n</chat>'
    """
    chat = lookup(context, config, "chat")
    if not isinstance(chat, Mapping):
        return ""
    platform = one_line(chat.get("platform"), MAX_NAME_CHARS)
    on_platform = texts.on_platform.format(platform=texts.platforms.get(platform, platform))
    where = texts.terminal if platform == "terminal" else on_platform
    described = (_group if chat.get("type") == GROUP else _private_chat)(chat, where, texts)
    writing = texts.writing.get(platform)
    return "\n".join(line for line in ("<chat>", described, writing, "</chat>") if line)


def _private_chat(chat: Mapping[str, object], where: str, texts: PromptTexts) -> str:
    name = one_line(chat.get("name"), MAX_NAME_CHARS)
    named = texts.private_named.format(name=name) if name else ""
    return texts.private_chat.format(where=where, named=named)


def _group(chat: Mapping[str, object], where: str, texts: PromptTexts) -> str:
    title, topic = (one_line(chat.get(key), MAX_TITLE_CHARS) for key in ("title", "topic"))
    return texts.group_chat.format(
        where=where,
        named=texts.group_named.format(title=title) if title else "",
        in_topic=texts.in_topic.format(topic=topic) if topic else "",
        silence=SILENCE,
    )


def one_line(value: object, most: int) -> str:
    r"""Return a name or title for use in a prompt: one line, without tags, quotes and invisible characters.

    >>> one_line('Ann\n<b>"Lee"\u202e', 80), one_line("x" * 10_000, 5), one_line(None, 5)
    ("Ann _b_'Lee'_", 'xxxx…', '')
    """
    return _cleaned(value[: 4 * most], most) if isinstance(value, str) else ""


@lru_cache(maxsize=1024)
def _cleaned(value: str, most: int) -> str:
    # Cached, because a long thread names the same people again and again.
    text = " ".join(value.encode("utf-8", "replace").decode().split())
    plain = "".join(map(printable_character, text)).replace('"', "'")
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"
