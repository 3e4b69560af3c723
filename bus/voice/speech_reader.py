"""SpeechReader: the one place where recordings become words, for the messages of all platforms.

A platform's own transcript comes first, then the configured engine. A transcript is stored in the row of its message,
in one transaction with the note that shows it. So a turn that restarts later does not transcribe again, and the note
appears only once. If the process ends before the transaction, the next process transcribes the recording again.
"""

import hashlib
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread
from pydantic import TypeAdapter

from bus.errors import DeliveryError, SpeechError, SpeechFailure
from bus.locales import Messages
from bus.messages import Attachment, InboundMessage, OutboundNote, Transcript, encode_outbound
from bus.outbound.worker import DeliveryWorker
from bus.platform import Adapter, Clock, SupportsTranscripts
from bus.runs.uploads import ReadSpeech
from bus.voice.config import VoiceConfig
from bus.voice.engine import SpeechEngine
from bus.voice.stats import Recording, SpeechStats
from store.inbox import InboxRow, InboxStore
from store.outbox import NewOutboxRow

log = logging.getLogger(__name__)

MAX_SHOWN_CHARS = 2_000
"""How much of a transcript to show in a note, characters. The agent gets all of it."""

_TRANSCRIPTS: TypeAdapter[dict[str, Transcript]] = TypeAdapter(dict[str, Transcript])
"""The transcripts of a message, by a digest of the recording's `ref`, which may contain addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    row: InboxRow
    inbound: InboundMessage
    adapter: Adapter
    transcripts: dict[str, Transcript]

    @property
    def texts(self) -> Messages:
        return self.inbound.reply_target.texts


def stored_transcripts(row: InboxRow) -> dict[str, Transcript]:
    """Return the transcripts of a message's recordings, by the hash of the recording's reference."""
    return _TRANSCRIPTS.validate_json(row.speech) if row.speech else {}


class SpeechReader:
    """Transcribes the recordings of messages.

    Args:
        engine: Transcribes recordings without a platform transcript; None = they are not transcribed.
        inbox: Stores the transcripts. Its calls are repeated until the journal works.
        delivery: Sends the notes. Its calls are repeated, too.
    """

    def __init__(
        self,
        config: VoiceConfig,
        engine: SpeechEngine | None,
        *,
        inbox: InboxStore,
        delivery: DeliveryWorker,
        stats: SpeechStats,
        now: Clock = time.time,
    ) -> None:
        self._config, self._engine, self._stats = config, engine, stats
        self._inbox, self._delivery, self._now = inbox, delivery, now

    def of_message(self, row: InboxRow, inbound: InboundMessage) -> ReadSpeech:
        """Return the function that reads the recordings of a message. Call it for one recording after another."""
        message = _Message(
            row=row,
            inbound=inbound,
            adapter=self._delivery.adapter(row.key.channel),
            transcripts=stored_transcripts(row),
        )

        async def read(file: Attachment, audio: Path, name: str) -> str:
            return await self._read(message, file, audio, name)

        return read

    async def _read(self, message: _Message, file: Attachment, audio: Path, name: str) -> str:
        digest = hashlib.sha256(file.ref.encode()).hexdigest()[:16]
        transcript = message.transcripts.get(digest)
        if transcript is None:
            try:
                transcript = await self._transcribe(message.adapter, file, audio)
            except SpeechError as error:
                log.warning("a recording was not transcribed: %s", error)
                self._record(message, error)
                failed = message.texts.speech_failed.format
                reason = self._reason(error.failure, message.texts)
                notes = self._notes(message, digest, f"⚠️ {failed(name=file.name, reason=reason)}")
                await self._delivery.enqueue(message.row.key, notes)
                return f"[{failed(name=name, reason=reason)}]"
            if transcript is None:
                return ""
            self._record(message, transcript)
            await self._store(message, digest, transcript)
        words = _words_for_agent(transcript, name, message.texts)
        # Someone else said it. Mark it as a quotation, because the agent learns nothing about people from quotations.
        return _quotation(words) if file.is_quoted else words

    async def _transcribe(
        self, adapter: Adapter, file: Attachment, audio: Path
    ) -> Transcript | None:
        """Return the transcript; None = speech is not transcribed here. Raises SpeechError."""
        if isinstance(adapter, SupportsTranscripts):
            try:
                found = await adapter.find_transcript(file, audio)
            except DeliveryError as error:
                log.warning("%s has no transcript: %s", adapter.name, error.user_message)
                found = None
            if found is not None:
                return found
        if self._engine is None:
            return None
        if file.duration_s is not None and file.duration_s > self._config.max_seconds:
            raise SpeechError("too_long", f"{file.duration_s:.0f} s")
        size = (await to_thread.run_sync(audio.stat)).st_size
        if size > self._config.max_bytes:
            raise SpeechError("too_large", f"{size} bytes")
        return await self._engine.transcribe(file, audio, size)

    async def _store(self, message: _Message, digest: str, transcript: Transcript) -> None:
        message.transcripts[digest] = transcript
        stored = _TRANSCRIPTS.dump_json(message.transcripts).decode()
        shown = transcript.text or message.texts.speech_empty
        if len(shown) > MAX_SHOWN_CHARS:
            shown = f"{shown[:MAX_SHOWN_CHARS]}…"
        notes = self._notes(message, digest, f"🎤 {shown}") if self._config.show_transcript else []
        await self._inbox.set_speech(message.row.id, stored, notes)
        self._delivery.notify(message.row.key)

    def _notes(self, message: _Message, digest: str, text: str) -> list[NewOutboxRow]:
        """Return the row of a note; none if people have already seen it, or if the agent may stay silent."""
        row, inbound = message.row, message.inbound
        if inbound.may_be_declined or inbound.rewind_point is not None:
            return []
        note = OutboundNote(channel=row.key.channel, reply_target=inbound.reply_target, text=text)
        key = f"{row.id}:speech:{digest}"
        return [NewOutboxRow(key=key, conversation=row.key, body=encode_outbound(note))]

    def _reason(self, failure: SpeechFailure, texts: Messages) -> str:
        limits = {
            "seconds": self._config.max_seconds,
            "megabytes": self._config.max_bytes // 1_000_000,
        }
        return texts.speech_why(failure).format(**limits)

    def _record(self, message: _Message, outcome: Transcript | SpeechError) -> None:
        at, user_id = self._now(), message.inbound.author.user_id
        if isinstance(outcome, SpeechError):
            failed = Recording(
                at=at, user_id=user_id, outcome=outcome.failure, detail=outcome.detail
            )
            self._stats.record(message.row.key, failed)
            return
        heard = Recording(at=at, user_id=user_id, outcome="ok", source=outcome.source)
        self._stats.record(message.row.key, heard, outcome.duration_s or 0.0)


def _quotation(words: str) -> str:
    return "\n".join(f"> {line}" for line in words.splitlines())


def _words_for_agent(transcript: Transcript, name: str, texts: Messages) -> str:
    r"""Return a transcript, marked as speech.

    >>> _words_for_agent(Transcript(text="Call me.", language="en", source="x"), "voice.ogg", Messages())
    '[Speech in voice.ogg, language: en]\nCall me.'
    """
    language = f", language: {transcript.language}" if transcript.language else ""
    return f"[Speech in {name}{language}]\n{transcript.text or texts.speech_empty}"
