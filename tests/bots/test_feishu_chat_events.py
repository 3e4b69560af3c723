"""Feishu events about chats, deleted messages, and clicks in the bot's menu. Real adapter, fake platform."""

from typing import Any

import pytest

from bus.errors import StoreError
from bus.locales.en import ENGLISH
from bus.locales.zh import CHINESE
from bus.messages import Button, MessageDeletion, ReplyTarget
from bus.platform import ConnectionState, Disposition
from gateway.playground.feishu.server import FakeFeishu
from tests.bots.feishu_rig import adapter_for, running
from tests.fakes.intake import RecordingIntake

ALICE = "oc_dm_ou_alice"


async def test_a_person_is_greeted_before_their_first_message_only() -> None:
    async with FakeFeishu() as feishu, running(adapter_for(feishu), RecordingIntake()):
        opened = await feishu.open_chat()
        (hello,) = await feishu.wait_for(lambda: feishu.answers(ALICE))
        assert ENGLISH.hello_private in hello.text
        assert CHINESE.hello_private in hello.text
        await feishu.wait_for(lambda: opened.acked)
        feishu.push_again(opened)
        again = await feishu.open_chat()
        await feishu.wait_for(lambda: again.acked and opened.acked)
        assert len(feishu.answers(ALICE)) == 1
        assert feishu.violations == []


@pytest.mark.parametrize(
    ("settings", "greeted"),
    [
        ({}, True),
        ({"allowed_users": ["ou_alice"]}, True),
        ({"allowed_users": ["ou_bob"]}, False),
        ({"dm_policy": "disabled"}, False),
        ({"dm_policy": "pairing"}, True),
    ],
)
async def test_people_who_may_not_write_are_not_greeted(
    settings: dict[str, Any], greeted: bool
) -> None:
    async with FakeFeishu() as feishu, running(adapter_for(feishu, **settings), RecordingIntake()):
        opened = await feishu.open_chat()
        await feishu.wait_for(lambda: opened.acked)
        await feishu.add_bot("oc_room")  # greeted later, and always
        await feishu.wait_for(lambda: feishu.answers("oc_room"))
        if greeted:
            await feishu.wait_for(lambda: feishu.answers(ALICE))
        assert bool(feishu.answers(ALICE)) is greeted


async def test_a_group_is_greeted_in_the_default_language_when_the_bot_is_added() -> None:
    async with (
        FakeFeishu() as feishu,
        running(adapter_for(feishu, language="zh"), RecordingIntake()),
    ):
        await feishu.add_bot("oc_room")
        await feishu.wait_for(lambda: feishu.answers("oc_room"))
        assert [hello.text for hello in feishu.answers("oc_room")] == [CHINESE.hello_group]
        feishu.remove_bot("oc_room")
        await feishu.add_bot("oc_room")
        await feishu.wait_for(lambda: len(feishu.answers("oc_room")) == 2)


async def test_adding_the_bot_to_a_group_approves_the_group_if_the_person_may() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        feishu.outsiders["ou_eve"] = "tenant_9"
        intake.errors.append(StoreError("full"))  # not acknowledged: Feishu sends it again
        await feishu.add_bot("oc_room")
        await feishu.wait_for(lambda: feishu.answers("oc_room"))
        await feishu.add_bot("oc_hall", user="ou_eve")
        await feishu.wait_for(lambda: feishu.answers("oc_hall"))
    assert intake.added == [("oc_room", "ou_alice", "member"), ("oc_hall", "ou_eve", "external")]
    assert intake.errors == []


async def test_a_greeting_that_cannot_be_sent_is_left() -> None:
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), RecordingIntake()):
        feishu.fail("message.create", status=400, code=230013)
        opened = await feishu.open_chat()
        await feishu.wait_for(lambda: opened.acked and feishu.calls("message.create"))
        assert len(feishu.calls("message.create")) == 1
        assert adapter.health().state is ConnectionState.CONNECTED


async def test_people_of_another_tenant_are_external_in_messages_presses_and_the_menu() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), intake):
        feishu.outsiders["ou_eve"] = "tenant_9"
        inside, outside = await feishu.dm("hello"), await feishu.dm("hello", user="ou_eve")
        await feishu.wait_for(lambda: len(intake.received) == 2)
        kinds = {i.sender.user_id: i.sender.kind for i in intake.received}
        assert kinds == {"ou_alice": "member", "ou_eve": "external"}
        assert {i.key.workspace for i in intake.received} == {"tenant_1"}
        await feishu.click_menu("new", user="ou_eve")
        await feishu.wait_for(lambda: len(intake.received) == 3)
        assert intake.received[2].sender.kind == "external"
        button = Button(label="Stop", token="stop:1:0")
        target = ReplyTarget(chat=inside.chat, reply_to=inside.id)
        await adapter.send_with_buttons(target, "Working", (button,), key="k")
        (answer,) = feishu.answers(inside.chat)
        for user in ("ou_alice", "ou_eve"):
            await feishu.press(answer, "Stop", user=user)
        await feishu.wait_for(lambda: len(intake.pressed) == 2)
        kinds = {press.sender.user_id: press.sender.kind for press in intake.pressed}
        assert kinds == {"ou_alice": "member", "ou_eve": "external"}
    assert outside.sender == "ou_eve"


async def test_a_click_in_the_menu_is_the_command_it_names() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        asked = await feishu.dm("hello")
        await feishu.wait_for(lambda: feishu.event_of(asked).acked)
        clicked = await feishu.click_menu("/new")
        await feishu.wait_for(lambda: clicked.acked)
    inbound = intake.received[-1]
    assert (inbound.text, inbound.key.chat, inbound.event_id) == ("/new", ALICE, clicked.id)
    assert (inbound.is_private, inbound.is_addressed) == (True, True)
    assert inbound.reply_target == ReplyTarget(chat=ALICE)
    assert inbound.key == intake.received[0].key


async def test_a_click_in_a_chat_that_is_not_known_is_explained() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        clicked = await feishu.click_menu("new")
        (told,) = await feishu.wait_for(lambda: feishu.answers(ALICE))
        await feishu.wait_for(lambda: clicked.acked)
        assert ENGLISH.menu_unplaced.format(command="`/new`") in told.text
        assert feishu.violations == []
    assert intake.received == []


async def test_an_entry_that_names_no_command_is_counted() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        clicked = await feishu.click_menu("about_us")
        await feishu.wait_for(lambda: clicked.acked)
    ((reason, detail),) = intake.ignored
    assert reason is Disposition.UNSUPPORTED
    assert "about_us" in detail


async def test_a_deletion_is_handled_after_its_message() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        asked = await feishu.dm("hello")
        await feishu.wait_for(lambda: feishu.event_of(asked).acked)
        told = await feishu.withdraw(asked)
        await feishu.wait_for(lambda: told.acked)
    (change,) = intake.changed
    assert isinstance(change, MessageDeletion)
    assert (change.message_id, change.key.chat) == (asked.id, ALICE)


@pytest.mark.parametrize("kind", ["im.chat.member.bot.deleted_v1", "im.chat.disbanded_v1"])
async def test_a_chat_that_ends_is_counted(kind: str) -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        told = await feishu.push(kind, {"chat_id": "oc_room", "operator_id": {"open_id": "ou_a"}})
        await feishu.wait_for(lambda: told.acked)
    assert intake.ignored == [(Disposition.UNSUPPORTED, kind)]
