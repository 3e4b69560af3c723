"""SpeechEndpoint: transcribes with an OpenAI-compatible `/audio/transcriptions` endpoint."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path, PurePath
from typing import Any, Literal, NamedTuple

import anyio
import httpx

from bus.characters import clean
from bus.errors import SpeechError
from bus.file_form import FileForm
from bus.messages import Attachment, Transcript, parse_duration
from bus.retry import Backoff
from bus.voice.config import VoiceConfig

log = logging.getLogger(__name__)

EXTENSIONS = ("flac", "mp3", "mp4", "mpeg", "mpga", "m4a", "ogg", "wav", "webm")
"""File name extensions that OpenAI accepts (API reference, audio/createTranscription). It goes by the file name."""

_SYNONYMS = {
    "oga": "ogg", "opus": "ogg", "x-wav": "wav", "vnd.wave": "wav", "x-m4a": "m4a", "x-flac": "flac",
    "m4v": "mp4",
}  # fmt: skip
"""Extensions and types of the same formats. Voice messages of Telegram (.oga) and Feishu (.opus) are Ogg files."""

TRANSCRIBE_S = 120.0
"""Default time limit for a recording, seconds. A server without a GPU needs about a tenth of the recording's length."""

ATTEMPTS = 3

MAX_SENTENCE_CHARS = 300
"""How much of an error message to keep, characters."""

_CONNECT_S = 10.0


class _Recording(NamedTuple):
    audio: Path
    name: str
    size_bytes: int


class SpeechEndpoint:
    """One endpoint.

    Args:
        config: Its address, key, model and language.
        client: Calls it.
        limit_s: Time limit for a recording, including retries, seconds.
    """

    def __init__(
        self, config: VoiceConfig, client: httpx.AsyncClient, limit_s: float = TRANSCRIBE_S
    ) -> None:
        self._config, self._client, self._limit_s = config, client, limit_s
        self._format: Literal["verbose_json", "json"] = "verbose_json"
        self._backoff = Backoff(first_s=1.0, cap_s=8.0)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, config: VoiceConfig, *, limit_s: float = TRANSCRIBE_S
    ) -> AsyncIterator["SpeechEndpoint"]:
        """Yield the endpoint of a configuration with a `base_url`."""
        headers = {"Authorization": f"Bearer {config.api_key}"} if config.api_key else {}
        timeout = httpx.Timeout(limit_s, connect=_CONNECT_S)
        async with httpx.AsyncClient(headers=headers, timeout=timeout) as client:
            yield cls(config, client, limit_s)

    async def transcribe(self, file: Attachment, audio: Path, size_bytes: int) -> Transcript:
        """Transcribe a recording. See `SpeechEngine.transcribe`."""
        extension = recording_extension(file.name, file.mime)
        if not extension:
            raise SpeechError("format", f"{file.name} ({file.mime})")
        recording = _Recording(audio, f"speech.{extension}", size_bytes)
        try:
            with anyio.fail_after(self._limit_s):
                return await self._with_retries(recording)
        except TimeoutError:
            raise SpeechError("slow", f"no answer within {self._limit_s:.0f} s") from None

    async def _with_retries(self, file: _Recording) -> Transcript:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._ask(file)
            except SpeechError as error:
                log.info("speech: attempt %d failed: %s", attempt, error.detail)
                if not error.retryable or attempt == ATTEMPTS:
                    raise
                wait_s = error.retry_after_s
                await anyio.sleep(self._backoff.wait_s(attempt) if wait_s is None else wait_s)

    async def _ask(self, file: _Recording) -> Transcript:
        """Send one request, and a second one if the model supports only the simple response format."""
        answer = await self._post(file)
        if _refuses_format(answer) and self._format == "verbose_json":
            # OpenAI's newer models do not return the language and the duration.
            self._format = "json"
            answer = await self._post(file)
        if answer.is_error:
            raise _error_from(answer)
        return self._parse(answer)

    async def _post(self, file: _Recording) -> httpx.Response:
        fields = {"model": self._config.model, "response_format": self._format}
        if self._config.language:
            fields["language"] = self._config.language
        url = f"{self._config.base_url}/audio/transcriptions"
        body = FileForm("file", file.name, file.audio, size_bytes=file.size_bytes, fields=fields)
        try:
            return await self._client.post(url, content=body.chunks(), headers=body.headers)
        except httpx.HTTPError as error:
            detail = f"{type(error).__name__}: {error}"
            raise SpeechError("unavailable", detail, retryable=True) from error

    def _parse(self, answer: httpx.Response) -> Transcript:
        body = _json_object(answer)
        text, language = body.get("text"), body.get("language")
        if not isinstance(text, str):
            raise SpeechError("refused", "the answer is not a transcript")
        return Transcript(
            text=clean(text).strip(),
            language=language if isinstance(language, str) else self._config.language or "",
            source=self._config.model,
            duration_s=parse_duration(body.get("duration")),
        )


def recording_extension(name: str, mime: str) -> str:
    """Return the extension to send to the endpoint, from a recording's name, else from its type; "" = unsupported.

    >>> [recording_extension(name, "audio/ogg") for name in ("a.m4a", "voice.oga", "audio-3s.opus", "voice")]
    ['m4a', 'ogg', 'ogg', 'ogg']
    >>> recording_extension("a.amr", "audio/amr")
    ''
    """
    for hint in (PurePath(name).suffix.removeprefix(".").lower(), mime.partition("/")[2].lower()):
        known = _SYNONYMS.get(hint, hint)
        if known in EXTENSIONS:
            return known
    return ""


def _refuses_format(answer: httpx.Response) -> bool:
    bad = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
    return answer.status_code in bad and "response_format" in answer.text


def _error_from(answer: httpx.Response) -> SpeechError:
    status = answer.status_code
    detail = f"HTTP {status}: {_sentence(answer)}"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        after = answer.headers.get("retry-after", "")
        wait_s = float(after) if after.isdecimal() else None
        return SpeechError("unavailable", detail, retryable=True, retry_after_s=wait_s)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return SpeechError("unavailable", detail, retryable=True)
    return SpeechError("refused", detail)


def _sentence(answer: httpx.Response) -> str:
    """Return the server's message, in OpenAI's or FastAPI's format, else the body."""
    body = _json_object(answer)
    error = body.get("error")
    said = error.get("message") if isinstance(error, dict) else error or body.get("detail")
    words = said if isinstance(said, str) else answer.text
    return " ".join(words.split())[:MAX_SENTENCE_CHARS]


def _json_object(answer: httpx.Response) -> Mapping[str, Any]:
    try:
        body = answer.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
