"""Pictures of chats: messages of the real service at the simulated platforms, in each platform's look."""

import re
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from html import escape
from pathlib import Path

import anyio

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.service import serving, with_model
from tests.lab.pictures.svg import INK, MONO, MUTED, picture
from tests.people.chat_user import ChatUser
from tests.people.feishu import FeishuPrivateUser
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackDirectUser
from tests.people.telegram import TelegramPrivateUser

REQUEST, CHOICE = "Please have the bike shed painted", "Green"
QUESTION = {
    "question": "Which color should it have?",
    "clarification_type": "approach_choice",
    "context": "The paint has to be ordered.",
    "options": ["Red", CHOICE, "Blue"],
}
ANSWER = "Green it is. The order is in `orders/paint.md`; the painters can come on Monday."
LAST_WORD = "Monday"
THINKING_S = 2.0
"""How long the model thinks before it asks, seconds, so that the indicator is shown."""

COLUMNS = 36
"""Characters in a line of a message."""

PANEL, GAP, LINE, SIZE = 340, 14, 18, 13
"""Width of a panel, gap, line height and font size, pixels."""


@dataclass(frozen=True)
class ChatMessage:
    """A message as people see it. `author`: "" is the person."""

    text: str
    buttons: tuple[str, ...] = ()
    author: str = "Parley"


@dataclass(frozen=True)
class Moment:
    """A chat at one point in time."""

    caption: str
    messages: tuple[ChatMessage, ...]


@dataclass(frozen=True)
class Look:
    """The colors of a platform. `has_bubbles`: messages are in bubbles, the person's on the right."""

    page: str
    own: str
    bot: str
    button: str
    has_bubbles: bool


LOOKS = {
    "slack": Look("#ffffff", "#ffffff", "#ffffff", "#ffffff", has_bubbles=False),
    "telegram": Look("#d5e3ea", "#e3fdd4", "#ffffff", "#b9ccd8", has_bubbles=True),
    "feishu": Look("#f2f3f5", "#cfe0ff", "#ffffff", "#ffffff", has_bubbles=True),
}


@cache
def record_chats() -> dict[str, list[Moment]]:
    """Ask the agent for something on each platform, and answer its question. Return the chat by platform."""
    return anyio.run(_record)


async def _record() -> dict[str, list[Moment]]:
    with tempfile.TemporaryDirectory() as folder:
        async with PlatformServers() as platforms, FakeModelServer(answer=_answer) as model:
            config = {**with_model(model.base_url), "channels": platforms.channels}
            async with serving(Path(folder), config, *LOOKS):
                kinds = (SlackDirectUser, TelegramPrivateUser, FeishuPrivateUser)
                users = [user for user in platforms.users if isinstance(user, kinds)]
                return {user.channel: await _talk(user) for user in users}


def _answer(request: ModelRequest) -> ModelReply:
    if REQUEST in request.last_user_text and request.messages[-1]["role"] == "user":
        call = ToolCall("ask_clarification", QUESTION, id="question")
        return ModelReply(calls=(call,), first_token_delay_s=THINKING_S)
    return ModelReply(text=ANSWER)


async def _talk(user: ChatUser) -> list[Moment]:
    """Return the moments of the chat, including the first version of an answer that grows."""
    asked, moments = ChatMessage(REQUEST, author=""), []
    await user.send(REQUEST)
    await eventually(lambda: CHOICE in user.button_labels())
    if isinstance(user, FeishuPrivateUser):
        (card,) = user._feishu.answers(user.chat)
        first_look = replace(card, content=card.edits[0])
        first = ChatMessage(first_look.text, tuple(first_look.buttons))
        moments.append(Moment("while it works", (asked, first)))
    (question,) = user.bot_messages()
    moments.append(
        Moment("a question", (asked, ChatMessage(question, tuple(user.button_labels()))))
    )
    await user.press_newest(CHOICE)
    await eventually(lambda: any(LAST_WORD in text for text in user.bot_messages()))
    await eventually(lambda: any(f"✓ {CHOICE}" in text for text in user.bot_messages()))
    await eventually(lambda: not user.button_labels())
    answers = (ChatMessage(text) for text in user.bot_messages())
    moments.append(Moment("after the button was pressed", (asked, *answers)))
    return moments


def chat_picture(platform: str) -> str:
    """Draw the chat on a platform."""
    return draw(platform, record_chats()[platform], LOOKS[platform])


CHAT_PICTURES: dict[str, Callable[[], str]] = {
    f"{platform}.svg": partial(chat_picture, platform) for platform in LOOKS
}


