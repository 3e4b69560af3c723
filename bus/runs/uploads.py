"""Attachment uploads: downloads files from their platform and puts them into the uploads of a thread."""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import anyio
from anyio import to_thread

from bus.errors import DeliveryError, FileTooLarge
from bus.locales import Messages
from bus.messages import Attachment, InboundMessage
from bus.platform import Adapter, SupportsDownloads
from bus.retry import Backoff
from bus.runs.port import ThreadFiles
from bus.temporary_files import temporary_file_error, temporary_folder
from store.inbox import InboxRow

log = logging.getLogger(__name__)

MAX_FILES = 10
"""Maximum number of files per message. The gateway accepts no more in one request."""

MAX_FILE_BYTES = 50_000_000
"""Maximum size of a file, bytes. The gateway has the same limit."""

FILE_S = 120.0
"""Time limit for one file, including retries, seconds."""

ATTEMPTS = 3

ReadSpeech = Callable[[Attachment, Path, str], Awaitable[str]]
"""Returns the text for the agent about a recording, from its bytes and its name in the thread; "" = none."""

_PICTURES = {b"\x89PNG\r\n\x1a\n": ".png", b"\xff\xd8\xff": ".jpg", b"GIF8": ".gif"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentUploadResult:
    """The uploaded files of a message.

    Attributes:
        files: The files that the thread now has, in the form of a human message's `additional_kwargs.files`.
        problems: One line for each file that is missing.
        renamed: Names of files that got another suffix because of their bytes, by the result of `upload_filename`
            without bytes.
        speech: The words of each recording, or why there are none, by its name in the thread.
    """

    files: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    speech: Mapping[str, str] = field(default_factory=dict)

    def prompt(self, text: str, texts: Messages) -> str:
        """Return the prompt: the text, the words of recordings, a line for each missing file.

        If there is no text, it names the other files.

        In labels of captions (bus/inbound/gestures.py), file names are replaced with the names in the thread.
        """
        for name, kept in self.renamed.items():
            text = text.replace(f"[{name}]", f"[{kept}]")
        lines = [*self.speech.values(), *self.problems]
        names = [str(file["filename"]) for file in self.files]
        silent = ", ".join(name for name in names if name not in self.speech)
        if not text and silent:
            lines.insert(0, texts.upload_attached.format(names=silent))
        return "\n".join([text, *lines] if text else lines)


class FileUploader:
    """Uploads attachments to the agent's threads.

    Args:
        files: The files of threads.
        speech_of: Returns the function that transcribes the recordings of a message.
    """

    def __init__(
        self, files: ThreadFiles, speech_of: Callable[[InboxRow, InboundMessage], ReadSpeech]
    ) -> None:
        self._files, self._speech_of = files, speech_of
        self._backoff = Backoff(first_s=0.5, cap_s=4.0)

    async def upload(
        self, adapter: Adapter, thread_id: str, row: InboxRow, inbound: InboundMessage
    ) -> AttachmentUploadResult:
        """Download a message's files and upload them to the thread, one by one. The result names files that failed."""
        attachments, texts = inbound.attachments, inbound.reply_target.texts
        read_speech = self._speech_of(row, inbound)
        files: list[Mapping[str, Any]] = []
        problems: list[str] = []
        renamed: dict[str, str] = {}
        speech: dict[str, str] = {}

        async def read(file: Attachment, copy: Path, name: str) -> None:
            if words := await read_speech(file, copy, name):
                speech[name] = words

        for file in attachments[:MAX_FILES]:
            found = await self._upload_one(adapter, thread_id, file, texts, read)
            if isinstance(found, str):
                problems.append(_problem(file, found, texts))
            else:
                files.append(found)
                if (name := upload_filename(file)) != found["filename"]:
                    renamed[name] = str(found["filename"])
        problems += [
            _problem(file, texts.upload_too_many.format(count=MAX_FILES), texts)
            for file in attachments[MAX_FILES:]
        ]
        return AttachmentUploadResult(
            files=tuple(files), problems=tuple(problems), renamed=renamed, speech=speech
        )

    async def _upload_one(
        self,
        adapter: Adapter,
        thread_id: str,
        file: Attachment,
        texts: Messages,
        read: Callable[[Attachment, Path, str], Awaitable[None]],
    ) -> Mapping[str, Any] | str:
        """Return the uploaded file, or why it is missing. `read` receives the bytes of a recording."""
        if not isinstance(adapter, SupportsDownloads):
            return ""
        if file.size_bytes is not None and file.size_bytes > MAX_FILE_BYTES:
            return _reason(FileTooLarge(MAX_FILE_BYTES), texts)
        try:
            async with temporary_folder() as folder:
                copy = folder / "file"
                with anyio.fail_after(FILE_S):
                    kept = await self._upload_with_retries(adapter, thread_id, file, copy)
                if file.is_speech:
                    await read(file, copy, str(kept["filename"]))
                return kept
        except DeliveryError as error:
            return _reason(error, texts)
        except TimeoutError:
            return texts.upload_too_slow

    async def _upload_with_retries(
        self, adapter: SupportsDownloads, thread_id: str, file: Attachment, copy: Path
    ) -> Mapping[str, Any]:
        """Download and upload a file, retrying retryable failures. Raises DeliveryError."""
        attempt = 0
        while True:
            attempt += 1
            try:
                await _fetch(adapter, file, copy)
                head = await to_thread.run_sync(_read_head, copy)
                return await self._files.put(thread_id, upload_filename(file, head), copy)
            except DeliveryError as error:
                log.warning("the file %s could not be uploaded: %s", file.name, error)
                if not error.retryable or attempt == ATTEMPTS:
                    raise
                await anyio.sleep(error.retry_after_s or self._backoff.wait_s(attempt))


def _write(copy: Path, chunk: bytes, mode: str = "ab") -> None:
    try:
        with copy.open(mode) as file:
            file.write(chunk)
    except OSError as error:
        raise temporary_file_error(error) from error


def _read_head(copy: Path) -> bytes:
    with copy.open("rb") as file:
        return file.read(16)


def upload_filename(file: Attachment, head: bytes = b"") -> str:
    r"""Return a file's name in the thread's uploads.

    A document that is sent again replaces the earlier one. Platforms use the same few names for different pictures and
    recordings, so their names here include a hash of the platform's ID, which makes repeated uploads idempotent. A
    picture's suffix follows from its first bytes (`head`), because some platforms do not give its type.

    >>> upload_filename(Attachment(name="report.pdf", ref="r"))
    'report.pdf'
    >>> upload_filename(Attachment(name="image.png", kind="image", ref="r"))
    'image-cff111b5.png'
    >>> upload_filename(Attachment(name="image.png", kind="image", ref="r"), b"\xff\xd8\xff\xe0")
    'image-cff111b5.jpg'
    """
    flat = PurePath(file.name.replace("\\", "_").replace("/", "_") or "file")
    if file.kind == "file":
        return str(flat)
    mark = hashlib.sha256(f"parley:{file.ref}".encode()).hexdigest()[:8]
    suffix = _suffix_of(head) if file.kind == "image" else ""
    return f"{flat.stem}-{mark}{suffix or flat.suffix}"


def _suffix_of(head: bytes) -> str:
    for magic, suffix in _PICTURES.items():
        if head.startswith(magic):
            return suffix
    return ".webp" if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else ""


async def _fetch(adapter: SupportsDownloads, file: Attachment, copy: Path) -> None:
    """Save a file's bytes. Raises DeliveryError."""
    size = 0
    await to_thread.run_sync(_write, copy, b"", "wb")
    async with adapter.download(file, max_bytes=MAX_FILE_BYTES) as chunks:
        async for chunk in chunks:
            size += len(chunk)
            if size > MAX_FILE_BYTES:
                raise FileTooLarge(MAX_FILE_BYTES)
            await to_thread.run_sync(_write, copy, chunk)


def _reason(error: DeliveryError, texts: Messages) -> str:
    """Return why a file is missing. Messages from platforms and the gateway are in English."""
    if isinstance(error, FileTooLarge):
        return texts.upload_too_large.format(megabytes=error.megabytes)
    return error.user_message


def _problem(file: Attachment, reason: str, texts: Messages) -> str:
    if not reason:
        return texts.upload_failed.format(name=file.name)
    return texts.upload_failed_because.format(name=file.name, reason=reason)
