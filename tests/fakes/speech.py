"""A speech service on 127.0.0.1: OpenAI's `POST /v1/audio/transcriptions`, strict, with a record of every request.

    async with FakeSpeechServer(texts=["call me"]) as server:
        ... voice: {base_url: server.base_url, api_key: server.api_key, model: server.model} ...

The checks are OpenAI's (platform.openai.com/docs/api-reference/audio/createTranscription): a multipart form with
`file`, `model` and no unknown fields, the model's name, the file extension, 25 MB, a file signature that matches the
extension, the response formats. The newer models (`gpt-...`) refuse `verbose_json`.
"""

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import anyio
from aiohttp import BodyPartReader, web

MAX_BYTES = 25 * 1024 * 1024
EXTENSIONS = ("flac", "mp3", "mp4", "mpeg", "mpga", "m4a", "ogg", "wav", "webm")
FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
_FIELDS = frozenset({"file", "model", "language", "prompt", "response_format", "temperature"})
_MAGIC = {"ogg": b"OggS", "wav": b"RIFF", "flac": b"fLaC", "webm": b"\x1aE\xdf\xa3"}


@dataclass(frozen=True, kw_only=True)
class SpeechRequest:
    """A request as the server received it."""

    fields: dict[str, str]
    filename: str
    audio: bytes


@dataclass(frozen=True, kw_only=True)
class SpeechAnswer:
    """One answer.

    Attributes:
        text: The words.
        language: The language, as whisper-1 names it.
        status: An HTTP error instead, if not 200.
        error: The message in its body; None = a body that is not JSON.
        form: The form of the error: OpenAI's, or FastAPI's.
        retry_after: The header of that name; "" = none.
        holds: Wait until `release` is called or the client disconnects.
        drops: Break the connection instead.
    """

    text: str = ""
    language: str = "english"
    status: int = 200
    error: str | None = "scripted error"
    form: str = "openai"
    retry_after: str = ""
    holds: bool = False
    drops: bool = False


@dataclass
class FakeSpeechServer:
    """The server.

    Attributes:
        texts: The words of the next recordings. After those, it says how many bytes it received.
        requests: Accepted requests.
        violations: Requests that OpenAI would have refused.
        gone: The number of clients that closed the connection before their answer.
    """

    texts: Iterable[str] = ()
    model: str = "whisper-1"
    api_key: str = "sk-speech-secret"
    requests: list[SpeechRequest] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    gone: int = 0
    port: int = 0

    def __post_init__(self) -> None:
        self._answers = deque(SpeechAnswer(text=text) for text in self.texts)
        self._released = anyio.Event()
        self._runner: web.AppRunner | None = None

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def config(self) -> dict[str, Any]:
        """The `voice` section for this server."""
        return {"base_url": self.base_url, "api_key": self.api_key, "model": self.model}

    def answer(self, *answers: SpeechAnswer) -> None:
        """Queue answers."""
        self._answers.extend(answers)

    def release(self) -> None:
        """Answer the requests that are held."""
        self._released.set()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2 * MAX_BYTES)
        app.router.add_post("/v1/audio/transcriptions", self._transcribe)
        self._runner = web.AppRunner(
            app, shutdown_timeout=0.1, access_log=None, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _transcribe(self, request: web.Request) -> web.StreamResponse:
        try:
            found = await self._accepted(request)
        except _RefusedError as refusal:
            self.violations += [refusal.text] if refusal.status == 400 and not refusal.param else []
            return _error(refusal.status, refusal.text, param=refusal.param)
        self.requests.append(found)
        words = SpeechAnswer(text=f"{len(found.audio)} bytes")
        answer = self._answers.popleft() if self._answers else words
        if answer.holds:
            await self._hold()
        if answer.drops and request.transport is not None:
            request.transport.abort()
        if answer.status != 200:
            return _scripted_error(answer)
        whole = {"task": "transcribe", "language": answer.language, "duration": 1.5, "segments": []}
        is_verbose = found.fields.get("response_format") == "verbose_json"
        return web.json_response({"text": answer.text, **(whole if is_verbose else {})})

    async def _hold(self) -> None:
        try:
            await self._released.wait()
        except BaseException:
            self.gone += 1
            raise

    async def _accepted(self, request: web.Request) -> SpeechRequest:
        """Return a request that OpenAI accepts. Raises _RefusedError."""
        if request.headers.get("Authorization") != f"Bearer {self.api_key}":
            raise _RefusedError("Incorrect API key provided.", status=401)
        _require("Content-Length" in request.headers, "no Content-Length")
        _require(request.content_type == "multipart/form-data", f"type {request.content_type}")
        found = await _read_form(request)
        fields, extension = found.fields, found.filename.rpartition(".")[2]
        unknown = sorted(fields.keys() - _FIELDS)
        _require(not unknown, f"Unrecognized request arguments: {unknown}")
        _require(extension in EXTENSIONS, f"Unrecognized file format {extension}")
        is_audio = found.audio.startswith(_MAGIC.get(extension, b"")) and found.audio
        _require(bool(is_audio), f"The audio file could not be decoded as {extension}.")
        size = len(found.audio)
        _require(size <= MAX_BYTES, f"Maximum content size limit ({MAX_BYTES}) exceeded: {size}")
        model, language = fields.get("model"), fields.get("language", "en")
        _require(model == self.model, f"The model {model} does not exist")
        _require(bool(re.fullmatch("[a-z]{2,3}", language)), f"Invalid language '{language}'")
        form = fields.get("response_format", "json")
        _require(form in FORMATS, f"response_format {form}")
        if self.model.startswith("gpt-") and form != "json":
            text = (
                f"response_format '{form}' is not compatible with this model. Use 'json' instead."
            )
            raise _RefusedError(text, param="response_format")
        return found


class _RefusedError(Exception):
    def __init__(self, text: str, *, status: int = 400, param: str = "") -> None:
        super().__init__(text)
        self.text, self.status, self.param = text, status, param


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise _RefusedError(otherwise)


async def _read_form(request: web.Request) -> SpeechRequest:
    fields: dict[str, str] = {}
    filename, audio = "", b""
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader)
        if part.name == "file":
            filename, audio = part.filename or "", bytes(await part.read(decode=False))
        else:
            fields[str(part.name)] = await part.text()
    return SpeechRequest(fields=fields, filename=filename, audio=audio)


def _error(status: int, message: str, *, param: str = "") -> web.Response:
    body = {"message": message, "type": "invalid_request_error", "param": param or None}
    return web.json_response({"error": {**body, "code": None}}, status=status)


def _scripted_error(answer: SpeechAnswer) -> web.Response:
    if answer.error is None:
        return web.Response(status=answer.status, text="<html>Bad gateway</html>")
    response = (
        _error(answer.status, answer.error)
        if answer.form == "openai"
        else web.json_response({"detail": answer.error}, status=answer.status)
    )
    if answer.retry_after:
        response.headers["Retry-After"] = answer.retry_after
    return response
