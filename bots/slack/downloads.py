"""File downloads from Slack: looks up the URL, and sends the bot token only to Slack's hosts."""

import html
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
import anyio

from bots.common.downloads import limit_size
from bots.common.proxy import proxy_url_for
from bots.slack.api import SlackApi
from bots.slack.attachments import (
    document_extension,
    split_ref,
    spoken_words,
    unavailable_reason,
)
from bots.slack.errors import SlackError, error_from_exception, error_from_status
from bots.slack.payload import as_mapping, as_str
from bus.characters import clean
from bus.errors import FileTooLarge
from bus.messages import Attachment, Transcript, parse_duration

log = logging.getLogger(__name__)

MAX_REDIRECTS = 3

TRANSCRIPT_S, TRANSCRIPT_POLL_S = 15.0, 1.0
"""How long to wait for Slack's transcript of a clip, and how often to ask, seconds. Slack needs a few seconds."""

MAX_TRANSCRIPT_BYTES = 1_000_000

SILENCE_S = 30.0
"""Longest pause in a download, seconds."""

CHUNK_BYTES = 64 * 1024

_BREAKS = (aiohttp.ClientError, OSError)
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SIGN_IN_PAGE = re.compile(
    rb"<(?:title|html)[^>]*>\s*(?:sign in|log ?in)\b[^<]{0,80}slack", re.IGNORECASE
)
_VTT_MARK = re.compile(r"<[^<>]{0,100}>")
_HEAD_BYTES = 4096
"""How much of a page to examine for a sign-in form, bytes."""

_SIGN_IN = "Slack returned its sign-in page instead: the app needs the permission files:read"