def draw(platform: str, moments: Sequence[Moment], look: Look) -> str:
    """Draw moments of a chat side by side."""
    drawn = [_panel(moment, look) for moment in moments]
    height = max(bottom for _, bottom in drawn) + GAP
    parts = []
    for number, (moment, (content, _)) in enumerate(zip(moments, drawn, strict=True)):
        left = GAP + number * (PANEL + GAP)
        parts += [
            f'<g transform="translate({left} 34)">',
            f'<text x="4" y="-12" font-size="12" fill="{MUTED}">{escape(moment.caption)}</text>',
            f'<rect width="{PANEL}" height="{height}" rx="8" fill="{look.page}" stroke="#d0d5dd"/>',
            content,
            "</g>",
        ]
    width = GAP + len(moments) * (PANEL + GAP)
    title = f"Parley in {platform.capitalize()}: " + "; ".join(one.caption for one in moments)
    return picture(width, height + 34 + GAP, title, *parts)


def _panel(moment: Moment, look: Look) -> tuple[str, int]:
    """Return the messages of a panel, and where they end."""
    parts, top = [], GAP
    for message in moment.messages:
        draw_message = _bubble if look.has_bubbles else _line_of_talk
        part, top = draw_message(message, look, top)
        parts.append(part)
    return "\n".join(parts), top


def _bubble(message: ChatMessage, look: Look, top: int) -> tuple[str, int]:
    """Draw a message as Telegram and Feishu do. Return it, and where the next one begins."""
    lines = wrapped(message.text)
    width = min(PANEL - 2 * GAP, 24 + max(len(line) for line in lines) * 8)
    if message.buttons:
        width = PANEL - 2 * GAP
    left = GAP if message.author else PANEL - GAP - width
    height = len(lines) * LINE + 16
    inside = look.button == look.bot  # a card has its buttons inside
    whole = height + (34 if message.buttons and inside else 0)
    fill = look.bot if message.author else look.own
    parts = [
        f'<rect x="{left}" y="{top}" width="{width}" height="{whole}" rx="10" fill="{fill}"/>',
        _lines(lines, left + 12, top + 8),
    ]
    bottom = top + height
    if message.buttons:
        row = (left + (12 if inside else 0), bottom + (0 if inside else 4))
        parts.append(_buttons(message.buttons, look, row, width - (24 if inside else 0)))
        bottom += 34
    return "\n".join(parts), bottom + 10


def _line_of_talk(message: ChatMessage, look: Look, top: int) -> tuple[str, int]:
    """Draw a message as Slack does. Return it, and where the next one begins."""
    lines = wrapped(message.text)
    name, color = (message.author, "#4a154b") if message.author else ("Ann", "#2b7a78")
    badge = ' <tspan font-size="10" fill="#616061">APP</tspan>' if message.author else ""
    parts = [
        f'<rect x="{GAP}" y="{top}" width="30" height="30" rx="6" fill="{color}"/>',
        f'<text x="{GAP + 15}" y="{top + 20}" font-size="14" fill="#fff" text-anchor="middle">{name[0]}</text>',
        f'<text x="{GAP + 40}" y="{top + 11}" font-weight="700">{name}{badge}</text>',
        _lines(lines, GAP + 40, top + 16),
    ]
    bottom = top + 18 + len(lines) * LINE
    if message.buttons:
        parts.append(_buttons(message.buttons, look, (GAP + 40, bottom + 4), PANEL - 2 * GAP - 40))
        bottom += 36
    return "\n".join(parts), bottom + 12


def _buttons(labels: Sequence[str], look: Look, at: tuple[int, int], width: int) -> str:
    """Draw a row of buttons from a corner."""
    each = (width - 6 * (len(labels) - 1)) / max(len(labels), 2)
    parts = []
    for number, label in enumerate(labels):
        left = at[0] + number * (each + 6)
        parts.append(
            f'<rect x="{left:g}" y="{at[1]}" width="{each:g}" height="26" rx="6" fill="{look.button}" '
            f'stroke="#98a2b3"/><text x="{left + each / 2:g}" y="{at[1] + 17}" font-size="12" '
            f'text-anchor="middle">{escape(label)}</text>'
        )
    return "".join(parts)


def _lines(lines: Sequence[str], left: int, top: int) -> str:
    return "\n".join(
        f'<text x="{left}" y="{top + number * LINE + SIZE}" fill="{INK}">{_code(line)}</text>'
        for number, line in enumerate(lines)
        if line
    )


def _code(line: str) -> str:
    """Return a line in which text between backticks has the code font."""
    code = rf'<tspan font-family="{MONO}" font-size="12" fill="#c0334d">\1</tspan>'
    return re.sub("`([^`]+)`", code, escape(line, quote=False))


def wrapped(text: str) -> list[str]:
    """Return a message's lines, as wide as a bubble.

    >>> wrapped("one\\n\\ntwo")
    ['one', '', 'two']
    """
    return [part for line in text.split("\n") for part in textwrap.wrap(line, COLUMNS) or [""]]
