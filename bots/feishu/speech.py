"""Feishu's own speech recognition for voice messages, used if the app has the permission and ffmpeg is installed.

Feishu accepts only raw samples (16 kHz, 16 bits, mono), and voice messages are Opus files, so ffmpeg converts them.
Without ffmpeg, the configured speech service transcribes them.
"""

import base64
import logging
import secrets
import shutil
import subprocess
from pathlib import Path

import anyio
from anyio import to_thread

from bots.feishu.errors import SCOPE_CODE, FeishuError
from bots.feishu.json_node import JsonNode
from bots.feishu.rest import FeishuRestClient, json_body
from bus.characters import clean
from bus.messages import Attachment, Transcript

log = logging.getLogger(__name__)

MAX_S = 60
"""Maximum length of a recording, seconds (open.feishu.cn, speech_to_text-v1, file_recognize)."""

CALL_S = 30.0
"""Time limit for recognizing a recording, seconds."""

CONVERT_S = 20.0

SPEECH_SCOPE = "speech_to_text:speech"

_PATH = "/open-apis/speech_to_text/v1/speech/file_recognize"
_ENGINE = "16k_auto"
"""Feishu's only engine, for Chinese mixed with English."""

_CONVERT = (
    *("-nostdin", "-v", "error", "-protocol_whitelist", "file,pipe", "-f", "ogg", "-i"),
    "{audio}",
    *("-t", str(MAX_S), "-ac", "1", "-ar", "16000", "-f", "s16le", "pipe:1"),
)


class FeishuSpeech:
    """Recognizes voice messages.

    Args:
        rest: Calls to the platform.
    """

    def __init__(self, rest: FeishuRestClient) -> None:
        self._rest = rest
        self._may_use = True

    async def find_transcript(self, attachment: Attachment, audio: Path) -> Transcript | None:
        """Return the words of a voice message; None if Feishu does not recognize it. Raises FeishuError."""
        is_voice = attachment.kind == "audio" and attachment.mime == "audio/ogg"
        duration_s = attachment.duration_s
        if not (self._may_use and is_voice and duration_s is not None and duration_s <= MAX_S):
            return None
        samples = await _convert(audio)
        if not samples:
            return None
        body = {
            "speech": {"speech": base64.b64encode(samples).decode()},
            "config": {
                "file_id": secrets.token_hex(8),
                "format": "pcm",
                "engine_type": _ENGINE,
            },
        }
        try:
            data = await self._rest.call("POST", _PATH, body=json_body(body), limit_s=CALL_S)
        except FeishuError as error:
            if error.code == SCOPE_CODE:
                self._may_use = False
                log.info(
                    "%s: Feishu does not recognize speech for this app, which lacks the scope %s",
                    self._rest.channel,
                    SPEECH_SCOPE,
                )
                return None
            raise
        words = clean(JsonNode(data).text("recognition_text")).strip()
        return Transcript(text=words, source="Feishu", duration_s=duration_s)


async def _convert(audio: Path) -> bytes:
    """Return the samples of an Opus file; empty if ffmpeg is missing or cannot read it."""
    program = await to_thread.run_sync(shutil.which, "ffmpeg")
    if program is None:
        return b""
    command = [program, *(part.format(audio=f"file:{audio}") for part in _CONVERT)]
    try:
        with anyio.fail_after(CONVERT_S):
            done = await anyio.run_process(command, check=False, stderr=subprocess.PIPE)
    except (OSError, TimeoutError) as error:
        log.warning("ffmpeg failed: %r", error)
        return b""
    if done.returncode:
        log.warning("ffmpeg failed: %s", done.stderr.decode("utf-8", "replace")[-300:])
        return b""
    return done.stdout
