"""Who transcribes: Slack, Feishu, a service, or a local model. People get a notice if none can."""

import stat
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer
from tests.fakes.speech import FakeSpeechServer, SpeechAnswer
from tests.journeys.service import Service, serving, with_model
from tests.journeys.test_voice import SPEECH, answer, notes, says, with_voice
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

MP4 = b"\x00\x00\x00\x20ftypisom" + bytes(100)
STUB_FFMPEG = """#!/bin/sh
# A stub of ffmpeg: half a second of silence as 16 kHz samples, whatever it is given.
echo "$@" >> {calls}
head -c 16000 /dev/zero
"""
STUB_WHISPER = '''"""A stub of faster-whisper: its weights cannot be had here. It repeats the size of the recording."""

from pathlib import Path
from types import SimpleNamespace


class WhisperModel:
    def __init__(self, name):
        if name != "tiny":
            raise ValueError(f"no model {name}")

    def transcribe(self, audio, language=None):
        size = len(Path(audio).read_bytes())
        segments = (SimpleNamespace(text=f" {part}") for part in ("stub", f"{size} bytes."))
        return segments, SimpleNamespace(language=language or "en", duration=1.26)
'''


def only(platforms: PlatformServers, channel: str) -> tuple[dict[str, Any], ChatUser]:
    """Return the configuration of one channel, and a person in a private chat of it."""
    [user] = [one for one in platforms.private_users(1) if one.channel == channel]
    return {channel: platforms.channels[channel]}, user


async def test_slack_transcribes_its_clips_itself(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=answer) as model:
        channels, user = only(platforms, "slack")
        cues = "WEBVTT\n\n00:00.000 --> 00:01.000\nCall me\n\n00:01.000 --> 00:02.000\nat five.\n"
        vtt = platforms.slack.file("file.vtt", cues.encode(), "text/vtt")
        url = platforms.slack.base_url.replace("/api/", f"/files-pri/{vtt['id']}")
        done = {
            "status": "complete", "locale": "en-US", "preview": {"content": "Call me", "has_more": True},
        }  # fmt: skip
        config = {**with_model(model.base_url), "channels": channels}
        async with serving(tmp_path, config, "slack"):
            await says(platforms, user, transcription={"status": "processing"})
            [clip] = [
                one for one in platforms.slack.workspace.files.values() if one.content == SPEECH
            ]
            await eventually(lambda: len(platforms.slack.asked("files.info")) >= 2)
            clip.extra |= {"transcription": done, "vtt": url}
            await user.wait_for_message("Heard:", "language: en-US]\nCall me at five.")
            await eventually(lambda: notes(user) == ["🎤 Call me at five."])
        assert platforms.violations == []


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_feishu_recognizes_voice_messages_itself(tmp_path: Path, *, is_allowed: bool) -> None:
    """With a stub of ffmpeg. Without the scope, the configured service transcribes."""
    calls = tmp_path / "ffmpeg.calls"
    stub = tmp_path / "bin" / "ffmpeg"
    stub.parent.mkdir()
    stub.write_text(STUB_FFMPEG.format(calls=calls))
    stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
    async with (
        PlatformServers() as platforms,
        FakeModelServer(answer=answer) as model,
        FakeSpeechServer(texts=["service"] * 2) as speech,
    ):
        channels, user = only(platforms, "feishu")
        rest = platforms.feishu.rest
        rest.recognized_text = "明天五点打给我"
        rest.scopes |= {"speech_to_text:speech"} if is_allowed else set()
        config = {**with_voice(platforms, model, speech.config), "channels": channels}
        path = {"PATH": f"{stub.parent}:/usr/bin:/bin"}
        async with serving(tmp_path, config, "feishu", environment=path):
            await says(platforms, user)
            await user.wait_for_message("Heard:")
            await says(platforms, user)
            await eventually(lambda: len(notes(user)) == 2)
        if is_allowed:
            assert notes(user) == ["🎤 明天五点打给我"] * 2
            assert rest.recognized_s == [0.5, 0.5]
            assert "-f ogg -i file:" in calls.read_text()
        else:
            assert notes(user) == ["🎤 service"] * 2
            assert len(platforms.feishu.calls("speech")) == 1  # not asked again
        assert len(speech.requests) == (0 if is_allowed else 2)
        assert (speech.violations, platforms.violations) == ([], [])


