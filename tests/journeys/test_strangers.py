"""Who gets answers: pairing, lists, groups, bots. Strangers may get a notice, but no run starts for them."""

import re
from pathlib import Path

import httpx

from bus.locales.en import ENGLISH
from gateway.playground.slack.server import USER
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelRequest
from tests.journeys.service import Service, serving, with_model
from tests.people.feishu import FeishuPrivateUser, own_words
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackDirectUser, SlackThreadUser
from tests.people.telegram import TelegramPrivateUser

CODE = re.compile(r"\b[A-HJ-NP-Z2-9]{8}\b")
TELEGRAM_GROUP, OTHER_GROUP, FEISHU_GROUP = -1001, -1002, "oc_open"


async def code_of(user: TelegramPrivateUser) -> str:
    """Return the code in the one message that a stranger got."""
    said = await user.wait_for_message("code")
    codes: list[str] = CODE.findall(said)
    assert set(codes) == {codes[0]}
    return codes[0]


async def counted(service: Service, channel: str, reason: str) -> int:
    """Wait until the administrator can see that messages were not answered, and return how many."""
    async with service.client() as client:

        async def count() -> int:
            states = (await client.get("/api/channels/")).json()["channels"]
            return int(states[channel]["events"].get(reason, 0))

        return await eventually(count)


