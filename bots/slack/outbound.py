"""Slack messages: sends, updates, deletes and looks them up, and responds to commands and button presses."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bots.slack.api import ResponseUrlExpired, SlackApi
from bots.slack.direct_messages import DirectMessages
from bots.slack.errors import BLOCK_CODES, SlackError, error_from_status
from bots.slack.files import SlackFileUploader
from bots.slack.format import EMPTY, SlackText, fits, render, render_note, render_plain
from bots.slack.payload import parse_timestamp, split_recipient
from bots.text.code_file import CodeFile, code_file
from bots.text.split_markdown import split_markdown
from bots.text.worker import process_text
from bus.errors import MessageTooLong
from bus.messages import Button, MessageId, ReplyTarget
from bus.platform import OutgoingFile

log = logging.getLogger(__name__)

METADATA_TYPE = "parley_delivery"
"""Type of the metadata that contains a message's outbox key."""

_PAGE = 200
_PAGES = 10

_GONE_CODES = frozenset({"message_not_found", "channel_not_found"})
_STREAMING_CODES = frozenset({"streaming_state_conflict", "cant_delete_message"})
"""Slack's errors for changing a message that is still streaming."""

_FILE_REFUSED_CODES = frozenset({
    "access_denied", "file_type_not_allowed", "file_upload_size_restricted", "file_uploads_disabled",
    "file_uploads_except_images_disabled", "missing_scope", "posting_to_channel_denied", "storage_limit_reached",
})  # fmt: skip
"""Refusals of a file that do not affect messages."""


def delivery_metadata(key: str) -> dict[str, Any]:
    """Return the metadata by which a sent message can be found."""
    return {"event_type": METADATA_TYPE, "event_payload": {"key": key}}


_STREAM_KEY = ":card:"
"""Part of the keys of growing messages (`bus.outbound.rows.streaming_key`)."""


