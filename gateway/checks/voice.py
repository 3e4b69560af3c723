"""Checks the speech service or model of the `voice` section with a second of speech."""

import time
from pathlib import Path

import anyio

from bots.common.diagnosis import CheckResult, problem
from bus.errors import SpeechError, SpeechFailure
from bus.messages import Attachment
from bus.voice.config import VoiceConfig
from bus.voice.engine import open_engine
from bus.voice.local_model import is_installed

SPEECH = Path(__file__).with_name("speech.ogg")
"""`espeak-ng -v en-us -s 150 "This is a test."`, 1.3 s as Ogg Opus, which is what Telegram and Feishu send."""

SUBJECT = "voice"

NOT_INSTALLED = "voice.local_model: the package faster-whisper is not installed"
_INSTALL = '.venv/bin/python -m pip install "faster-whisper>=1.2,<2"'

_FIXES: dict[SpeechFailure, str] = {
    "unavailable": "check voice.base_url, the network and the proxy; if the model is still loading, try again",
    "slow": "check voice.base_url and the load of the speech service",
    "refused": "check voice.base_url (most services want /v1 at its end), voice.api_key and voice.model",
}


async def check_voice(config: VoiceConfig) -> list[CheckResult]:
    """Transcribe the sample. Empty = nothing is configured. Never raises."""
    if config.local_model and not is_installed():
        return [problem(SUBJECT, NOT_INSTALLED, _INSTALL)]
    file = Attachment(name=SPEECH.name, mime="audio/ogg", kind="audio", is_speech=True)
    size = (await anyio.Path(SPEECH).stat()).st_size
    async with open_engine(config) as engine:
        if engine is None:
            return []
        began = time.monotonic()
        try:
            heard = await engine.transcribe(file, SPEECH, size)
        except SpeechError as error:
            return [problem(SUBJECT, str(error), _FIXES.get(error.failure, ""))]
    took = time.monotonic() - began
    if not heard.text:
        fix = "check voice.model and voice.language; the sample says “This is a test.”"
        return [problem(SUBJECT, f"{heard.source} understood nothing", fix)]
    text = f"{heard.source} understood “{heard.text}” in {took:.1f} s"
    return [CheckResult(subject=SUBJECT, text=text)]