async def test_a_stranger_on_telegram_is_let_in_by_code(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        telegram = {k: v for k, v in platforms.channels["telegram"].items() if k != "dm_policy"}
        config = {**with_model(model.base_url), "channels": {"telegram": telegram}}
        async with serving(tmp_path, config, "telegram") as service, service.client() as client:
            ann, bob = (TelegramPrivateUser(platforms.telegram, user=user) for user in (7001, 7002))
            await ann.send("let me in")
            await bob.send("/status")
            codes = [await code_of(ann), await code_of(bob)]
            assert len(set(codes)) == 2

            await _let_in(service, client, *codes)
            assert model.requests == []
            for user in (ann, bob):
                await user.wait_for_message(ENGLISH.pairing_approved)
                await user.send("now?")
                told = user.bot_messages()[:2]
                await user.expect_messages(*told, "You said: now?")
            await _shut_out(service, ann)
            await bob.send("still me")
            await bob.wait_for_message("You said: still me")
        assert len(model.requests) == 3
        assert platforms.violations == []


async def _let_in(service: Service, client: httpx.AsyncClient, one: str, other: str) -> None:
    """Approve one person on the command line, and the other over REST."""
    exit_code, out, _ = await service.command("pairing", "list")
    assert exit_code == 0
    assert all(text in out for text in (one, other, "7001", "7002"))
    exit_code, out, err = await service.command("pairing", "approve", one)
    assert (exit_code, err) == (0, "")
    approved = await client.post(f"/api/channels/pairings/{other}/approve")
    assert approved.status_code == 200
    unknown = await client.post("/api/channels/pairings/ZZZZZZZZ/approve")
    assert unknown.status_code == 404


async def _shut_out(service: Service, ann: TelegramPrivateUser) -> None:
    """After a revocation, the next message is answered with a code again."""
    exit_code, _, err = await service.command("pairing", "revoke", "telegram", "7001")
    assert (exit_code, err) == (0, "")
    before = len(ann.bot_messages())
    await ann.send("and now?")
    await eventually(lambda: len(ann.bot_messages()) != before)
    assert CODE.search(ann.bot_messages()[before])


async def test_a_group_on_telegram_is_approved_by_code_or_by_who_adds_the_bot(
    tmp_path: Path,
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        telegram = {k: v for k, v in platforms.channels["telegram"].items() if k != "group_policy"}
        telegram |= {"dm_policy": "pairing", "admin_users": [1001]}
        config = {**with_model(model.base_url), "channels": {"telegram": telegram}}
        async with serving(tmp_path, config, "telegram") as service:
            platforms.telegram.mention(TELEGRAM_GROUP, "hello?", user=8000)
            platforms.telegram.mention(TELEGRAM_GROUP, "anybody?", user=8001)
            await platforms.telegram.wait_for(
                lambda: platforms.telegram.answers(TELEGRAM_GROUP), 10
            )
            assert await counted(service, "telegram", "group_pairing")
            (asked,) = platforms.telegram.answers(TELEGRAM_GROUP)
            (code, _) = CODE.findall(asked.text)
            assert model.requests == []
            _, out, _ = await service.command("pairing", "list")
            assert f"group:{TELEGRAM_GROUP}" in out
            exit_code, _, err = await service.command("pairing", "approve", code)
            assert (exit_code, err) == (0, "")
            await _answers_in(platforms, TELEGRAM_GROUP, "and now?", user=8000)

            platforms.telegram.set_membership(OTHER_GROUP, "member", before="left")  # User 1001.
            await _answers_in(platforms, OTHER_GROUP, "here too?", user=8000)
        assert platforms.violations == []


async def _answers_in(platforms: PlatformServers, group: int, text: str, *, user: int) -> None:
    platforms.telegram.mention(group, text, user=user)
    await platforms.telegram.wait_for(
        lambda: [m for m in platforms.telegram.answers(group) if m.text == f"You said: {text}"], 10
    )


async def test_people_from_other_organizations_are_notified_and_nothing_runs(
    tmp_path: Path,
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        channels = {name: platforms.channels[name] for name in ("slack", "feishu")}
        config = {**with_model(model.base_url), "channels": channels}
        platforms.slack.person("U2GUEST", is_restricted=True)
        platforms.slack.person("U3OTHER", team_id="T9OTHER")
        platforms.feishu.outsiders["ou_eve"] = "tenant_9"
        async with serving(tmp_path, config, "slack", "feishu") as service:
            guest = SlackDirectUser(platforms.slack, user="U2GUEST")
            await guest.send("hello")
            await guest.expect_messages(ENGLISH.external_denied)
            await guest.send("hello?")
            platforms.slack.mention("hi", user="U3OTHER", team="T9OTHER", channel="C7")
            await platforms.slack.wait_for(lambda: platforms.slack.texts("C7"))
            assert platforms.slack.texts("C7") == [ENGLISH.external_denied]
            await platforms.feishu.dm("hello", user="ou_eve")
            await platforms.feishu.wait_for(lambda: platforms.feishu.answers("oc_dm_ou_eve"))
            member = SlackDirectUser(platforms.slack)
            await member.send("me")
            await member.expect_messages("You said: me")
            assert (
                await counted(service, "slack", "external") >= 3
            )  # A mention arrives as two events.
            assert await counted(service, "feishu", "external") == 1
            assert guest.bot_messages() == [ENGLISH.external_denied]
            assert await service.stop() == 0
        assert [_conversation(request) for request in model.requests[:1]] == ["me"]
        assert platforms.violations == []


async def test_allow_lists_and_groups_apply_and_why_explains_silence(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        channels = platforms.channels
        channels["slack"] |= {"dm_policy": "allowlist", "allowed_users": [USER]}
        channels["telegram"] |= {"dm_policy": "disabled", "allowed_users": [1001]}
        channels["feishu"] |= {"dm_policy": "disabled", "group_policy": "open"}
        config = {**with_model(model.base_url), "channels": channels}
        config["memory"] = {
            "enabled": False
        }  # Memory would also call the model when the service stops.
        async with serving(tmp_path, config, "slack", "telegram", "feishu") as service:
            await _slack_goes_by_the_list(platforms, service)
            await _telegram_goes_by_the_list_in_groups(platforms, service)
            await _feishu_is_open_in_groups(platforms, service)
            assert await service.stop() == 0
        said = sorted(_conversation(request) for request in model.requests)
        follow_ups = ["anybody | and you?", "me | and you?"]
        assert said == sorted(["anybody", "me", "me", "us", *follow_ups])
        assert platforms.violations == []


def _conversation(request: ModelRequest) -> str:
    """Return what a person said in a conversation."""
    return " | ".join(own_words(text) for text in request.user_texts)


async def _slack_goes_by_the_list(platforms: PlatformServers, service: Service) -> None:
    listed, other = (
        SlackDirectUser(platforms.slack),
        SlackDirectUser(platforms.slack, user="U9OTHER"),
    )
    await other.send("not me")
    assert await counted(service, "slack", "not_allowed") == 1
    platforms.slack.slash("help", channel="C8", user="U9OTHER")
    await platforms.slack.wait_for(
        lambda: platforms.slack.texts("C8", viewer="U9OTHER") == [ENGLISH.not_allowed]
    )
    assert platforms.slack.texts("C8", viewer=USER) == []
    await listed.send("me")
    await listed.expect_messages("You said: me")
    platforms.slack.say("just talking", channel="C5")
    await counted(service, "slack", "not_addressed")
    platforms.slack.bot_says("<@U0PARLEY> hello from a bot", channel="C5")
    await counted(service, "slack", "from_bot")
    room = SlackThreadUser(platforms.slack, room="C6")
    await room.send("us")
    await room.expect_messages("You said: us")
    assert other.bot_messages() == [ENGLISH.not_allowed]
    assert platforms.slack.texts("C5") == []
    platforms.slack.slash("help", channel="C6")
    await platforms.slack.wait_for(
        lambda: any(
            "Available commands:" in text for text in platforms.slack.texts("C6", viewer=USER)
        )
    )


async def _telegram_goes_by_the_list_in_groups(
    platforms: PlatformServers, service: Service
) -> None:
    private = TelegramPrivateUser(platforms.telegram)
    await private.send("not here")
    await counted(service, "telegram", "disabled")
    platforms.telegram.mention(TELEGRAM_GROUP, "not me", user=8000)
    await counted(service, "telegram", "not_allowed")
    is_bot = {"from": {"id": 1001, "is_bot": True, "first_name": "Robot"}}
    platforms.telegram.mention(TELEGRAM_GROUP, "I am a bot", extra=is_bot)
    await counted(service, "telegram", "from_bot")
    platforms.telegram.mention(TELEGRAM_GROUP, "me")
    answers = await platforms.telegram.wait_for(
        lambda: platforms.telegram.answers(TELEGRAM_GROUP), 10
    )
    assert [answer.text for answer in answers] == ["You said: me"]
    platforms.telegram.say(TELEGRAM_GROUP, "and you?", reply_to=answers[0].message_id)
    await platforms.telegram.wait_for(
        lambda: [m for m in platforms.telegram.answers(TELEGRAM_GROUP) if "and you?" in m.text], 10
    )
    assert {"help", "new", "stop"} <= {c["command"] for c in platforms.telegram.commands}
    await private.expect_messages(ENGLISH.not_answered_here)


async def _feishu_is_open_in_groups(platforms: PlatformServers, service: Service) -> None:
    await platforms.feishu.dm("not here")
    await counted(service, "feishu", "disabled")
    await platforms.feishu.say("I am a bot", chat=FEISHU_GROUP, sender_type="app")
    await counted(service, "feishu", "from_bot")
    await platforms.feishu.say("anybody", chat=FEISHU_GROUP)
    await platforms.feishu.wait_for(
        lambda: [m for m in platforms.feishu.answers(FEISHU_GROUP) if m.text == "You said: anybody"]
    )
    (card,) = platforms.feishu.answers(FEISHU_GROUP)
    again = await platforms.feishu.say("and you?", chat=FEISHU_GROUP, reply_to=card.id)
    await platforms.feishu.wait_for(
        lambda: [
            m
            for m in platforms.feishu.answers_to(again)
            if m.text == "You said: and you?\n\n> You: You said: anybody"
        ]
    )
    assert len(platforms.feishu.answers(FEISHU_GROUP)) == 2
    private = FeishuPrivateUser(platforms.feishu)
    await private.expect_messages(ENGLISH.not_answered_here)
