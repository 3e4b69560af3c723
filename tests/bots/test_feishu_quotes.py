"""The agent gets the messages that people reply to, with their authors. Real adapter, fake platform."""

from dataclasses import replace

import pytest

from bots.feishu.adapter import FeishuAdapter
from bots.feishu.quotes import MAX_OWN_CHARS
from bus.messages import InboundMessage
from gateway.playground.feishu.server import FakeFeishu, FeishuMessage
from tests.bots.feishu_rig import QUICK, adapter_for, place_of, running
from tests.fakes.intake import RecordingIntake

GROUP = "oc_team"


async def asked(
    feishu: FakeFeishu,
    intake: RecordingIntake,
    text: str,
    reply_to: FeishuMessage | None = None,
    thread: str = "",
) -> InboundMessage:
    known = len(intake.received)
    replied = reply_to.id if reply_to else ""
    await feishu.mention(text, chat=GROUP, reply_to=replied, thread=thread)
    await feishu.wait_for(lambda: len(intake.received) > known)
    return intake.received[-1]


async def said(
    feishu: FakeFeishu, intake: RecordingIntake, text: str, thread: str = ""
) -> FeishuMessage:
    known = len(intake.received)
    message = await feishu.say(text, chat=GROUP, user="ou_bob", thread=thread)
    await feishu.wait_for(lambda: len(intake.received) > known)
    return message


async def card(
    adapter: FeishuAdapter, feishu: FakeFeishu, question: FeishuMessage, text: str = "hi"
) -> FeishuMessage:
    sent = await adapter.send(place_of(question), text, key=f"k {question.id}")
    return feishu.state.messages[sent.partition(" ")[0]]


async def test_another_persons_message_is_quoted_in_each_reply_to_it() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        first = await said(feishu, intake, "at nine\nor ten")
        inbound = await asked(feishu, intake, "translate this", first)
        assert (inbound.text, inbound.quoted) == ("translate this", "> at nine\n> or ten")
        feishu.state.people["ou_bob"] = "Bob"
        assert (await asked(feishu, intake, "and now?", first)).quoted == "> Bob: at nine\n> or ten"
        assert (await asked(feishu, intake, "/help", first)).prompt == "/help"
        assert feishu.violations == []


async def test_earlier_messages_to_the_bot_are_quoted() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        question = await feishu.mention("hello", chat=GROUP)
        await feishu.wait_for(lambda: intake.received)
        assert (await asked(feishu, intake, "again", question)).quoted == "> @Parley hello"


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("private", [False, True])
async def test_the_bots_own_words_are_quoted_as_its_own(streams: bool, private: bool) -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), intake):
        if streams:
            feishu.allow_cardkit()
        question = await (feishu.dm("hello") if private else feishu.mention("hello", chat=GROUP))
        target = place_of(question)
        sent = await adapter.start_streaming(target, "", key="k")
        await adapter.update_streaming(target, sent, "a < b\n\n- `x_y`", final=True)
        answer = sent.partition(" ")[0]
        await (
            feishu.dm("why?", reply_to=answer)
            if private
            else feishu.mention("why?", chat=GROUP, reply_to=answer)
        )
        await feishu.wait_for(lambda: len(intake.received) == 2)
        inbound = intake.received[1]
        assert (inbound.text, inbound.quoted) == ("why?", "> You: a < b\n>\n> - `x_y`")
        assert feishu.violations == []


async def test_long_words_of_its_own_are_shortened_visibly() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), intake):
        question = await feishu.mention("hello", chat=GROUP)
        await feishu.wait_for(lambda: intake.received)
        answer = await card(adapter, feishu, question, "word " * 4_000)
        quoted = (await asked(feishu, intake, "why?", answer)).quoted
        assert len(quoted) < MAX_OWN_CHARS + 100
        assert quoted.endswith("more characters]")
        long = await said(feishu, intake, "word " * 4_000)
        assert len((await asked(feishu, intake, "why?", long)).quoted) > 19_000


async def test_cards_of_other_bots_are_read() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        alert = FeishuMessage(
            "om_alert", GROUP, "cli_ci", "interactive",
            {"schema": "2.0", "header": {"title": {"tag": "plain_text", "content": "Build 7"}},
             "body": {"elements": [{"tag": "markdown", "content": "failed, <at id=ou_bob></at>"}]}},
        )  # fmt: skip
        feishu.state.people |= {"cli_ci": "CI", "ou_bob": "Bob"}
        feishu.state.members[GROUP] = ["ou_bob"]
        feishu.allow_names()
        feishu.state.add(alert)
        inbound = await asked(feishu, intake, "what is this?", alert)
        assert inbound.quoted == "> CI: **Build 7**\n> failed, @Bob"
        assert feishu.violations == []