class SlackDownloader:
    """Fetches files.

    Args:
        api: Slack's Web API.
        base_url: The API's URL. The token is sent only to its host and to hosts below its domain.
    """

    def __init__(self, api: SlackApi, *, base_url: str, timeout_s: float) -> None:
        self._api = api
        self._home = urlsplit(base_url)
        self._timeout_s = timeout_s

    @asynccontextmanager
    async def open(
        self, attachment: Attachment, *, max_bytes: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Stream a file's bytes, at most `max_bytes`.

        Raises:
            SlackError: The file is missing, too large or not accessible with this token, or the connection broke.
        """
        if why := unavailable_reason(attachment.ref):
            raise SlackError(why)
        file = await self._file_info(attachment.ref)
        is_document = bool(document_extension(file))
        size = file.get("size")
        if isinstance(size, int) and size > max_bytes and not is_document:
            raise FileTooLarge(max_bytes)
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(self._api.session())
            answer = await self._open_url(stack, session, _address(file))
            _check(answer, max_bytes)
            pieces = limit_size(
                answer.content.iter_chunked(CHUNK_BYTES), max_bytes, errors=_BREAKS, convert=_broken
            )
            if answer.content_type == "text/html":
                yield await _page(pieces, answer, file)
            else:
                yield pieces

    async def find_transcript(self, ref: str) -> Transcript | None:
        """Return Slack's transcript of a clip; None = there was none in time. Raises SlackError.

        The file object contains the beginning of the transcript, and `vtt` is the URL of the whole. These fields are
        undocumented. In clips, `transcription.status` is none, processing, complete or failed.
        """
        if unavailable_reason(ref):
            return None
        with anyio.move_on_after(TRANSCRIPT_S):
            while True:
                file = await self._file_info(ref)
                transcription = as_mapping(file.get("transcription"))
                if transcription.get("status") != "processing":
                    break
                await anyio.sleep(TRANSCRIPT_POLL_S)
            return await self._read_transcript(file, transcription)
        return None

    async def _read_transcript(
        self, file: Mapping[str, Any], transcription: Mapping[str, Any]
    ) -> Transcript | None:
        words = spoken_words(file)
        if not words:
            return None
        url = as_str(file.get("vtt"))
        if words.endswith("…") and url:
            try:
                words = vtt_words(await self._read_text(url)) or words
            except SlackError as error:
                log.info("only the beginning of a transcript is available: %s", error)
        return Transcript(
            text=words,
            language=as_str(transcription.get("locale")),
            source="Slack",
            duration_s=parse_duration(file.get("duration_ms"), units_per_s=1000),
        )

    async def _read_text(self, url: str) -> str:
        """Return the beginning of a text file in Slack. Raises SlackError."""
        text = b""
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(self._api.session())
            answer = await self._open_url(stack, session, url)
            _check(answer, MAX_TRANSCRIPT_BYTES)
            async for piece in limit_size(
                answer.content.iter_chunked(CHUNK_BYTES),
                MAX_TRANSCRIPT_BYTES,
                errors=_BREAKS,
                convert=_broken,
            ):
                text += piece
        return text.decode("utf-8", "replace")

    async def _file_info(self, ref: str) -> Mapping[str, Any]:
        """Get a file's current URL. URLs in events expire, and events of shared channels contain none.

        If Slack refuses, the URL from the message is used.
        """
        file_id, sent = split_ref(ref)
        try:
            answer = await self._api.call(lambda web: web.files_info(file=file_id))
        except SlackError as error:
            if error.retryable or not sent:
                raise
            return {"url_private_download": sent}
        file = answer.get("file")
        if isinstance(file, dict):
            return file
        if not sent:
            raise error_from_status(200, {})
        return {"url_private_download": sent}

    async def _open_url(
        self, stack: AsyncExitStack, session: aiohttp.ClientSession, url: str
    ) -> aiohttp.ClientResponse:
        for _ in range(MAX_REDIRECTS + 1):
            answer = await self._get(stack, session, url)
            if answer.status not in _REDIRECTS:
                return answer
            url = urljoin(url, answer.headers.get("Location", ""))
        raise SlackError("Slack redirected the file's URL too often.")

    async def _get(
        self, stack: AsyncExitStack, session: aiohttp.ClientSession, url: str
    ) -> aiohttp.ClientResponse:
        """Open one URL. No error contains it, because it is a secret."""
        if not self._is_slack_host(url):
            raise SlackError("The file is not stored at Slack, so it cannot be downloaded.")
        request = session.get(
            url,
            headers={"Authorization": f"Bearer {self._api.bot_token}"},
            allow_redirects=False,
            proxy=proxy_url_for(url),
            timeout=aiohttp.ClientTimeout(sock_connect=self._timeout_s, sock_read=SILENCE_S),
        )
        try:
            with anyio.fail_after(self._timeout_s):
                return await stack.enter_async_context(request)
        except _BREAKS as error:
            raise _broken(error) from None

    def _is_slack_host(self, url: str) -> bool:
        target, home = urlsplit(url), self._home
        if target.scheme != home.scheme or not target.hostname or not home.hostname:
            return False
        if (target.hostname, target.port) == (home.hostname, home.port):
            return True
        domain = home.hostname.removeprefix("www.").removeprefix("api.")
        return target.hostname.endswith(f".{domain}") and target.port == home.port


def vtt_words(text: str) -> str:
    r"""Return the text of a WebVTT file, without its header, notes, cue names, times and markup.

    >>> vtt_words("WEBVTT\n\n1\n00:00.000 --> 00:01.000\n<v Ann>Call me\n\n00:01.000 --> 00:02.000\nat &lt;5&gt;.")
    'Call me at <5>.'
    """
    words: list[str] = []
    for block in clean(text).split("\n\n"):
        lines = block.strip().splitlines()
        times = next((at for at, line in enumerate(lines) if "-->" in line), None)
        if times is not None:
            words += (html.unescape(_VTT_MARK.sub("", line)).strip() for line in lines[times + 1 :])
    return " ".join(filter(None, words))


def _address(file: Mapping[str, Any]) -> str:
    if file.get("is_external") or file.get("mode") == "external":
        raise SlackError("The file is stored outside Slack, and only its link was shared.")
    if document_extension(file) == ".csv":
        url = file.get("list_csv_download_url")  # A list's own URL returns only a description.
        if not isinstance(url, str) or not url:
            raise SlackError("Slack does not let apps read the items of this list.")
        return url
    url = file.get("url_private_download") or file.get("url_private")
    if not isinstance(url, str) or not url:
        raise SlackError("Slack no longer provides the file, because it was deleted or is too old.")
    return url


def _check(answer: aiohttp.ClientResponse, max_bytes: int) -> None:
    if answer.status != 200:  # noqa: PLR2004
        failure = error_from_status(answer.status, answer.headers)
        failure.ambiguous = False
        raise failure
    length = answer.content_length
    if length is not None and length > max_bytes:
        raise FileTooLarge(max_bytes)


async def _page(
    pieces: AsyncIterator[bytes], answer: aiohttp.ClientResponse, file: Mapping[str, Any]
) -> AsyncIterator[bytes]:
    """Return the bytes of a page. Raises SlackError for Slack's sign-in page (200 despite a missing permission).

    An uploaded page has the announced length. The length of a Slack document's page differs from the announced one.
    """
    is_document = bool(document_extension(file))
    is_upload = str(file.get("mimetype")).startswith("text/html")
    head = b""
    async for piece in pieces:
        head += piece
        if len(head) >= _HEAD_BYTES:
            break
    if is_document:
        is_file = not _SIGN_IN_PAGE.search(head)
    else:
        is_file = is_upload and answer.content_length in (None, file.get("size"))
    if not is_file:
        raise SlackError(_SIGN_IN)

    async def whole() -> AsyncIterator[bytes]:
        yield head
        async for piece in pieces:
            yield piece

    return whole()


def _broken(error: Exception) -> SlackError:
    failure = error_from_exception(error)
    failure.ambiguous = False  # A download changes nothing, so it can be repeated.
    return failure
