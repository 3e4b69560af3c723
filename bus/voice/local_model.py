"""LocalSpeechModel: transcribes on this machine with faster-whisper (the extra `voice`)."""

import importlib
import importlib.util
import logging
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from bus.characters import clean
from bus.errors import SpeechError
from bus.messages import Attachment, Transcript

log = logging.getLogger(__name__)

PACKAGE = "faster_whisper"
SOURCE = "faster-whisper"

TRANSCRIBE_S = 600.0
"""Time limit for a recording, including loading the model, seconds. The thread cannot be ended earlier."""


def is_installed() -> bool:
    """Return whether the extra `voice` is installed. Imports nothing."""
    return importlib.util.find_spec(PACKAGE) is not None


class LocalSpeechModel:
    """Loads the model for the first recording, and transcribes one recording after another in a thread.

    Args:
        model: Its name (downloaded from Hugging Face on first use) or folder.
        language: The language of all speech; None = recognized for each recording.
    """

    def __init__(self, model: str, language: str | None) -> None:
        self._name, self._language = model, language
        self._model: Any = None
        self._busy = anyio.Lock()

    async def transcribe(self, file: Attachment, audio: Path, size_bytes: int) -> Transcript:  # noqa: ARG002
        """Transcribe a recording. See `SpeechEngine.transcribe`."""
        try:
            with anyio.fail_after(TRANSCRIBE_S):
                async with self._busy:
                    return await to_thread.run_sync(self._transcribe, audio, abandon_on_cancel=True)
        except TimeoutError:
            raise SpeechError("slow", f"{SOURCE} took longer than {TRANSCRIBE_S:.0f} s") from None
        except Exception as error:
            log.exception("%s could not transcribe a recording", SOURCE)
            raise SpeechError(
                "unavailable", f"{SOURCE}: {type(error).__name__}: {error}"
            ) from error

    def _transcribe(self, audio: Path) -> Transcript:
        """Transcribe in the current thread. Raises whatever the package and the model's files raise."""
        if self._model is None:
            self._model = importlib.import_module(PACKAGE).WhisperModel(self._name)
        segments, info = self._model.transcribe(str(audio), language=self._language)
        words = "".join(segment.text for segment in segments)
        return Transcript(
            text=clean(words).strip(),
            language=str(info.language),
            source=SOURCE,
            duration_s=float(info.duration),
        )
