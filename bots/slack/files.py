"""Files to Slack: ask for an address, send the bytes there, share the result."""

from collections import OrderedDict

import aiohttp
import anyio

from bots.slack.api import Api
from bots.slack.errors import SlackError, delivery_error, http_error
from bots.slack.proxy import proxy_for
from bus.messages import MessageId, Place
from bus.ports import OutgoingFile

_MIN_BYTES_PER_S = 250_000
"""A slower upload is given up: 2 Mbit/s."""

_KEYS_KEPT = 1000


class Files:
    """Uploads files."""

    def __init__(self, api: Api, *, timeout_s: float) -> None:
        self._api = api
        self._timeout_s = timeout_s
        self._sent: OrderedDict[str, str] = OrderedDict()

    def sent_as(self, key: str) -> str:
        """Return the id of the file that this process sent, or tried to send, with `key`; "" = none."""
        return self._sent.get(key, "")

    async def send(self, place: Place, file: OutgoingFile, *, key: str) -> MessageId:
        """Share one file where `place` says; returns the file's id.

        Nobody sees anything before the last of the three calls, so only that one can be ambiguous.

        Raises:
            SlackError: Slack or the connection refused it, or the file is empty.
        """
        if file.size_bytes < 1:
            raise SlackError(f"Slack takes no empty files ({file.name}).")
        try:
            ref = await self._stage(file)
        except SlackError as error:
            error.ambiguous = False
            raise
        self._sent[key] = ref
        while len(self._sent) > _KEYS_KEPT:
            self._sent.popitem(last=False)
        await self._api.call(
            lambda web: web.files_completeUploadExternal(
                files=[{"id": ref, "title": file.name}],
                channel_id=place.chat,
                thread_ts=place.thread or None,
            )
        )
        return MessageId(ref)

    async def _stage(self, file: OutgoingFile) -> str:
        slot = await self._api.call(
            lambda web: web.files_getUploadURLExternal(filename=file.name, length=file.size_bytes)
        )
        url, ref = slot.get("upload_url"), slot.get("file_id")
        if not isinstance(url, str) or not isinstance(ref, str):
            raise http_error(200, {})
        await self._upload(url, file)
        return ref

    async def _upload(self, url: str, file: OutgoingFile) -> None:
        """Send the bytes. The address is a secret: it is in no error."""
        deadline_s = self._timeout_s + file.size_bytes / _MIN_BYTES_PER_S
        headers = {"Content-Type": "application/octet-stream"}
        try:
            with anyio.fail_after(deadline_s):
                async with (
                    self._api.session() as session,
                    await anyio.open_file(file.path, "rb") as body,
                    session.post(
                        url, data=body.wrapped, headers=headers, proxy=proxy_for(url)
                    ) as answer,
                ):
                    status, told = answer.status, dict(answer.headers)
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise delivery_error(error) from None
        except OSError as error:
            raise SlackError(f"The file {file.name} cannot be read any more.") from error
        if status != 200:  # noqa: PLR2004
            raise http_error(status, told)
