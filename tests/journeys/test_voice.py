"""Voice messages are transcribed for the agent and for people, on every platform."""

from pathlib import Path
from typing import Any

from gateway.playground.telegram.chats import TelegramUpload
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.fakes.speech import FakeSpeechServer, SpeechAnswer
from tests.journeys.service import serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")
SPEECH = (Path(__file__).parents[2] / "gateway" / "checks" / "speech.ogg").read_bytes()


def answer(request: ModelRequest) -> ModelReply:
    """Repeat the agent's input."""
    return ModelReply(text=f"Heard: {request.last_user_text}")


async def says(
    platforms: PlatformServers,
    user: ChatUser,
    audio: bytes = SPEECH,
    *,
    kind: str = "voice",
    **extra: object,
) -> None:
    """Send a person's voice message in a private chat. `extra`: fields of Slack's file object."""
    match user.channel:
        case "slack":
            clip = {"subtype": "slack_audio", "duration_ms": 1259, **extra}
            file = platforms.slack.file("audio_message.ogg", audio, "audio/ogg", **clip)
            platforms.slack.dm("", user=user.chat[1:], files=[file], subtype="file_share")
        case "telegram":
            mime = "audio/ogg" if audio.startswith(b"OggS") else "video/mp4"
            upload = TelegramUpload(name="voice", content=audio, mime=mime)
            platforms.telegram.send_file(int(user.chat), upload, kind=kind, user=int(user.chat))
        case _:
            await platforms.feishu.voice(
                audio, seconds=1.259, user=user.chat.removeprefix("oc_dm_")
            )


def with_voice(
    platforms: PlatformServers, model: FakeModelServer, voice: dict[str, Any]
) -> dict[str, Any]:
    return {**with_model(model.base_url), "channels": platforms.channels, "voice": voice}


def notes(user: ChatUser) -> list[str]:
    """Return the notes that a person sees."""
    return [text for text in user.bot_messages() if text.startswith(("🎤", "⚠️"))]


def answers(user: ChatUser) -> list[str]:
    return [text for text in user.bot_messages() if text.startswith("Heard: ")]


def small_type(platforms: PlatformServers, user: ChatUser, text: str) -> object:
    """Return a note in its platform's formatting."""
    match user.channel:
        case "slack":
            [message] = [one for one in platforms.slack.messages(user.chat) if text in one.words]
            return message.blocks
        case "telegram":
            chat = platforms.telegram.chat(int(user.chat))
            [found] = [one for one in chat.messages.values() if one.text == text]
            return found.entities
        case _:
            [card] = [one for one in platforms.feishu.answers(user.chat) if one.text == text]
            return card.content["body"]["elements"]


async def test_voice_messages_are_transcribed_shown_and_answered(tmp_path: Path) -> None:
    async with (
        PlatformServers() as platforms,
        FakeModelServer(answer=answer) as model,
        FakeSpeechServer() as speech,
    ):
        config = with_voice(platforms, model, speech.config)
        async with serving(tmp_path, config, *PLATFORMS) as service:
            for number, user in enumerate(platforms.private_users(1)):
                speech.answer(SpeechAnswer(text=f"*Call* me, number {number}."))
                await says(platforms, user)
                await user.wait_for_message("Heard:")
                told = model.requests[-1].last_user_text
                assert f", language: english]\n*Call* me, number {number}." in told
                assert "[Attached: " not in told
                text = f"🎤 *Call* me, number {number}."
                await user.wait_for_message(text)
                assert notes(user) == [text]
                assert user.bot_messages()[0] == text  # above the answer, also of a growing one
                length = len(text) + 1  # UTF-16 units
                assert (
                    small_type(platforms, user, text)
                    == {
                        "slack": [
                            {
                                "type": "context",
                                "elements": [{"type": "plain_text", "text": text, "emoji": False}],
                            }
                        ],
                        "telegram": [{"type": "blockquote", "offset": 0, "length": length}],
                        "feishu": [
                            {
                                "tag": "div",
                                "text": {
                                    "tag": "plain_text",
                                    "content": text,
                                    "text_size": "notation",
                                    "text_color": "grey",
                                },
                            }
                        ],
                    }[user.channel]
                )
            async with service.client() as client:
                metrics = (await client.get("/metrics")).text
            assert 'parley_recordings_total{channel="slack",outcome="ok"} 1.0' in metrics
            assert 'parley_recording_seconds_total{channel="feishu"} 1.5' in metrics
            assert await service.stop() == 0
        assert [one.filename for one in speech.requests] == ["speech.ogg"] * 3
        assert {one.audio for one in speech.requests} == {SPEECH}
        assert (speech.violations, platforms.violations) == ([], [])
        log = service.log.read_text()
        assert "Traceback" not in log
        assert speech.api_key not in log


async def test_killed_in_mid_transcription_everybody_is_heard_and_answered_once(
    tmp_path: Path, with_database: dict[str, Any]
) -> None:
    async with (
        PlatformServers() as platforms,
        FakeModelServer(answer=answer) as model,
        FakeSpeechServer() as speech,
    ):
        config = {**with_voice(platforms, model, speech.config), **with_database}
        users = platforms.private_users(1)
        speech.answer(*[SpeechAnswer(holds=True)] * 3, *[SpeechAnswer(text="Call me.")] * 3)
        async with serving(tmp_path, config, *PLATFORMS) as service:
            for user in users:
                await says(platforms, user)
            await eventually(lambda: len(speech.requests) == 3)
            await service.kill()
            await service.start()
            await service.until_connected(*PLATFORMS)
            for user in users:
                await user.wait_for_message("Heard:", "Call me.")
            await service.until_recorded()
            for user in users:
                assert (notes(user), len(answers(user))) == (["🎤 Call me."], 1)
        # The service cannot know that the first request had no effect.
        assert len(speech.requests) == 6
        assert (speech.violations, platforms.violations) == ([], [])


async def test_killed_after_the_transcription_nothing_is_transcribed_again(
    tmp_path: Path, with_database: dict[str, Any]
) -> None:
    async with (
        PlatformServers() as platforms,
        FakeModelServer() as model,
        FakeSpeechServer(texts=["Call me."] * 3) as speech,
    ):
        config = {**with_voice(platforms, model, speech.config), **with_database}
        users = platforms.private_users(1)
        model.reply(*[ModelReply(text="never to be finished", hang_after=2)] * 3)
        async with serving(tmp_path, config, *PLATFORMS) as service:
            for user in users:
                await says(platforms, user)
            await model.until(lambda m: len(m.requests) == 3)
            for user in users:
                await user.wait_for_message("🎤 Call me.")
            await service.until_recorded()
            model.answer = answer
            await service.kill()
            await service.start()
            await service.until_connected(*PLATFORMS)
            for user in users:
                await user.wait_for_message("Heard:", "Call me.")
            await service.until_recorded()
            for user in users:
                assert (notes(user), len(answers(user))) == (["🎤 Call me."], 1)
        assert len(speech.requests) == 3
        assert platforms.violations == []
