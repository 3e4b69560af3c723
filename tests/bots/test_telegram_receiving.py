"""Receiving on Telegram: no update is confirmed before it is stored, and health is accurate."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest
from typing_extensions import override

from bots.config import TelegramConfig
from bots.telegram.adapter import TelegramAdapter, build
from bots.telegram.connection_failures import OTHER_POLLER, OTHER_WEBHOOK
from bus.errors import IntakeClosed, IntakeFull
from bus.locales import messages_for
from bus.messages import MessageEdit
from bus.platform import (
    Adapter,
    CommandInfo,
    ConnectionState,
    Disposition,
    SupportsButtons,
    SupportsDeletion,
    SupportsEditing,
    SupportsIndicators,
    SupportsMessageLookup,
)
from gateway.playground.telegram.chats import TelegramUpload
from gateway.playground.telegram.server import TelegramServer
from tests.bots.telegram_rig import (
    COMMANDS,
    FAST,
    adapter_for,
    config_for,
    linked,
    running,
    talking,
)
from tests.eventually import eventually
from tests.fakes.intake import RecordingIntake

GROUP = -1001234567890


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as server:
        yield server
        assert server.violations == []


async def test_is_the_adapter_that_the_registry_builds(telegram: TelegramServer) -> None:
    adapter = build("telegram", config_for(telegram), COMMANDS)
    assert isinstance(adapter, Adapter)
    assert isinstance(adapter, SupportsButtons)
    assert isinstance(adapter, SupportsEditing)
    assert isinstance(adapter, SupportsDeletion)
    assert isinstance(adapter, SupportsIndicators)
    assert not isinstance(adapter, SupportsMessageLookup)
    assert not adapter.capabilities.streaming
    assert adapter.name == "telegram"
    assert adapter.capabilities.indicator_refresh_s == 4.0
    assert adapter.health().state is ConnectionState.STOPPED


async def test_messages_arrive_in_order_and_are_confirmed(telegram: TelegramServer) -> None:
    for number in range(150):  # more than one batch
        telegram.dm(f"message {number}")
    async with talking(telegram) as (adapter, recorder):
        await telegram.wait_for(lambda: telegram.backlog == 0)
        telegram.dm("and one while waiting")
        await telegram.wait_for(lambda: len(recorder.received) == 151)
        assert adapter.health().detail == ""
        assert adapter.health().last_event_at is not None
    assert recorder.texts[:150] == [f"message {number}" for number in range(150)]
    assert recorder.offered_ids == sorted(recorder.offered_ids)


async def test_connects_and_registers_its_commands(telegram: TelegramServer) -> None:
    telegram.webhook = "https://old.example/hook"
    telegram.dm("waiting since before")
    async with talking(telegram) as (_, recorder):
        await telegram.wait_for(lambda: recorder.received)
    assert telegram.webhook == ""
    assert recorder.received[0].key.workspace == str(telegram.bot_id)
    assert telegram.commands == [
        {"command": "help", "description": "Show this help"},
        {"command": "new", "description": "Start a new conversation"},
    ]
    assert telegram.allowed_updates == [
        "message", "edited_message", "callback_query", "my_chat_member",
    ]  # fmt: skip


async def test_a_refused_command_list_does_no_harm(telegram: TelegramServer) -> None:
    telegram.fail("setMyCommands", status=400, description="Bad Request: BOT_COMMAND_INVALID")
    telegram.dm("hello")
    async with talking(telegram) as (_, recorder):
        await telegram.wait_for(lambda: recorder.received)
    assert telegram.commands == []


async def test_groups_topics_and_replies(telegram: TelegramServer) -> None:
    telegram.add_forum(GROUP)
    topic = telegram.add_topic(GROUP, "Plans")
    async with talking(telegram) as (adapter, recorder):
        telegram.mention(GROUP, "in General")
        telegram.mention(GROUP, "in a topic", thread=topic)
        await telegram.wait_for(lambda: len(recorder.received) == 2)
        general, topical = recorder.received
        answer = int(await adapter.send(general.reply_target, "Yes?", key="a"))
        telegram.say(GROUP, "go on", reply_to=answer)
        telegram.say(GROUP, "the bot cannot see this")
        await telegram.wait_for(lambda: len(recorder.received) == 3)
    assert (general.text, general.key.topic) == ("in General", "1")
    assert (general.topic_title, topical.topic_title) == ("General", "Plans")
    assert (topical.key.topic, topical.reply_target.thread) == (str(topic), str(topic))
    assert recorder.received[2].key == general.key
    assert recorder.received[2].quoted == "> You: Yes?"
    assert recorder.received[2].is_addressed
    assert recorder.received[2].order > general.order > 0
    assert {inbound.chat_title for inbound in recorder.received} == {f"Group {GROUP}"}
    assert (Disposition.UNSUPPORTED, "forum_topic_created") in recorder.ignored


OLD_POLL = {
    "id": "1", "question": "Where?", "options": [{"text": "Rome", "voter_count": 0}], "total_voter_count": 0,
    "is_closed": False, "is_anonymous": True, "type": "regular", "allows_multiple_answers": False,
}  # fmt: skip
"""A poll as a Bot API server before 10.0 sends it: python-telegram-bot raises because `members_only` is missing."""


async def test_a_reply_to_the_bot_with_a_poll_is_answered_once_on_an_old_server(
    telegram: TelegramServer,
) -> None:
    async with talking(telegram) as (adapter, recorder):
        telegram.mention(GROUP, "Shall we travel?")
        await telegram.wait_for(lambda: recorder.received)
        asked = int(await adapter.send(recorder.received[0].reply_target, "Where?", key="a"))
        telegram.say(GROUP, "", reply_to=asked, extra={"poll": OLD_POLL})
        await telegram.wait_for(lambda: len(recorder.received) == 2)
        reply = recorder.received[1]
        assert (reply.text, reply.quoted) == ("[Poll: Where?]\n- Rome", "> You: Where?")
        # The response contains the poll.
        sent = await adapter.send(reply.reply_target, "Rome.", key="b")
        telegram.say(GROUP, "Sure?", reply_to=int(sent))
        await telegram.wait_for(lambda: len(recorder.received) == 3)
        telegram.mention(GROUP, "count it", reply_to=int(reply.message_id))
        await telegram.wait_for(lambda: len(recorder.received) == 4)
    assert recorder.received[3].quoted == "> User1001: [Poll: Where?]\n> - Rome"
    assert [answer.text for answer in telegram.answers(GROUP)] == ["Where?", "Rome."]
    assert recorder.ignored == []


async def test_a_message_with_broken_parts_arrives_with_its_words(telegram: TelegramServer) -> None:
    async with talking(telegram) as (_, recorder):
        telegram.dm(
            "why?",
            extra={"reply_to_message": {"poll": 5}, "via_bot": [], "entities": [{"type": 5}]},
        )
        telegram.dm("look", extra={"photo": [{"width": 1}], "forward_origin": {"type": "?"}})
        await telegram.wait_for(lambda: len(recorder.received) == 2)
    first, second = recorder.received
    assert (first.text, first.quoted) == ("why?", "> [Not readable here: a poll]")
    assert second.quoted == "[Forwarded]\n> elsewhere: look\n> [Not readable here: a photo]"
    assert recorder.ignored == []


async def test_answers_in_the_general_topic_name_no_topic(telegram: TelegramServer) -> None:
    telegram.add_forum(GROUP)
    async with talking(telegram) as (adapter, recorder):
        telegram.mention(GROUP, "one")
        telegram.mention(GROUP, "two")
        await telegram.wait_for(lambda: len(recorder.received) == 2)
        one, two = recorder.received
        await adapter.send(two.reply_target, "Yes", key="a")
        await adapter.show_working(two.reply_target)
    assert one.key == two.key
    (sent,) = telegram.calls("sendMessage")
    assert "message_thread_id" not in sent.arguments
    assert "message_thread_id" not in telegram.calls("sendChatAction")[0].arguments


async def test_topics_are_known_by_their_latest_names(telegram: TelegramServer) -> None:
    telegram.add_forum(GROUP)
    topic = telegram.add_topic(GROUP, "Plans")
    other = telegram.add_topic(GROUP, "Ideas")
    named = {
        "message_thread_id": topic,
        "is_topic_message": True,
        "forum_topic_edited": {"name": "Goals"},
    }
    async with talking(telegram) as (_, recorder):
        telegram.mention(GROUP, "a", thread=topic)
        await telegram.wait_for(lambda: len(recorder.received) == 1)
        telegram.push(
            {"message": telegram.json_of(telegram.messages(GROUP)[-1]) | named | {"text": None}}
        )
        answered = telegram.say(GROUP, "x", thread=topic)
        telegram.mention(GROUP, "b", thread=topic, reply_to=answered)
        telegram.mention(GROUP, "c", thread=other)
        await telegram.wait_for(lambda: len(recorder.received) == 3)
    assert [inbound.topic_title for inbound in recorder.received] == ["Plans", "Goals", "Ideas"]


@pytest.mark.parametrize(
    ("units", "is_cut"), [(100, False), (2_048, False), (3_800, True), (4_096, True)]
)
async def test_a_text_that_an_app_may_have_cut_is_marked(
    telegram: TelegramServer, units: int, is_cut: bool
) -> None:
    async with talking(telegram) as (_, recorder):
        telegram.dm("😀" * (units // 2))
        await telegram.wait_for(lambda: recorder.received)
    assert recorder.received[0].is_cut == is_cut


async def test_files_are_described(telegram: TelegramServer) -> None:
    async with talking(telegram) as (_, recorder):
        upload = TelegramUpload(name="plan.pdf", content=b"%PDF", mime="application/pdf")
        telegram.send_file(1001, upload, caption="read this")
        await telegram.wait_for(lambda: recorder.received)
    (inbound,) = recorder.received
    assert inbound.text == "read this"
    assert [(file.name, file.size_bytes) for file in inbound.attachments] == [("plan.pdf", 4)]


async def test_ignored_updates_are_confirmed_and_counted(telegram: TelegramServer) -> None:
    said = telegram.dm("first")
    telegram.edit(1001, said, "second thoughts")
    chat = {"id": 1001, "type": "private"}
    telegram.push({"message": {"message_id": 7, "chat": chat, "from": {"first_name": "Ann"}}})
    telegram.push({"message": "nonsense"})
    telegram.push({"message": {"message_id": 8, "date": 10**18, "from": {"id": 1001}}})
    telegram.dm("last")
    async with talking(telegram) as (_, recorder):
        await telegram.wait_for(lambda: telegram.backlog == 0)
    assert recorder.texts == ["first", "last"]
    (edit,) = recorder.changed
    assert isinstance(edit, MessageEdit)
    assert (edit.message_id, edit.edited.text) == (str(said), "second thoughts")
    assert [detail for _, detail in recorder.ignored] == ["unreadable update"] * 3


async def test_an_update_that_raises_does_not_block_the_others(
    telegram: TelegramServer, caplog: pytest.LogCaptureFixture
) -> None:
    telegram.dm("poison")
    telegram.dm("and so on")
    adapter, recorder = adapter_for(telegram), RecordingIntake()
    recorder.errors = [AttributeError("replace") for _ in range(4)]
    async with running(adapter, recorder):
        await telegram.wait_for(lambda: telegram.backlog == 0)
    assert recorder.texts == ["and so on"]
    assert [detail for _, detail in recorder.ignored] == ["an update that cannot be handled"]
    assert len([record for record in caplog.records if "is dropped" in record.message]) == 1


async def test_a_language_that_is_not_text_is_accepted(telegram: TelegramServer) -> None:
    ann = {"id": 7, "is_bot": False, "first_name": "Ann", "language_code": ["en"]}
    chat = {"id": 7, "type": "private", "first_name": "Ann"}
    telegram.push(
        {"message": {"message_id": 9, "date": 1, "chat": chat, "from": ann, "text": "hi"}}
    )
    async with talking(telegram) as (_, recorder):
        await telegram.wait_for(lambda: telegram.backlog == 0)
    assert [type(inbound.language) for inbound in recorder.received] == [str]


@pytest.mark.parametrize("refusal", [IntakeFull(), IntakeClosed(), RuntimeError("disk"), OSError()])
async def test_updates_that_are_not_committed_are_delivered_again_in_order(
    telegram: TelegramServer, refusal: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    adapter, recorder = adapter_for(telegram), RecordingIntake()
    first, second = telegram.dm("one"), telegram.dm("two")
    recorder.errors = [refusal] * 10_000
    async with running(adapter, recorder):
        await telegram.wait_for(lambda: len(recorder.offered_ids) > 2)
        assert telegram.confirmed == []
        recorder.errors.clear()
        await telegram.wait_for(lambda: telegram.backlog == 0)
        await eventually(lambda: adapter.health().detail == "")
    assert recorder.texts == ["one", "two"]
    assert [inbound.message_id for inbound in recorder.received] == [str(first), str(second)]
    assert len(set(recorder.offered_ids[:-1])) == 1
    warned = [record for record in caplog.records if "was not accepted" in record.message]
    assert len(warned) == 1
    assert type(refusal).__name__ in warned[0].message


async def test_a_refusing_intake_shows_in_the_health(telegram: TelegramServer) -> None:
    telegram.dm("one")
    adapter, recorder = adapter_for(telegram), RecordingIntake()
    recorder.errors = [IntakeFull() for _ in range(10_000)]
    async with running(adapter, recorder):
        await eventually(lambda: "IntakeFull" in adapter.health().detail)
        assert adapter.health().state is ConnectionState.CONNECTED
        recorder.errors.clear()
        await eventually(lambda: adapter.health().detail == "")


async def test_a_stop_confirms_only_committed_updates(telegram: TelegramServer) -> None:
    telegram.dm("one")
    recorder = RecordingIntake()
    recorder.errors = [IntakeClosed() for _ in range(10_000)]
    async with running(adapter_for(telegram), recorder):
        await telegram.wait_for(lambda: recorder.offered_ids)
    later = RecordingIntake()
    async with running(adapter_for(telegram), later):
        await telegram.wait_for(lambda: later.received)
    assert later.received[0].event_id == recorder.offered_ids[0]


async def test_a_slow_chat_does_not_block_others(telegram: TelegramServer) -> None:
    held = anyio.Event()
    recorder = RecordingIntake(gates={"one": held, "two": held})
    async with running(adapter_for(telegram), recorder):
        first = telegram.dm("one")
        await eventually(lambda: len(recorder.offered_ids) == 1)
        telegram.dm("two")
        for number in range(5):
            telegram.dm(f"other {number}", user=2002)
        await eventually(lambda: len(recorder.received) == 5)
        polls = len(telegram.calls("getUpdates"))  # they return the unconfirmed updates again
        await eventually(lambda: len(telegram.calls("getUpdates")) >= polls + 3)
        telegram.dm("later", user=3003)
        await eventually(lambda: "later" in recorder.texts)
        assert telegram.confirmed == []
        held.set()
        await telegram.wait_for(lambda: telegram.backlog == 0)
    assert recorder.texts == [*(f"other {n}" for n in range(5)), "later", "one", "two"]
    assert len(recorder.offered_ids) == len(set(recorder.offered_ids)) == 8
    assert str(first) == recorder.received[6].message_id


async def test_reconnects_after_every_kind_of_trouble(telegram: TelegramServer) -> None:
    async with talking(telegram) as (adapter, recorder):
        telegram.fail("getUpdates", status=502, body="<html>bad gateway</html>")
        telegram.fail("getUpdates", status=429, parameters={"retry_after": 1})
        telegram.fail("getUpdates", drop="before")
        telegram.fail("getMe", status=500)
        telegram.fail("deleteWebhook", drop="after")
        telegram.disconnect_all()
        await linked(adapter, ConnectionState.RECONNECTING)
        telegram.dm("still there?")
        await telegram.wait_for(lambda: recorder.received)
        await linked(adapter, ConnectionState.CONNECTED)
    assert recorder.texts == ["still there?"]
    assert adapter.health().state is ConnectionState.STOPPED


async def test_an_unreachable_server_is_reported_and_retried(telegram: TelegramServer) -> None:
    async with talking(telegram) as (adapter, recorder):
        await telegram.refuse()
        detail = await linked(adapter, ConnectionState.RECONNECTING)
        assert f"127.0.0.1:{telegram.port}" in detail
        telegram.dm("after the storm")
        await telegram.accept()
        await telegram.wait_for(lambda: recorder.received)


async def test_a_wrong_token_fails_until_it_is_right(telegram: TelegramServer) -> None:
    telegram.revoke()
    adapter, recorder = adapter_for(telegram), RecordingIntake()
    async with running(adapter, recorder):
        detail = await linked(adapter, ConnectionState.FAILED)
        assert "channels.telegram.bot_token" in detail
        assert telegram.token not in detail
        telegram.revoke(revoked=False)
        await linked(adapter, ConnectionState.CONNECTED)


async def test_a_token_revoked_while_running(telegram: TelegramServer) -> None:
    async with talking(telegram) as (adapter, _):
        telegram.revoke()
        await linked(adapter, ConnectionState.FAILED)


@pytest.mark.parametrize(
    "config",
    [
        TelegramConfig(bot_token=""),
        TelegramConfig(bot_token="1:a b"),
        TelegramConfig(bot_token="1:a\n"),
        TelegramConfig(bot_token="1:ü"),
        TelegramConfig(bot_token="1:a", mode="webhook"),
    ],
    ids=["unset", "blank", "newline", "umlaut", "webhook"],
)
async def test_an_unusable_configuration_ends_with_a_reason(config: TelegramConfig) -> None:
    adapter = TelegramAdapter(config, COMMANDS, timeouts=FAST)
    async with anyio.create_task_group() as tasks:
        await tasks.start(
            lambda task_status: adapter.run(RecordingIntake(), task_status=task_status)
        )
    assert adapter.health().state is ConnectionState.FAILED
    assert "channels.telegram." in adapter.health().detail


@pytest.mark.parametrize("base_url", ["nonsense", "http://127.0.0.1:1/bot", "http://[::1/bot"])
async def test_a_wrong_base_url_is_reported(base_url: str) -> None:
    config = TelegramConfig(bot_token="1:a", base_url=base_url)
    adapter = TelegramAdapter(config, COMMANDS, timeouts=FAST)
    async with running(adapter, RecordingIntake()):
        await eventually(lambda: adapter.health().detail != "")
        detail = adapter.health().detail
        assert adapter.health().state is ConnectionState.CONNECTING
    assert "base_url" in detail


async def test_a_second_poller_is_reported_and_outlasted(telegram: TelegramServer) -> None:
    recorder, rival_recorder = RecordingIntake(), RecordingIntake()
    adapter, rival = adapter_for(telegram), adapter_for(telegram)
    async with running(adapter, recorder):
        await linked(adapter, ConnectionState.CONNECTED)
        async with running(rival, rival_recorder):
            await eventually(lambda: adapter.health().detail == OTHER_POLLER)
            await eventually(lambda: rival.health().detail == OTHER_POLLER)
            assert adapter.health().state is ConnectionState.RECONNECTING
        telegram.dm("whoever hears")
        await telegram.wait_for(lambda: recorder.received)
        await linked(adapter, ConnectionState.CONNECTED)
        assert adapter.health().detail == ""


async def test_a_webhook_set_by_others_is_removed(telegram: TelegramServer) -> None:
    async with talking(telegram) as (_, recorder):
        telegram.webhook = "https://other.example/hook"
        telegram.disconnect_all()
        telegram.dm("hello")
        await telegram.wait_for(lambda: recorder.received)
    assert telegram.webhook == ""


async def test_canceling_a_long_poll_is_clean(telegram: TelegramServer) -> None:
    with anyio.fail_after(20):
        async with talking(telegram) as (adapter, _):
            await telegram.wait_for(lambda: len(telegram.calls("getUpdates")) >= 2)
    assert adapter.health().state is ConnectionState.STOPPED
    async with running(adapter, RecordingIntake()):  # and can be started again
        await linked(adapter, ConnectionState.CONNECTED)


async def test_no_log_line_contains_the_token(
    telegram: TelegramServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    telegram.fail("getUpdates", status=404, body=f"no such page: /bot{telegram.token}/getUpdates")
    telegram.fail("getUpdates", status=200, body=f"<html>/bot{telegram.token}</html>")
    async with talking(telegram) as (_, recorder):
        telegram.dm("secret words")
        await telegram.wait_for(lambda: recorder.received)
        telegram.revoke()
        await telegram.wait_for(lambda: len(telegram.requests) > 6 or telegram.revoked)
    assert telegram.token not in caplog.text
    assert "secret words" not in caplog.text


async def test_a_dead_poller_is_noticed_by_what_waits(telegram: TelegramServer) -> None:
    timeouts = replace(FAST, poll_s=1, check_s=0.0)
    async with talking(telegram, timeouts=timeouts) as (adapter, recorder):
        telegram.withholding = True
        telegram.dm("is anybody there?")
        detail = await linked(adapter, ConnectionState.RECONNECTING)
        assert detail.startswith("1 updates wait at Telegram")
        telegram.withholding = False
        telegram.dm("hello?")
        await telegram.wait_for(lambda: len(recorder.received) == 2)
        await linked(adapter, ConnectionState.CONNECTED)
        assert adapter.health().detail == ""


async def test_silence_alone_is_no_trouble(telegram: TelegramServer) -> None:
    timeouts = replace(FAST, poll_s=0, check_s=0.0)
    async with talking(telegram, timeouts=timeouts) as (adapter, _):
        telegram.fail("getWebhookInfo", status=404, description="Not Found")
        telegram.fail("getWebhookInfo", status=500)
        telegram.fail("getWebhookInfo", drop="before")
        await telegram.wait_for(lambda: len(telegram.calls("getWebhookInfo")) > 5)
        assert adapter.health().state is ConnectionState.CONNECTED
    assert len(telegram.calls("getMe")) == 1


async def test_a_webhook_found_while_polling_is_reported(telegram: TelegramServer) -> None:
    telegram.webhook = "https://other.example/hook"
    telegram.fail("deleteWebhook", times=3, status=500)
    adapter = adapter_for(telegram)
    telegram.fail("deleteWebhook", times=3, status=400, description="Bad Request: not now")
    async with running(adapter, RecordingIntake()):
        await eventually(lambda: adapter.health().detail == OTHER_WEBHOOK)
        await linked(adapter, ConnectionState.CONNECTED)
    assert telegram.webhook == ""


async def test_a_channel_restarts_without_a_second_poller(telegram: TelegramServer) -> None:
    adapter, recorder = adapter_for(telegram), RecordingIntake()
    for number in range(3):
        async with running(adapter, recorder):
            await linked(adapter, ConnectionState.CONNECTED)
            telegram.dm(f"message {number}")
            await telegram.wait_for(lambda: telegram.backlog == 0)
    assert recorder.texts == ["message 0", "message 1", "message 2"]
    assert adapter.health().detail == ""
    assert telegram.conflicts == 0


async def test_a_migrated_group_is_reported_before_a_message_is_sent_there(
    telegram: TelegramServer,
) -> None:
    async with talking(telegram) as (adapter, recorder):
        telegram.mention(-4001, "hi")
        await telegram.wait_for(lambda: recorder.received)
        telegram.chat(-4001).moved_to = GROUP  # and the service message is late
        telegram.chat(GROUP)
        await adapter.send(recorder.received[0].reply_target, "Hello", key="k")
        assert recorder.migrated == [(str(telegram.bot_id), "-4001", str(GROUP))]
        telegram.migrate(-4001, GROUP)
        await telegram.wait_for(lambda: len(recorder.migrated) == 3)
    assert set(recorder.migrated) == {(str(telegram.bot_id), "-4001", str(GROUP))}
    assert [answer.text for answer in telegram.answers(GROUP)] == ["Hello"]


async def test_a_chat_migration_that_is_not_stored_is_delivered_again(
    telegram: TelegramServer,
) -> None:
    adapter, recorder = adapter_for(telegram), RecordingIntake()
    telegram.mention(-4001, "hi")
    telegram.migrate(-4001, GROUP)
    recorder.errors = [IntakeFull() for _ in range(3)]
    async with running(adapter, recorder):
        await telegram.wait_for(lambda: recorder.migrated)
        await telegram.wait_for(lambda: telegram.backlog == 0)


async def test_changes_of_the_bots_membership_are_counted(telegram: TelegramServer) -> None:
    async with talking(telegram) as (adapter, recorder):
        telegram.set_membership(1001, "kicked")
        telegram.set_membership(GROUP, "left")
        await telegram.wait_for(lambda: telegram.backlog == 0)
        assert adapter.health().state is ConnectionState.CONNECTED
    assert [detail for _, detail in recorder.ignored] == [
        "the bot is now kicked in a private chat",
        "the bot is now left in a supergroup chat",
    ]


async def test_commands_are_listed_in_every_language(telegram: TelegramServer) -> None:
    new = CommandInfo(name="new", help="Start anew", translations={"zh": "开始新对话"})
    plain = CommandInfo(name="help", help="Show this help")
    adapter = TelegramAdapter(config_for(telegram), [new, plain], timeouts=FAST)
    async with running(adapter, RecordingIntake()):
        await linked(adapter, ConnectionState.CONNECTED)
    assert telegram.translated == {
        "zh": [
            {"command": "new", "description": "开始新对话"},
            {"command": "help", "description": "Show this help"},
        ]
    }
    assert telegram.commands[0]["description"] == "Start anew"


async def test_a_group_that_the_bot_is_added_to_is_greeted(
    telegram: TelegramServer,
) -> None:
    async with talking(telegram) as (_, recorder):
        telegram.set_membership(GROUP, "member", before="left", language="zh-hans")
        await telegram.wait_for(lambda: telegram.answers(GROUP))
        telegram.set_membership(GROUP, "administrator", before="member")
        telegram.migrate(-4001, -1005)
        telegram.set_membership(-1005, "member", before="left")
        telegram.set_membership(
            1001, "member", before="kicked"
        )  # unblocked: people can write again
        telegram.fail("sendMessage", status=400, description="Bad Request: not enough rights")
        telegram.set_membership(-100987654321, "member", before="kicked")
        await telegram.wait_for(lambda: len(telegram.calls("sendMessage")) == 2)
        await telegram.wait_for(lambda: telegram.backlog == 0)
    assert [answer.text for answer in telegram.answers(GROUP)] == [messages_for("zh").hello_group]
    assert len(recorder.ignored) == 5
    groups = (str(GROUP), "-100987654321")
    assert recorder.added == [(group, "1001", "member") for group in groups]
    config = config_for(telegram).model_copy(update={"group_policy": "disabled"})
    async with running(TelegramAdapter(config, COMMANDS, timeouts=FAST), RecordingIntake()):
        telegram.set_membership(GROUP, "member", before="left")
        await telegram.wait_for(lambda: telegram.backlog == 0)
    assert len(telegram.calls("sendMessage")) == 2


class _NodeIntake(RecordingIntake):
    """The intake of one of several processes, which share a lock."""

    def __init__(self, lock: anyio.Lock) -> None:
        super().__init__()
        self.lock = lock
        self.names: list[str] = []

    @override
    @asynccontextmanager
    async def exclusive(
        self, name: str, on_wait: Callable[[], None] | None = None
    ) -> AsyncIterator[None]:
        self.names.append(name)
        if self.lock.locked() and on_wait is not None:
            on_wait()
        async with self.lock:
            yield


async def test_only_one_process_polls_until_it_ends(telegram: TelegramServer) -> None:
    lock = anyio.Lock()
    first, second = _NodeIntake(lock), _NodeIntake(lock)
    adapter, other = adapter_for(telegram), adapter_for(telegram)
    ends = anyio.Event()

    async def run_first() -> None:
        async with running(adapter, first):
            await ends.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_first)
        await linked(adapter, ConnectionState.CONNECTED)
        async with running(other, second):
            detail = await linked(other, ConnectionState.CONNECTED)
            assert detail == "Another process of the service receives the messages."
            telegram.dm("one")
            await eventually(lambda: first.texts == ["one"])
            ends.set()
            telegram.dm("two")
            await eventually(lambda: "two" in second.texts)
            await eventually(lambda: other.health().detail == "")
    assert first.names == second.names == [f"telegram {telegram.token.partition(':')[0]}"]
    assert [text for text in second.texts if text != "one"] == ["two"]
