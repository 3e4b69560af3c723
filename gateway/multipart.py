"""Streaming parser for multipart forms. Does not buffer files in memory or on disk."""

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from fastapi import HTTPException
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from agent.uploads.batch import IncomingFile

FILES_FIELD = "files"
"""The form field that holds the files."""

NOT_A_FORM = f"Send files as multipart/form-data, in the field `{FILES_FIELD}`."
MALFORMED_FORM = "The body is not a complete multipart form."


@dataclass(frozen=True, slots=True)
class _PartStart:
    """The start of a part, with its Content-Disposition header."""

    disposition: bytes


@dataclass(frozen=True, slots=True)
class _PartEnd:
    """The end of a part."""


_FormEvent = _PartStart | _PartEnd | bytes


class MultipartForm:
    """A multipart form that is parsed as it arrives.

    Args:
        content_type: The request's header.
        body: The request's body.

    Attributes:
        count: Number of files found so far.

    Raises:
        HTTPException: 400 if the content type is not a multipart form.
    """

    def __init__(self, content_type: str, body: AsyncIterator[bytes]) -> None:
        kind, options = parse_options_header(content_type)
        if kind != b"multipart/form-data" or not options.get(b"boundary"):
            raise HTTPException(400, NOT_A_FORM)
        self.count = 0
        self._body = body
        self._events = _ParserEvents()
        try:
            self._parser = self._events.parser(options[b"boundary"])
        except FormParserError:
            raise HTTPException(400, MALFORMED_FORM) from None

    async def files(self) -> AsyncIterator[IncomingFile]:
        """Yield the field's files. Read each one before requesting the next: unread data is skipped.

        Raises:
            HTTPException: 400 if the body is malformed or ends early.
        """
        while (event := await self._next()) is not None:
            if not isinstance(event, _PartStart):
                continue
            name = _parse_filename(event.disposition)
            if name is not None:
                self.count += 1
                yield IncomingFile(filename=name, chunks=self._chunks())

    async def _chunks(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._next(), bytes):
            yield event

    async def _next(self) -> _FormEvent | None:
        """Return the next event of the form; None at its end."""
        while not self._events.pending:
            if self._events.is_complete:
                return None
            chunk = await anext(self._body, b"")
            if not chunk:
                raise HTTPException(400, MALFORMED_FORM)
            try:
                self._parser.write(chunk)
            except FormParserError:
                raise HTTPException(400, MALFORMED_FORM) from None
        return self._events.pending.popleft()


class _ParserEvents:
    """Collects the parser's callbacks as events, in order."""

    def __init__(self) -> None:
        self.pending: deque[_FormEvent] = deque()
        self.is_complete = False
        self._name, self._value = bytearray(), bytearray()
        self._disposition = b""

    def parser(self, boundary: bytes) -> MultipartParser:
        """Return a parser that appends to `pending`."""
        return MultipartParser(
            boundary,
            {
                "on_header_field": self._on_name,
                "on_header_value": self._on_value,
                "on_header_end": self._on_header,
                "on_headers_finished": self._on_part,
                "on_part_data": self._on_data,
                "on_part_end": lambda: self.pending.append(_PartEnd()),
                "on_end": self._on_end,
            },
        )

    def _on_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = bytes(self._value)
        self._name, self._value = bytearray(), bytearray()

    def _on_part(self) -> None:
        self.pending.append(_PartStart(self._disposition))
        self._disposition = b""

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        self.pending.append(bytes(data[start:end]))

    def _on_end(self) -> None:
        self.is_complete = True


def _parse_filename(disposition: bytes) -> str | None:
    """Return the filename of a part; None if it is not one of the field's files."""
    _, options = parse_options_header(disposition)
    name = options.get(b"filename")
    if name is None or options.get(b"name") != FILES_FIELD.encode():
        return None
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return name.decode("latin-1")
