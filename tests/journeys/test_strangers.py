"""Who is answered: pairing, lists, groups, bots. Strangers may be told something, but no run starts for them."""

import re
from pathlib import Path

import anyio
import httpx

from bus.locales.en import ENGLISH
from tests.fakes.model import FakeModelServer, ModelRequest
from tests.fakes.slack import USER
from tests.journeys.people import SlackPrivate, SlackThread, TelegramPrivate, Town
from tests.journeys.service import Service, serving, with_model

CODE = re.compile(r"\b[A-HJ-NP-Z2-9]{8}\b")
TELEGRAM_GROUP, OTHER_GROUP, FEISHU_GROUP = -1001, -1002, "oc_open"


async def code_of(seat: TelegramPrivate) -> str:
    """Return the code in the one message that a stranger got."""
    said = await seat.sees("code")
    codes: list[str] = CODE.findall(said)
    assert set(codes) == {codes[0]}
    return codes[0]


async def counted(service: Service, channel: str, reason: str) -> int:
    """Wait until the admin can see that something was left unanswered, and return how often."""
    async with service.client() as client:
        with anyio.fail_after(10):
            while True:
                states = (await client.get("/api/channels/")).json()["channels"]
                if count := int(states[channel]["events"].get(reason, 0)):
                    return count
                await anyio.sleep(0.02)


async def test_a_stranger_on_telegram_is_let_in_by_code(tmp_path: Path) -> None:
    async with Town() as town, FakeModelServer() as model:
        telegram = {k: v for k, v in town.channels["telegram"].items() if k != "dm_policy"}
        config = {**with_model(model.base_url), "channels": {"telegram": telegram}}
        async with serving(tmp_path, config, "telegram") as service, service.client() as client:
            ann, bob = (TelegramPrivate(town.telegram, user=user) for user in (7001, 7002))
            await ann.say("let me in")
            await bob.say("/status")
            codes = [await code_of(ann), await code_of(bob)]
            assert len(set(codes)) == 2

            await _let_in(service, client, *codes)
            assert model.requests == []
            for seat in (ann, bob):
                await seat.say("now?")
                await seat.hears(seat.heard()[0], "You said: now?")
            await _shut_out(service, ann)
            await bob.say("still me")
            await bob.sees("You said: still me")
        assert len(model.requests) == 3
        assert town.violations == []


async def _let_in(service: Service, client: httpx.AsyncClient, one: str, other: str) -> None:
    """Approve one on the command line, the other over REST."""
    exit_code, out, _ = await service.command("pairing", "list")
    assert exit_code == 0
    assert all(text in out for text in (one, other, "7001", "7002"))
    exit_code, out, err = await service.command("pairing", "approve", one)
    assert (exit_code, err) == (0, "")
    approved = await client.post(f"/api/channels/pairings/{other}/approve")
    assert approved.status_code == 200
    unknown = await client.post("/api/channels/pairings/ZZZZZZZZ/approve")
    assert unknown.status_code == 404


async def _shut_out(service: Service, ann: TelegramPrivate) -> None:
    """Revoke: the next message is answered by a code again."""
    exit_code, _, err = await service.command("pairing", "revoke", "telegram", "7001")
    assert (exit_code, err) == (0, "")
    before = len(ann.heard())
    await ann.say("and now?")
    with anyio.fail_after(10):
        while len(ann.heard()) == before:  # noqa: ASYNC110 - another process answers
            await anyio.sleep(0.02)
    assert CODE.search(ann.heard()[before])


async def test_a_group_on_telegram_is_approved_by_code_or_by_who_adds_the_bot(
    tmp_path: Path,
) -> None:
    async with Town() as town, FakeModelServer() as model:
        telegram = {k: v for k, v in town.channels["telegram"].items() if k != "group_policy"}
        telegram |= {"dm_policy": "pairing", "admin_users": [1001]}
        config = {**with_model(model.base_url), "channels": {"telegram": telegram}}
        async with serving(tmp_path, config, "telegram") as service:
            town.telegram.mention(TELEGRAM_GROUP, "hello?", user=8000)
            town.telegram.mention(TELEGRAM_GROUP, "anybody?", user=8001)
            await town.telegram.wait_for(lambda: town.telegram.answers(TELEGRAM_GROUP), 10)
            assert await counted(service, "telegram", "group_pairing")
            (asked,) = town.telegram.answers(TELEGRAM_GROUP)
            (code, _) = CODE.findall(asked.text)
            assert model.requests == []
            _, out, _ = await service.command("pairing", "list")
            assert f"group:{TELEGRAM_GROUP}" in out
            exit_code, _, err = await service.command("pairing", "approve", code)
            assert (exit_code, err) == (0, "")
            await _answers_in(town, TELEGRAM_GROUP, "and now?", user=8000)

            town.telegram.set_membership(OTHER_GROUP, "member", before="left")  # by 1001
            await _answers_in(town, OTHER_GROUP, "here too?", user=8000)
        assert town.violations == []


async def _answers_in(town: Town, group: int, text: str, *, user: int) -> None:
    town.telegram.mention(group, text, user=user)
    await town.telegram.wait_for(
        lambda: [m for m in town.telegram.answers(group) if m.text == f"You said: {text}"], 10
    )


