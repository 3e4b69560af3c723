"""Recordings of people become words, for the agent and for the people, on every platform."""

from pathlib import Path
from typing import Any

from gateway.playground.telegram.chats import TelegramUpload
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.fakes.speech import FakeSpeechServer, SpeechAnswer
from tests.journeys.service import serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")
SPEECH = (Path(__file__).parents[2] / "gateway" / "checks" / "speech.ogg").read_bytes()


def answer(request: ModelRequest) -> ModelReply:
    """Repeat what the agent was told."""
    return ModelReply(text=f"Heard: {request.last_user_text}")


async def says(
    platforms: PlatformServers, user: ChatUser, audio: bytes = SPEECH, *, kind: str = "voice"
) -> None:
    """Send a person's voice message in a private chat."""
    match user.channel:
        case "slack":
            clip = {"subtype": "slack_audio", "duration_ms": 1259}
            file = platforms.slack.file("audio_message.ogg", audio, "audio/ogg", **clip)
            platforms.slack.dm("", user=user.chat[1:], files=[file], subtype="file_share")
        case "telegram":
            upload = TelegramUpload(name="voice", content=audio, mime="audio/ogg")
            platforms.telegram.send_file(int(user.chat), upload, kind=kind, user=int(user.chat))
        case _:
            await platforms.feishu.voice(
                audio, seconds=1.259, user=user.chat.removeprefix("oc_dm_")
            )


def with_voice(
    platforms: PlatformServers, model: FakeModelServer, voice: dict[str, Any]
) -> dict[str, Any]:
    return {**with_model(model.base_url), "channels": platforms.channels, "voice": voice}


async def test_voice_messages_are_transcribed_shown_and_answered(tmp_path: Path) -> None:
    async with (
        PlatformServers() as platforms,
        FakeModelServer(answer=answer) as model,
        FakeSpeechServer() as speech,
    ):
        config = with_voice(platforms, model, speech.config)
        async with serving(tmp_path, config, *PLATFORMS) as service:
            for number, user in enumerate(platforms.private_users(1)):
                speech.answer(SpeechAnswer(text=f"Call me, number {number}."))
                await says(platforms, user)
                said = await user.wait_for_message("Heard:")
                assert f", language: english]\nCall me, number {number}." in said
                assert said.count(f"number {number}") == 1
                shown = [text for text in user.bot_messages() if text.startswith("🎤")]
                assert shown == [f"🎤 Call me, number {number}."]
            assert await service.stop() == 0
        assert [one.filename for one in speech.requests] == ["speech.ogg"] * 3
        assert {one.audio for one in speech.requests} == {SPEECH}
        assert (speech.violations, platforms.violations) == ([], [])
        log = service.log.read_text()
        assert "Traceback" not in log
        assert speech.api_key not in log
