"""SpeechEngine: transcribes speech for all platforms, with an endpoint or a local model."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from typing_extensions import Protocol

from bus.messages import Attachment, Transcript
from bus.voice.config import VoiceConfig
from bus.voice.endpoint import SpeechEndpoint
from bus.voice.local_model import LocalSpeechModel


class SpeechEngine(Protocol):
    """Transcribes recordings."""

    async def transcribe(self, file: Attachment, audio: Path, size_bytes: int) -> Transcript:
        """Transcribe a recording. Raises SpeechError.

        `file`: describes it. `audio`: its bytes. `size_bytes`: their number.
        """
        ...


@asynccontextmanager
async def open_engine(config: VoiceConfig) -> AsyncIterator[SpeechEngine | None]:
    """Yield the configured engine; None = only the platforms' own transcripts are used."""
    if config.base_url:
        async with SpeechEndpoint.open(config) as endpoint:
            yield endpoint
    elif config.local_model:
        yield LocalSpeechModel(config.local_model, config.language)
    else:
        yield None