async def test_the_first_message_of_a_topic_is_quoted_once_and_again_after_a_command() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        first = await said(feishu, intake, "at nine")
        inbound = await asked(feishu, intake, "is that right?", first, "omt_1")
        assert (inbound.quoted, inbound.key.topic) == ("> at nine", "omt_1")
        assert (await asked(feishu, intake, "sure?", first, "omt_1")).quoted == ""
        await asked(feishu, intake, "/new", first, "omt_1")
        assert (await asked(feishu, intake, "is that right?", first, "omt_1")).quoted == "> at nine"
        assert (await asked(feishu, intake, "and here?", first, "omt_2")).quoted == "> at nine"


async def test_a_topic_that_began_with_a_question_to_the_bot_has_it() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        question = await feishu.mention("hello", chat=GROUP, thread="omt_1")
        await feishu.wait_for(lambda: intake.received)
        assert (await asked(feishu, intake, "again", question, "omt_1")).quoted == ""


async def test_files_of_another_message_are_named_and_taken_along() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), intake):
        feishu.state.resources["img_v3_9"] = ("image", "image/png", b"picture")
        picture = await feishu.message(
            "image", {"image_key": "img_v3_9"}, chat=GROUP, user="ou_bob"
        )
        await feishu.wait_for(lambda: intake.received)
        inbound = await asked(feishu, intake, "what is this?", picture)
        assert inbound.quoted == "> [image: image.png]"
        (file,) = inbound.attachments
        async with adapter.download(file, max_bytes=100) as chunks:
            assert b"".join([chunk async for chunk in chunks]) == b"picture"


async def test_a_reply_without_a_mention_is_complete_for_the_bus_to_decide() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), intake):
        question = await feishu.mention("where?", chat=GROUP)
        answer = await card(adapter, feishu, question, "Where are you?")
        place = {"name": "Main St 1", "longitude": "1.5", "latitude": "2.5"}
        await feishu.message("location", place, chat=GROUP, reply_to=answer.id)
        await feishu.message("sticker", {"file_key": "k"}, chat=GROUP, reply_to=answer.id)
        await feishu.wait_for(lambda: len(intake.received) == 3)
        assert [message.prompt for message in intake.received[1:]] == [
            "[Location: Main St 1, 2.5, 1.5]\n\n> You: Where are you?",
            "[Sticker]\n\n> You: Where are you?",
        ]
        assert not any(message.is_addressed for message in intake.received[1:])
        assert intake.received[1].replies_to == (answer.id, question.id)
        await feishu.message("sticker", {"file_key": "k"}, chat=GROUP)
        await feishu.wait_for(lambda: intake.ignored)


async def test_an_unreadable_quotation_is_named_without_waiting() -> None:
    intake, hurried = RecordingIntake(), replace(QUICK, lookup_s=0.05)
    unreadable = "> [Not readable here: the message that this one replies to]"
    async with FakeFeishu() as feishu, running(adapter_for(feishu, timeouts=hurried), intake):
        first = await said(feishu, intake, "at nine")
        feishu.fail("message.get", times=2, delay_s=30.0)
        assert (await asked(feishu, intake, "translate this", first)).quoted == unreadable
        feishu.state.failures.clear()
        first.gone = True
        assert (await asked(feishu, intake, "translate this", first)).quoted == "> [Withdrawn]"
        feishu.rest.scopes -= {"im:message:readonly"}
        second = await said(feishu, intake, "at ten")
        assert (await asked(feishu, intake, "translate this", second)).quoted == unreadable


async def test_a_mention_alone_is_about_what_it_replies_to_and_else_asks_for_help() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        first = await said(feishu, intake, "at nine")
        assert (await asked(feishu, intake, "", first)).prompt == "> at nine"
        for chat in (GROUP, "oc_other"):
            await feishu.mention("", chat=chat)
        await feishu.wait_for(lambda: len(intake.received) == 4)
        assert intake.texts[2:] == ["/help", "/help"]


async def test_recordings_have_a_length_and_belong_to_somebody() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        spoken = await feishu.voice(b"OggS", seconds=2.5)
        await feishu.wait_for(lambda: len(intake.received) == 1)
        [file] = intake.received[0].attachments
        assert (file.is_speech, file.duration_s, file.is_quoted) == (True, 2.5, False)
        await feishu.dm("what is that?", reply_to=spoken.id)
        await feishu.wait_for(lambda: len(intake.received) == 2)
        [file] = intake.received[1].attachments
        assert (file.is_speech, file.duration_s, file.is_quoted) == (True, 2.5, True)
