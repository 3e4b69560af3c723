"""A conversation as a Markdown document: who said what, without what the framework and the tools said. Pure."""

from collections.abc import Iterator, Sequence

from bus.history.user_messages import is_user_message, user_text
from bus.locales import Messages
from bus.runs.stream import Message, text_of

MAX_CHARS = 1_000_000
"""Longest document; of a longer conversation the newest part is kept."""

MAX_NAMES = 20
"""Names of tools and files that one message shows."""

_QUESTION = "ask_clarification"


def transcript(messages: Sequence[Message], texts: Messages, *, person: str) -> str:
    """Return a conversation as Markdown; "" if nothing was said. `person` is what the people in it are called."""
    said = [
        (person if is_user_message(message) else "Parley", text)
        for message in messages
        if (text := _said(message, texts))
    ]
    if not said:
        return ""
    kept = _newest(said)
    head = [f"# {texts.transcript_title}"]
    if kept != said:
        head.append(f"*{texts.transcript_left_out}*")
    return "\n\n".join([*head, *_headed(kept)]) + "\n"


def _newest(said: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return what was said last, as much as there is room for."""
    kept: list[tuple[str, str]] = []
    room = MAX_CHARS
    for who, text in reversed(said):
        if room < len(text):
            break
        kept.append((who, text))
        room -= len(text)
    if not kept:
        who, text = said[-1]
        kept = [(who, text[-MAX_CHARS:])]
    return kept[::-1]


def _headed(said: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield who spoke and what; one who goes on speaking is named once."""
    speaker = ""
    for who, text in said:
        yield text if who == speaker else f"## {who}\n\n{text}"
        speaker = who


def _said(message: Message, texts: Messages) -> str:
    kind = str(message.get("type") or "")
    if is_user_message(message):
        return _joined(user_text(message), texts.word_files, _file_names(message))
    if kind == "tool" and message.get("name") == _QUESTION:
        return text_of(message).strip()
    if kind in ("ai", "assistant"):
        calls = [call for call in message.get("tool_calls") or [] if isinstance(call, dict)]
        names = [str(call.get("name") or "") for call in calls if call.get("name") != _QUESTION]
        return _joined(text_of(message).strip(), texts.word_used, names)
    return ""


def _file_names(message: Message) -> list[str]:
    extra = message.get("additional_kwargs") or {}
    files = [file for file in extra.get("files") or [] if isinstance(file, dict)]
    return [str(file.get("filename") or "") for file in files]


def _joined(text: str, word: str, names: Sequence[str]) -> str:
    known = list(dict.fromkeys(name for name in names if name))[:MAX_NAMES]
    line = f"*{word}: {', '.join(f'`{name}`' for name in known)}*" if known else ""
    return "\n\n".join(part for part in (text, line) if part)