async def test_people_from_other_organizations_are_told_politely_and_nothing_runs(
    tmp_path: Path,
) -> None:
    async with Town() as town, FakeModelServer() as model:
        channels = {name: town.channels[name] for name in ("slack", "feishu")}
        config = {**with_model(model.base_url), "channels": channels}
        town.slack.person("U2GUEST", is_restricted=True)
        town.slack.person("U3OTHER", team_id="T9OTHER")
        town.feishu.outsiders["ou_eve"] = "tenant_9"
        async with serving(tmp_path, config, "slack", "feishu") as service:
            guest = SlackPrivate(town.slack, user="U2GUEST")
            await guest.say("hello")
            await guest.hears(ENGLISH.external_denied)
            await guest.say("hello?")
            town.slack.mention("hi", user="U3OTHER", team="T9OTHER", channel="C7")
            await town.slack.wait_for(lambda: town.slack.texts("C7"))
            assert town.slack.texts("C7") == [ENGLISH.external_denied]
            await town.feishu.dm("hello", user="ou_eve")
            await town.feishu.wait_for(lambda: town.feishu.answers("oc_dm_ou_eve"))
            member = SlackPrivate(town.slack)
            await member.say("me")
            await member.hears("You said: me")
            assert await counted(service, "slack", "external") >= 3  # a mention comes as two events
            assert await counted(service, "feishu", "external") == 1
            assert guest.heard() == [ENGLISH.external_denied]
            assert await service.stop() == 0
        assert [_conversation(request) for request in model.requests[:1]] == ["me"]
        assert town.violations == []


async def test_lists_and_groups_decide_and_silence_is_explained(tmp_path: Path) -> None:
    async with Town() as town, FakeModelServer() as model:
        channels = town.channels
        channels["slack"] |= {"dm_policy": "allowlist", "allowed_users": [USER]}
        channels["telegram"] |= {"dm_policy": "disabled", "allowed_users": [1001]}
        channels["feishu"] |= {"dm_policy": "disabled", "group_policy": "open"}
        config = {**with_model(model.base_url), "channels": channels}
        config["memory"] = {"enabled": False}  # at the stop it would ask the model too
        async with serving(tmp_path, config, "slack", "telegram", "feishu") as service:
            await _slack_goes_by_the_list(town, service)
            await _telegram_goes_by_the_list_in_groups(town, service)
            await _feishu_is_open_in_groups(town, service)
            assert await service.stop() == 0
        said = sorted(_conversation(request) for request in model.requests)
        follow_ups = ["anybody | and you?", "me | and you?"]
        assert said == sorted(["anybody", "me", "me", "us", *follow_ups])
        assert town.violations == []


def _conversation(request: ModelRequest) -> str:
    """Return what a person said in a conversation."""
    return " | ".join(str(m["content"]) for m in request.messages if m["role"] == "user")


async def _slack_goes_by_the_list(town: Town, service: Service) -> None:
    listed, other = SlackPrivate(town.slack), SlackPrivate(town.slack, user="U9OTHER")
    await other.say("not me")
    assert await counted(service, "slack", "not_allowed") == 1
    await listed.say("me")
    await listed.hears("You said: me")
    town.slack.say("just talking", channel="C5")
    await counted(service, "slack", "not_addressed")
    town.slack.bot_says("<@U0PARLEY> hello from a bot", channel="C5")
    await counted(service, "slack", "from_bot")
    room = SlackThread(town.slack, room="C6")
    await room.say("us")
    await room.hears("You said: us")
    assert other.heard() == [ENGLISH.not_allowed]
    assert town.slack.texts("C5") == []
    town.slack.slash("help", channel="C6")
    await town.slack.wait_for(
        lambda: any("Available commands:" in text for text in town.slack.texts("C6", viewer=USER))
    )


async def _telegram_goes_by_the_list_in_groups(town: Town, service: Service) -> None:
    private = TelegramPrivate(town.telegram)
    await private.say("not here")
    await counted(service, "telegram", "disabled")
    town.telegram.mention(TELEGRAM_GROUP, "not me", user=8000)
    await counted(service, "telegram", "not_allowed")
    is_bot = {"from": {"id": 1001, "is_bot": True, "first_name": "Robot"}}
    town.telegram.mention(TELEGRAM_GROUP, "I am a bot", extra=is_bot)
    await counted(service, "telegram", "from_bot")
    town.telegram.mention(TELEGRAM_GROUP, "me")
    answers = await town.telegram.wait_for(lambda: town.telegram.answers(TELEGRAM_GROUP), 10)
    assert [answer.text for answer in answers] == ["You said: me"]
    town.telegram.say(TELEGRAM_GROUP, "and you?", reply_to=answers[0].message_id)
    await town.telegram.wait_for(
        lambda: [m for m in town.telegram.answers(TELEGRAM_GROUP) if "and you?" in m.text], 10
    )
    assert {"help", "new", "stop"} <= {c["command"] for c in town.telegram.commands}
    assert private.heard() == []


async def _feishu_is_open_in_groups(town: Town, service: Service) -> None:
    await town.feishu.dm("not here")
    await counted(service, "feishu", "disabled")
    await town.feishu.say("I am a bot", chat=FEISHU_GROUP, sender_type="app")
    await counted(service, "feishu", "from_bot")
    await town.feishu.say("anybody", chat=FEISHU_GROUP)
    await town.feishu.wait_for(
        lambda: [m for m in town.feishu.answers(FEISHU_GROUP) if m.text == "You said: anybody"]
    )
    (card,) = town.feishu.answers(FEISHU_GROUP)
    again = await town.feishu.say("and you?", chat=FEISHU_GROUP, reply_to=card.id)
    await town.feishu.wait_for(
        lambda: [m for m in town.feishu.answers_to(again) if m.text == "You said: and you?"]
    )
    assert len(town.feishu.answers(FEISHU_GROUP)) == 2
    assert town.feishu.answers("oc_dm_ou_alice") == []
