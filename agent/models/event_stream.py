"""Parses servers' answers: event streams, JSON without events, and errors in any form. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from agent.models.answers import parse_json

_DONE = b"[DONE]"
_OTHER_FIELDS = (b":", b"id:", b"retry:")
_ERROR_TEXTS = ("message", "error_msg", "msg", "detail", "status_msg", "error_description", "error")
_ERROR_CODES = ("code", "error_code", "status_code", "status", "type")
_TEXT_CHARS = 2_000
"""Maximum length of a server's text in an error, characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerError:
    """An error that a server sent instead of an answer or in the middle of one.

    Attributes:
        message: Its text.
        code: Its code, a number or a word; "" = none.
        kind: Its type; "" = none.
    """

    message: str
    code: str | int = ""
    kind: str = ""


class AnswerFailed(Exception):
    """A server sent an error with status 200."""

    def __init__(self, error: ServerError) -> None:
        super().__init__(error.message)
        self.error = error


class NoAnswer(Exception):
    """A server sent something other than an answer, such as an HTML page."""


class EventReader:
    """Parses the lines of one answer into events.

    Attributes:
        is_done: Whether the server marked the answer as complete.
    """

    def __init__(self) -> None:
        self.is_done = False
        self._data: list[bytes] = []
        self._event = b""
        self._bare: list[bytes] = []

    def read(self, lines: Sequence[bytes]) -> Iterator[Mapping[str, Any]]:
        """Yield the chunks that these lines complete.

        Raises:
            AnswerFailed, NoAnswer: An event is an error, or not JSON.
        """
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].strip())
            elif line.isspace() or not line:
                if self._data:
                    yield from self._dispatch()
                self._event = b""
            elif line.startswith(b"event:"):
                self._event = line[6:].strip()
            elif not line.startswith(_OTHER_FIELDS):
                yield from self._read_bare(line)

    def end(self, rest: bytes) -> Iterator[Mapping[str, Any]]:
        """Yield the chunks of an unterminated last line, and of a body without events. Raises the errors of `read`."""
        yield from self.read([rest, b""])
        if self.is_done or not self._bare:
            return
        text = b"\n".join(self._bare)
        try:
            value = parse_json(text)
        except ValueError:
            raise NoAnswer(_decoded(text)) from None
        yield from _checked(value)

    def _dispatch(self) -> Iterator[Mapping[str, Any]]:
        data, self._data = b"\n".join(self._data), []
        is_error = b"error" in self._event.lower()
        try:
            value = parse_json(data)
        except ValueError:
            # The data is the end mark, several events without an empty line between them, or not JSON.
            for line in data.split(b"\n"):
                if line.startswith(_DONE):
                    self.is_done = True
                elif line:
                    yield from _checked(_parsed(line, is_error=is_error), is_error=is_error)
            return
        if type(value) is dict and value.get("choices") and not is_error and b"error" not in data:
            yield value  # fast path for nearly all events
        else:
            yield from _checked(value, is_error=is_error)

    def _read_bare(self, line: bytes) -> Iterator[Mapping[str, Any]]:
        """Read a line outside events: a JSON document, or part of a longer one."""
        line = line.strip().removeprefix(b"\xef\xbb\xbf")
        if not self._bare and line.startswith(b"{") and line.endswith(b"}"):
            try:
                value = parse_json(line)
            except ValueError:
                pass
            else:
                yield from _checked(value)
                return
        if line.startswith(_DONE):
            self.is_done = True
        elif line:
            self._bare.append(line)


def read_whole(body: bytes) -> list[Mapping[str, Any]]:
    """Return the chunks of an answer that was not requested as a stream. Raises the errors of `EventReader.read`."""
    reader = EventReader()
    *lines, rest = body.split(b"\n")
    return [*reader.read(lines), *reader.end(rest)]


def find_error(value: Mapping[str, Any], *, is_error: bool = False) -> ServerError | None:
    """Return the error in a chunk or body; None if there is no error.

    Args:
        value: The chunk or body.
        is_error: Whether the event's name says that it is an error.
    """
    error = value.get("error")
    if error:
        return _error(error, value)
    if is_error or value.get("object") == "error" or value.get("type") == "error":
        return _error(value, value)
    choices = value.get("choices")
    if isinstance(choices, list) and choices:
        return _choice_error(choices[0], value)
    base = value.get("base_resp")  # MiniMax
    if isinstance(base, dict) and base.get("status_code"):
        return _error(base, base)
    has_text = any(value.get(name) for name in _ERROR_TEXTS)
    return _error(value, value) if has_text and not value.get("usage") else None


def _choice_error(choice: object, around: Mapping[str, Any]) -> ServerError | None:
    if not isinstance(choice, dict):
        return None
    if choice.get("error"):
        return _error(choice["error"], around)
    is_error = choice.get("finish_reason") == "error"
    return ServerError(message="The answer ended with an error.") if is_error else None


def _checked(value: object, *, is_error: bool = False) -> Iterator[Mapping[str, Any]]:
    """Yield a chunk. Raises AnswerFailed if the value is an error or not a chunk."""
    if isinstance(value, list):  # Google's errors
        for one in value:
            yield from _checked(one, is_error=is_error)
    elif not isinstance(value, dict):
        raise AnswerFailed(ServerError(message=str(value)[:_TEXT_CHARS] or "unexpected data"))
    elif error := find_error(value, is_error=is_error):
        raise AnswerFailed(error)
    else:
        yield value


def _error(error: object, around: Mapping[str, Any]) -> ServerError:
    if not isinstance(error, dict):
        error = {**around, "message": str(error)}
    message = next((error[name] for name in _ERROR_TEXTS if error.get(name)), error)
    codes = (error.get(name) for name in _ERROR_CODES)
    return ServerError(
        message=str(message)[:_TEXT_CHARS],
        code=next((one for one in codes if _is_code(one)), ""),
        kind=str(error.get("type") or error.get("status") or ""),
    )


def _is_code(value: object) -> TypeGuard[str | int]:
    return bool(value) and isinstance(value, str | int) and value != "error"


def _parsed(line: bytes, *, is_error: bool) -> Any:  # noqa: ANN401 - JSON
    try:
        return parse_json(line)
    except ValueError:
        if is_error:
            raise AnswerFailed(ServerError(message=_decoded(line))) from None
        raise NoAnswer(_decoded(line)) from None


def _decoded(text: bytes) -> str:
    return text[:_TEXT_CHARS].decode("utf-8", "replace")
