"""The speech service: retries, errors in every form, time limits, file names."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import ValidationError

from bus.errors import SpeechError
from bus.messages import Attachment, Transcript
from bus.voice.config import VoiceConfig
from bus.voice.endpoint import MAX_SENTENCE_CHARS, SpeechEndpoint
from tests.fakes.speech import FakeSpeechServer, SpeechAnswer

OGG = b"OggS and more"


@asynccontextmanager
async def endpoint(speech: FakeSpeechServer, **more: object) -> AsyncIterator[SpeechEndpoint]:
    limit_s = float(str(more.pop("limit_s", 30)))
    config = VoiceConfig.model_validate({**speech.config, **more})
    async with SpeechEndpoint.open(config, limit_s=limit_s) as made:
        yield made


async def transcribed(
    made: SpeechEndpoint, folder: Path, name: str = "voice.oga", mime: str = "audio/ogg"
) -> Transcript:
    audio = folder / "audio"
    audio.write_bytes(OGG)
    file = Attachment(name=name, mime=mime, is_speech=True)
    return await made.transcribe(file, audio, len(OGG))


async def failure(made: SpeechEndpoint, folder: Path, name: str = "voice.oga") -> SpeechError:
    with pytest.raises(SpeechError) as found:
        await transcribed(made, folder, name, "audio/x")
    return found.value


async def test_a_transcript_has_its_language_and_length(tmp_path: Path) -> None:
    async with FakeSpeechServer() as speech, endpoint(speech, language="en") as made:
        speech.answer(SpeechAnswer(text=" Call\x00 me. "))
        found = await transcribed(made, tmp_path)
        assert found == Transcript(
            text="Call me.", language="english", source="whisper-1", duration_s=1.5
        )
        [request] = speech.requests
        assert request.fields == {
            "model": "whisper-1",
            "language": "en",
            "response_format": "verbose_json",
        }
        assert (request.filename, request.audio) == ("speech.ogg", OGG)
        assert speech.violations == []


async def test_a_model_without_languages_is_asked_once_for_them(tmp_path: Path) -> None:
    async with FakeSpeechServer(model="gpt-4o-transcribe") as speech:
        async with endpoint(speech, language="de") as made:
            for _ in range(2):
                assert (await transcribed(made, tmp_path)).language == "de"
        assert [one.fields["response_format"] for one in speech.requests] == ["json"] * 2
        assert speech.violations == []


@pytest.mark.parametrize(
    "trouble",
    [
        SpeechAnswer(status=429, retry_after="0"),
        SpeechAnswer(status=500),
        SpeechAnswer(status=503, error=None),
        SpeechAnswer(drops=True),
    ],
    ids=["rate limit", "error", "no JSON", "broken connection"],
)
async def test_a_passing_failure_is_tried_again(tmp_path: Path, trouble: SpeechAnswer) -> None:
    async with FakeSpeechServer() as speech, endpoint(speech) as made:
        speech.answer(trouble, SpeechAnswer(text="Call me."))
        assert (await transcribed(made, tmp_path)).text == "Call me."
        assert len(speech.requests) == 2


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (SpeechAnswer(status=400, error="bad audio"), "HTTP 400: bad audio"),
        (SpeechAnswer(status=404, error="no route", form="fastapi"), "HTTP 404: no route"),
        (SpeechAnswer(status=413, error=None), "HTTP 413: <html>Bad gateway</html>"),
        (SpeechAnswer(status=403, error="x" * 999), f"HTTP 403: {'x' * MAX_SENTENCE_CHARS}"),
    ],
)
async def test_a_refusal_is_final_and_says_why(
    tmp_path: Path, answer: SpeechAnswer, detail: str
) -> None:
    async with FakeSpeechServer() as speech, endpoint(speech) as made:
        speech.answer(answer)
        found = await failure(made, tmp_path)
        assert (found.failure, found.detail) == ("refused", detail)
        assert len(speech.requests) == 1


async def test_a_wrong_key_a_slow_service_and_none_at_all(tmp_path: Path) -> None:
    async with FakeSpeechServer() as speech:
        async with endpoint(speech, api_key="sk-wrong-key") as made:
            found = await failure(made, tmp_path)
            assert found.failure == "refused"
            assert "sk-wrong-key" not in str(found)
        async with endpoint(speech, limit_s=0.3) as made:
            speech.answer(SpeechAnswer(holds=True))
            assert (await failure(made, tmp_path)).failure == "slow"
        speech.release()
        base_url = speech.base_url
    async with endpoint(speech, base_url=base_url, limit_s=20) as made:
        assert (await failure(made, tmp_path)).failure == "unavailable"


@pytest.mark.parametrize("name", ["note.amr", "note", "note.caf"])
async def test_kinds_that_the_service_does_not_take_are_not_sent(tmp_path: Path, name: str) -> None:
    async with FakeSpeechServer() as speech, endpoint(speech) as made:
        assert (await failure(made, tmp_path, name)).failure == "format"
        assert (speech.requests, speech.violations) == ([], [])


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"base_url": "speech.example.org"}, "must start with http"),
        ({"base_url": "https://x.test/v1", "local_model": "small"}, "not both"),
        ({"language": "English"}, "pattern"),
        ({"max_seconds": 0}, "greater than or equal to 1"),
    ],
)
def test_a_section_that_cannot_work_is_refused(section: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        VoiceConfig.model_validate(section)