class SlackMessages:
    """Sends to Slack. Every method raises SlackError. `send` and `edit` also raise MessageTooLong.

    `files` knows which file was sent with a key.
    """

    def __init__(self, api: SlackApi, files: SlackFileUploader) -> None:
        self._api = api
        self._files = files
        self._direct = DirectMessages(api)

    async def send(
        self, target: ReplyTarget, markdown: str, *, key: str, buttons: Sequence[Button] = ()
    ) -> MessageId:
        """Send one message. The answer to a command goes to its response_url, or else to its author's direct messages.

        If Slack refuses the blocks, the message is sent as plain text. Code that is too long for a message is sent as a
        file.
        """
        if not target.response_url:
            place = await self._direct.resolve(target)
            return await self._send(place, markdown, key=key, buttons=buttons)
        try:
            await self._respond_to_command(target.response_url, markdown, buttons)
        except ResponseUrlExpired:
            # Leave out the buttons, because a press outside of the command's chat would have no effect.
            await self._send(await self._direct.target_for(target), markdown, key=key, buttons=())
        return MessageId("")

    async def send_note(self, target: ReplyTarget, text: str, *, key: str) -> MessageId:
        """Send a plain text in small type."""
        return await self._post(target, render_note(text), key=key)

    async def private_target(self, target: ReplyTarget) -> ReplyTarget | None:
        """Return the direct messages with the person to answer; None = the target names nobody."""
        return await self._direct.target_for(target) if split_recipient(target.user)[2] else None

    async def send_file(self, target: ReplyTarget, file: OutgoingFile, *, key: str) -> MessageId:
        """Share a file.

        If the file answers a command, it goes to the author's direct messages, and a note to the response_url says so.
        """
        if not target.response_url:
            return await self._files.send_file(await self._direct.resolve(target), file, key=key)
        direct = await self._direct.target_for(target)
        sent = await self._files.send_file(direct, file, key=key)
        text = target.texts.file_in_direct_message.format(name=file.name)
        try:
            await self.respond_ephemeral(target.response_url, text)
        except SlackError as error:  # The file has arrived, so this call must not fail.
            log.info(
                "%s: could not send the note that says where a file went: %s",
                self._api.channel,
                error,
            )
        return sent

    async def _send(
        self, target: ReplyTarget, markdown: str, *, key: str, buttons: Sequence[Button]
    ) -> MessageId:
        code = await process_text(code_too_long, markdown)
        if code is None:
            return await self._with_plain_fallback(
                markdown, buttons, lambda form: self._post(target, form, key=key)
            )
        try:
            return await self._files.send_text(target, code.name, code.text, key=key)
        except SlackError as error:
            if error.code not in _FILE_REFUSED_CODES:
                raise
            raise MessageTooLong(await process_text(split_markdown, markdown, fits)) from error

    async def edit(
        self, target: ReplyTarget, message: MessageId, markdown: str, buttons: Sequence[Button] = ()
    ) -> None:
        """Replace a message's text and buttons. Ends a running stream first."""
        code = await process_text(code_too_long, markdown)
        if code is None:
            await self.update(target, message, markdown, buttons)
            return
        try:
            await self._upload_code_once(target, message, code)
        except SlackError as error:
            if error.code not in _FILE_REFUSED_CODES:
                raise
            raise MessageTooLong(await process_text(split_markdown, markdown, fits)) from error
        text = target.texts.code_in_file.format(name=code.name)
        await self.update(target, message, text, buttons)

    async def update(
        self, target: ReplyTarget, message: MessageId, markdown: str, buttons: Sequence[Button] = ()
    ) -> None:
        """Replace a message's text and buttons temporarily. Text that is too long is cut."""
        await self._ending_stream(
            target,
            message,
            lambda: self._with_plain_fallback(
                markdown, buttons, lambda form: self._update(target, message, form)
            ),
        )

    async def remove(self, target: ReplyTarget, message: MessageId) -> None:
        """Delete a message. Does nothing if it is gone."""
        try:
            await self._ending_stream(
                target,
                message,
                lambda: self._api.call(
                    lambda web: web.chat_delete(channel=target.chat, ts=str(message))
                ),
            )
        except SlackError as error:
            if error.code not in _GONE_CODES:
                raise

    async def respond_ephemeral(self, callback: str, text: str) -> None:
        """Show a text only to the person who used a command or a button."""
        await self._respond_to_command(callback, text, ())

    async def stop_stream(
        self, target: ReplyTarget, message: MessageId, *, rest: str = "", key: str = ""
    ) -> bool:
        """End a stream and append `rest`. Return False if it was no longer running."""
        try:
            await self._api.call(
                lambda web: web.chat_stopStream(
                    channel=target.chat,
                    ts=str(message),
                    markdown_text=rest or None,
                    metadata=delivery_metadata(key) if key else None,
                )
            )
        except SlackError as error:
            if error.code == "no_text" and not rest:  # The stream has no content.
                return await self.stop_stream(target, message, rest=EMPTY, key=key)
            if error.code in {"message_not_in_streaming_state", "stopped_by_user"}:
                return False
            raise
        return True

    async def find(self, target: ReplyTarget, *, key: str, since: float) -> MessageId | None:
        """Return the message or file that was sent with `key`, if it is at the target.

        Messages contain their key. Files cannot contain a key, so only the process that sent a file can find it.

        Raises:
            SlackError: Not retryable if the lookup is impossible, as for an answer that only its reader sees, or a file
                that an earlier process may have sent with this key.
        """
        if target.response_url:
            raise SlackError("An answer to a Slack command cannot be looked up.")
        target = await self._direct.resolve(target)
        me, ref, doubt = await self._api.identity(), self._files.file_id_for(key), False
        is_stream = _STREAM_KEY in key
        async for message in self._messages_since(target, since=since):
            if message.get("user") != me.user_id and message.get("bot_id") != me.bot_id:
                continue
            shared = [file.get("id") for file in message.get("files") or ()]
            if (
                _delivery_key(message) == key
                or (ref and ref in shared)
                or (is_stream and _is_empty_stream(message))
            ):
                return MessageId(ref or message["ts"])
            doubt = doubt or bool(shared)
        if doubt and not ref:
            raise SlackError("Slack does not report which file was sent for this message.")
        return None

    async def _upload_code_once(
        self, target: ReplyTarget, message: MessageId, code: CodeFile
    ) -> None:
        """Share the code of a message as a file, unless an earlier attempt did."""
        key = f"{target.chat}:{message}"
        since = parse_timestamp(message) or 0.0
        if self._files.file_id_for(key) and await self.find(target, key=key, since=since):
            return
        await self._files.send_text(target, code.name, code.text, key=key)

    async def _respond_to_command(
        self, callback: str, markdown: str, buttons: Sequence[Button]
    ) -> None:
        """Answer a command, visible only to its author. Such a message has no ID."""
        pieces = await process_text(split_markdown, markdown, fits)
        if len(pieces) > 1:
            raise MessageTooLong(pieces)
        await self._respond(callback, await process_text(render, pieces[0], buttons))

    async def _respond(self, callback: str, message: SlackText) -> None:
        body: dict[str, object] = {
            "response_type": "ephemeral",
            "replace_original": False,
            "text": message.text,
        }
        if message.blocks:
            body["blocks"] = list(message.blocks)
        await self._api.post_response_url(callback, body)

    async def _with_plain_fallback(
        self,
        markdown: str,
        buttons: Sequence[Button],
        put: Callable[[SlackText], Awaitable[MessageId]],
    ) -> MessageId:
        """Send a message to a target, in plain form if Slack refuses its blocks."""
        try:
            return await put(await process_text(render, markdown, buttons))
        except SlackError as error:
            if error.code not in BLOCK_CODES:
                raise
            return await put(render_plain(markdown, buttons))

    async def _ending_stream(
        self, target: ReplyTarget, message: MessageId, change: Callable[[], Awaitable[object]]
    ) -> None:
        """Change a message. If it is still streaming, first end the stream, which an earlier process began."""
        try:
            await change()
        except SlackError as error:
            if error.code not in _STREAMING_CODES:
                raise
            await self.stop_stream(target, message)
            await change()

    async def _post(self, target: ReplyTarget, message: SlackText, *, key: str) -> MessageId:
        # Links in model output are not unfurled, because fetching them could leak data. Names in it notify nobody.
        answer = await self._api.call(
            lambda web: web.chat_postMessage(
                channel=target.chat,
                text=message.text,
                blocks=list(message.blocks) or None,
                thread_ts=target.thread or None,
                unfurl_links=False,
                unfurl_media=False,
                parse="none",
                link_names=False,
                metadata=delivery_metadata(key),
            )
        )
        return message_id(answer)

    async def _update(self, target: ReplyTarget, message: MessageId, form: SlackText) -> MessageId:
        # Without `parse`, Slack would look for names and URLs in the text.
        await self._api.call(
            lambda web: web.chat_update(
                channel=target.chat,
                ts=str(message),
                text=form.text,
                blocks=list(form.blocks),
                parse="none",
                link_names=False,
            )
        )
        return message

    async def _messages_since(
        self, target: ReplyTarget, *, since: float
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the messages sent after `since` where answers to `target` go."""
        window: dict[str, Any] = {
            "channel": target.chat,
            "oldest": f"{max(since, 0):.6f}",
            "limit": _PAGE,
            "include_all_metadata": True,
        }
        for _ in range(_PAGES):
            page = await self._page(target, window)
            for message in page.get("messages") or ():
                yield message
            window["cursor"] = (page.get("response_metadata") or {}).get("next_cursor") or ""
            if not window["cursor"]:
                return

    async def _page(self, target: ReplyTarget, window: dict[str, Any]) -> AsyncSlackResponse:
        if target.thread:
            return await self._api.call(
                lambda web: web.conversations_replies(ts=target.thread, **window)
            )
        return await self._api.call(lambda web: web.conversations_history(**window))


def message_id(answer: AsyncSlackResponse) -> MessageId:
    """Return the ID of a sent message. Raises SlackError (ambiguous) if the response has none."""
    ts = answer.get("ts")
    if not isinstance(ts, str) or not ts:
        raise error_from_status(200, {})
    return MessageId(ts)


def _is_empty_stream(message: Mapping[str, Any]) -> bool:
    """Return whether a message is an empty stream that we started. A stream has no key until it ends."""
    return not (message.get("text") or message.get("blocks") or message.get("files"))


def _delivery_key(message: dict[str, Any]) -> str:
    metadata = message.get("metadata") or {}
    if metadata.get("event_type") != METADATA_TYPE:
        return ""
    return str((metadata.get("event_payload") or {}).get("key") or "")


def code_too_long(markdown: str) -> CodeFile | None:
    """Return the code if a piece of a reply consists only of code that does not fit into a message."""
    return None if fits(markdown) else code_file(markdown)
