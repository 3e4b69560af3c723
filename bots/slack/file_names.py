"""Looks up names of files (files.info), which events of channels shared with other companies do not contain."""

import logging
from dataclasses import replace

import anyio

from bots.slack.api import SlackApi
from bots.slack.attachments import is_unnamed, parse_attachments, split_installation
from bots.slack.errors import SlackError
from bus.messages import Attachment, InboundMessage

log = logging.getLogger(__name__)

LOOKUP_S = 1.0
"""Time limit for looking up all files of a message, seconds. The event must be acknowledged within 3 s."""


class SlackFileNames:
    """Looks up files (`file_access: check_file_info`: docs.slack.dev/reference/objects/file-object)."""

    def __init__(self, api: SlackApi) -> None:
        self._api = api

    async def add(self, message: InboundMessage, *, give_up_at: float) -> InboundMessage:
        """Return the message with the available names, types and sizes of its files. Raises nothing."""
        if not message.attachments:
            return message
        files = list(message.attachments)
        with anyio.move_on_after(min(LOOKUP_S, give_up_at - anyio.current_time())):
            for at, file in enumerate(files):
                if is_unnamed(file):
                    files[at] = await self._described(file)
        return replace(message, attachments=tuple(files))

    async def _described(self, file: Attachment) -> Attachment:
        installation, file_id = split_installation(file.ref)
        try:
            answer = await self._api.call(lambda web: web.files_info(file=file_id))
        except SlackError as error:
            log.info("%s: a file has no name: %s", self._api.channel, error)
            return file
        return next(iter(parse_attachments([answer.get("file")], installation=installation)), file)