async def test_a_local_model_transcribes_by_a_stub_of_its_package(tmp_path: Path) -> None:
    package = tmp_path / "faster_whisper"
    package.mkdir()
    (package / "__init__.py").write_text(STUB_WHISPER)
    async with PlatformServers() as platforms, FakeModelServer(answer=answer) as model:
        channels, user = only(platforms, "telegram")
        config = {**with_voice(platforms, model, {"local_model": "tiny"}), "channels": channels}
        # Modules next to the configuration can be imported.
        async with serving(tmp_path, config, "telegram") as service:
            await says(platforms, user)
            await user.wait_for_message("Heard:", f"language: en]\nstub {len(SPEECH)} bytes.")
            code, out, _ = await service.command("doctor")
            assert (code, f"understood “stub {len(SPEECH)} bytes.”" in out) == (0, True)


async def test_video_notes_and_models_without_languages(tmp_path: Path) -> None:
    async with (
        PlatformServers() as platforms,
        FakeModelServer(answer=answer) as model,
        FakeSpeechServer(texts=["Look here.", "And here."], model="gpt-4o-transcribe") as speech,
    ):
        channels, user = only(platforms, "telegram")
        voice = {**speech.config, "show_transcript": False}
        config = {**with_voice(platforms, model, voice), "channels": channels}
        async with serving(tmp_path, config, "telegram"):
            await says(platforms, user, MP4, kind="video_note")
            said = await user.wait_for_message("Heard:", "Look here.")
            assert "language" not in said
            await says(platforms, user, MP4, kind="video")  # it is a file
            said = await user.wait_for_message("[Attached: video-")
            assert "And here." not in said
            await says(platforms, user)
            await user.wait_for_message("And here.")
        assert [one.filename for one in speech.requests] == ["speech.mp4", "speech.ogg"]
        assert [one.fields["response_format"] for one in speech.requests] == ["json", "json"]
        assert notes(user) == []
        assert speech.violations == []


async def test_a_failure_is_one_line_and_the_turn_continues(tmp_path: Path) -> None:
    failing = SpeechAnswer(status=503, error=None)
    async with (
        PlatformServers() as platforms,
        FakeModelServer(answer=answer) as model,
        FakeSpeechServer() as speech,
    ):
        users = platforms.private_users(1)
        voice = {**speech.config, "max_seconds": 2}
        config = with_voice(platforms, model, voice)
        for name, user in zip(("slack", "telegram", "feishu"), users, strict=True):
            config["channels"][name]["admin_users"] = [_user_id(user)]
        async with serving(tmp_path, config, "slack", "telegram", "feishu") as service:
            for user in users:
                # Telegram reports 3 s, beyond the limit. The others fail three times.
                if user.channel != "telegram":
                    speech.answer(SpeechAnswer(status=429, retry_after="0"), failing, failing)
                await says(platforms, user)
                reason = "longer than 2 s" if user.channel == "telegram" else "is not available"
                await user.wait_for_message("Heard:", "was not transcribed: ", reason)
                await user.wait_for_message("⚠️ ", "was not transcribed: ", reason)
                assert len(notes(user)) == 1
                await user.send("/why")
                why = await user.wait_for_message("Recordings in this chat")
                code = "too_long" if user.channel == "telegram" else "unavailable"
                assert f"{code} (" in why.replace("`", "")
            async with service.client() as client:
                metrics = (await client.get("/metrics")).text
            files = await _uploads(service, "telegram")
            assert 'parley_recordings_total{channel="slack",outcome="unavailable"} 1.0' in metrics
            assert 'parley_recordings_total{channel="telegram",outcome="too_long"} 1.0' in metrics
            assert any(name.startswith("voice-") and name.endswith(".ogg") for name in files)
        assert len(speech.requests) == 6
        assert (speech.violations, platforms.violations) == ([], [])


def _user_id(user: ChatUser) -> str:
    return {"slack": user.chat[1:], "telegram": user.chat}.get(
        user.channel, user.chat.removeprefix("oc_dm_")
    )


async def _uploads(service: Service, channel: str) -> list[str]:
    """Return the names of the files of a channel's only thread."""
    wanted = {"metadata": {"channel": channel}}
    async with service.client() as client:
        [thread] = (await client.post("/api/threads/search", json=wanted)).json()
        url = f"/api/threads/{thread['thread_id']}/uploads/list"
        return [file["filename"] for file in (await client.get(url)).json()["files"]]


async def test_a_stop_ends_the_request_to_the_service(tmp_path: Path) -> None:
    async with (
        PlatformServers() as platforms,
        FakeModelServer(answer=answer) as model,
        FakeSpeechServer() as speech,
    ):
        channels, user = only(platforms, "telegram")
        config = {**with_voice(platforms, model, speech.config), "channels": channels}
        speech.answer(SpeechAnswer(holds=True))
        async with serving(tmp_path, config, "telegram"):
            await says(platforms, user)
            await eventually(lambda: len(speech.requests) == 1)
            await user.send("/stop")
            await eventually(lambda: speech.gone == 1)
            await user.send("hello")
            await user.wait_for_message("Heard:", "hello")
        assert notes(user) == []
