"""Recordings in messages: when people see the transcript, and when recordings are transcribed again."""

import re
from dataclasses import replace
from pathlib import Path

from bus.messages import Attachment
from bus.voice.config import VoiceConfig
from tests.bus.harness import OPEN, running_bus, running_steered_bus
from tests.bus.test_uploads import DownloadingPlatform
from tests.eventually import eventually
from tests.fakes.langgraph import Script
from tests.fakes.speech import FakeSpeechServer, SpeechAnswer

VOICE = Attachment(
    name="voice.ogg", mime="audio/ogg", kind="audio", ref="r1", is_speech=True, duration_s=2
)
OGG = b"OggS and more"


def platform() -> DownloadingPlatform:
    made = DownloadingPlatform()
    made.content = {"r1": [OGG], "r2": [OGG]}
    return made


def config(speech: FakeSpeechServer, **more: object) -> VoiceConfig:
    return VoiceConfig.model_validate({**speech.config, **more})


async def test_words_and_recordings_reach_the_agent_together(tmp_path: Path) -> None:
    second = Attachment(name="voice.ogg", mime="audio/ogg", kind="audio", ref="r2", is_speech=True)
    async with (
        FakeSpeechServer(texts=["Call me.", ""]) as speech,
        running_bus(tmp_path, platform=platform(), voice=config(speech)) as harness,
    ):
        await harness.send("Listen", attachments=(VOICE, second), quoted="> Bob: hi")
        await eventually(lambda: "Hello you" in harness.platform.texts)
        # Platforms without small type show a quotation.
        assert harness.platform.texts == ["> 🎤 Call me.", "> 🎤 (no words)", "Hello you"]
        [prompt] = harness.prompts()
        lines = re.sub(r"voice-\w{8}", "voice", prompt).splitlines()
        assert lines == [
            "Listen", "", "> Bob: hi",
            "[Speech in voice.ogg, language: english]", "Call me.",
            "[Speech in voice.ogg, language: english]", "(no words)",
        ]  # fmt: skip
        assert speech.violations == []


async def test_the_words_of_a_message_that_this_one_replies_to_are_quoted(tmp_path: Path) -> None:
    async with (
        FakeSpeechServer(texts=["Call me.\n\nAt five."]) as speech,
        running_bus(tmp_path, platform=platform(), voice=config(speech)) as harness,
    ):
        await harness.send("What does she say?", attachments=(replace(VOICE, is_quoted=True),))
        await eventually(lambda: "Hello you" in harness.platform.texts)
        lines = re.sub(r"voice-\w{8}", "voice", harness.prompts()[0]).splitlines()
        assert lines[1:] == [
            "> [Speech in voice.ogg, language: english]", "> Call me.", "> ", "> At five.",
        ]  # fmt: skip


async def test_without_an_engine_a_recording_is_a_file(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform()) as harness:
        await harness.send("", attachments=(VOICE,))
        await harness.expect_replies("Hello you")
        assert harness.prompts()[0].startswith("[Attached: voice-")


async def test_what_people_say_to_each_other_is_not_repeated(tmp_path: Path) -> None:
    async with (
        FakeSpeechServer() as speech,
        running_bus(
            tmp_path,
            platform=platform(),
            policy=OPEN.model_copy(update={"group_policy": "open"}),
            voice=config(speech),
        ) as harness,
    ):
        speech.answer(SpeechAnswer(text="Lunch?"), SpeechAnswer(status=400))
        for _ in range(2):
            await harness.send("", attachments=(VOICE,), is_private=False, is_addressed=False)
            await harness.wait_until_finished()
        assert [text for text in harness.platform.texts if "Hello" not in text] == []
        prompts = harness.prompts()
        assert "\nLunch?" in prompts[0]
        assert "was not transcribed: the speech service refused it]" in prompts[1]
        assert (len(prompts), len(speech.requests)) == (2, 2)


async def test_a_failed_answer_that_is_tried_again_shows_the_words_once(tmp_path: Path) -> None:
    async with (
        FakeSpeechServer(texts=["Call me."] * 2) as speech,
        running_bus(tmp_path, platform=platform(), voice=config(speech)) as harness,
    ):
        await harness.send("", attachments=(VOICE,))
        await harness.expect_replies("> 🎤 Call me.", "Hello you")
        await harness.send("/retry")
        await eventually(lambda: len(harness.server.runs) == 2)
        await harness.wait_until_finished()
        assert harness.platform.texts.count("> 🎤 Call me.") == 1
        assert harness.prompts()[0] == harness.prompts()[1]
        assert len(speech.requests) == 1  # the transcript is in the thread


async def test_a_recording_is_injected_as_words(tmp_path: Path) -> None:
    async with (
        FakeSpeechServer(texts=["Stop at three."]) as speech,
        running_steered_bus(tmp_path, platform(), voice=config(speech)) as harness,
    ):
        gate = harness.hold_next_run("Both", " done")
        await harness.send("count to ten")
        await harness.wait_for_runs(1)
        await harness.send("and mind this", attachments=(VOICE,))
        await harness.server.runs[0].injection_arrived.wait()
        gate.set()
        await harness.wait_until_finished()
        await harness.expect_replies("> 🎤 Stop at three.", "Both done")
        injected = harness.thread_messages()[1]
        assert injected.startswith("and mind this\n[Speech in voice-")
        assert injected.endswith(", language: english]\nStop at three.")


async def test_too_large_recordings_stay_here(tmp_path: Path) -> None:
    async with (
        FakeSpeechServer() as speech,
        running_bus(tmp_path, platform=platform(), voice=config(speech, max_bytes=5)) as harness,
    ):
        harness.server.scripts.append(Script(words=("ok",)))
        await harness.send("", attachments=(VOICE,))
        await eventually(lambda: "ok" in harness.platform.texts)
        assert "it is larger than 0 MB" in harness.platform.texts[0]
        assert speech.requests == []
