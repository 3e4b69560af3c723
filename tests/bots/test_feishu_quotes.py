"""What a group message replies to reaches the agent, once. Real adapter, fake platform."""

from dataclasses import replace

from bots.feishu.adapter import FeishuAdapter
from bus.messages import InboundMessage, ReplyTarget
from tests.bots.feishu_rig import QUICK, adapter_for, place_of, running
from tests.fakes.feishu import FakeFeishu, FeishuMessage
from tests.fakes.intake import RecordingIntake

GROUP = "oc_team"


async def asked(
    feishu: FakeFeishu,
    intake: RecordingIntake,
    text: str,
    reply_to: FeishuMessage,
    thread: str = "",
) -> InboundMessage:
    known = len(intake.received)
    await feishu.mention(text, chat=GROUP, reply_to=reply_to.id, thread=thread)
    await feishu.wait_for(lambda: len(intake.received) > known)
    return intake.received[-1]


async def said(feishu: FakeFeishu, intake: RecordingIntake, text: str) -> FeishuMessage:
    known = len(intake.received)
    message = await feishu.say(text, chat=GROUP, user="ou_bob")
    await feishu.wait_for(lambda: len(intake.received) > known)
    return message


async def test_what_another_person_said_is_quoted_once() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        first = await said(feishu, intake, "at nine\nor ten")
        inbound = await asked(feishu, intake, "translate this", first)
        assert inbound.prompt == "translate this\n\n> at nine\n> or ten"
        assert (await asked(feishu, intake, "and now?", first)).prompt == "and now?"
        assert (await asked(feishu, intake, "/help", first)).prompt == "/help"
        assert feishu.violations == []


async def test_what_was_said_in_a_topic_is_quoted() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        first = await said(feishu, intake, "at nine")
        inbound = await asked(feishu, intake, "is that right?", first, "omt_1")
        assert inbound.prompt == "is that right?\n\n> at nine"
        assert inbound.key.topic == "omt_1"


async def test_files_of_another_person_are_taken_along() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        feishu.state.resources["img_v3_9"] = ("image", "image/png", b"picture")
        picture = await feishu.message(
            "image", {"image_key": "img_v3_9"}, chat=GROUP, user="ou_bob"
        )
        await feishu.wait_for(lambda: intake.received)
        inbound = await asked(feishu, intake, "what is this?", picture)
        assert inbound.prompt == "what is this?"
        assert [file.kind for file in inbound.attachments] == ["image"]


async def test_what_the_conversation_has_already_is_not_quoted() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), intake):
        question = await feishu.mention("hello", chat=GROUP)
        await feishu.wait_for(lambda: intake.received)
        assert (await asked(feishu, intake, "again", question)).prompt == "again"
        answer = await card(adapter, feishu, question)
        assert (await asked(feishu, intake, "go on", answer)).prompt == "go on"


async def test_a_message_that_cannot_be_read_is_not_waited_for() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        first = await said(feishu, intake, "at nine")
        first.gone = True
        assert (await asked(feishu, intake, "translate this", first)).prompt == "translate this"
        feishu.rest.scopes -= {"im:message:readonly"}
        second = await said(feishu, intake, "at ten")
        assert (await asked(feishu, intake, "translate this", second)).prompt == "translate this"


async def test_what_a_message_replies_to_is_not_waited_for_beyond_its_time() -> None:
    intake, hurried = RecordingIntake(), replace(QUICK, quote_s=0.05)
    async with FakeFeishu() as feishu, running(adapter_for(feishu, timeouts=hurried), intake):
        first = await said(feishu, intake, "at nine")
        feishu.fail("message.get", delay_s=30.0)
        assert (await asked(feishu, intake, "translate this", first)).prompt == "translate this"


async def test_the_author_is_named_once_somebody_mentioned_them() -> None:
    intake = RecordingIntake()
    bob = [{"key": "@_user_1", "id": {"open_id": "ou_bob"}, "name": "Bob"}]
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        await feishu.say("@_user_1 when?", chat=GROUP, mentions=bob)
        first = await said(feishu, intake, "at nine")
        inbound = await asked(feishu, intake, "is that right?", first)
        assert inbound.prompt == "is that right?\n\n> Bob: at nine"


async def test_a_mention_alone_is_about_what_it_replies_to_and_else_asks_for_help() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        first = await said(feishu, intake, "at nine")
        assert (await asked(feishu, intake, "", first)).prompt == "> at nine"
        for chat in (GROUP, "oc_other"):
            await feishu.mention("", chat=chat)
        await feishu.wait_for(lambda: len(intake.received) == 4)
        assert intake.texts[2:] == ["/help", "/help"]


async def card(
    adapter: FeishuAdapter, feishu: FakeFeishu, question: FeishuMessage
) -> FeishuMessage:
    target: ReplyTarget = place_of(question)
    sent = await adapter.send(target, "hi", key="k1")
    return feishu.state.messages[sent.partition(" ")[0]]
