"""Turns that wait for a person: the question, the people who may decide, and a run that resumes only once."""

from pathlib import Path
from typing import Any

import pytest

from bus.buttons import ButtonAction, ButtonToken
from bus.config import ChannelPolicy
from bus.locales.en import ENGLISH
from bus.locales.zh import CHINESE
from bus.messages import PressResponse
from bus.platform import Capabilities
from tests.bus.harness import BusHarness, running_bus
from tests.bus.test_button_presses import labels, press, press_of, shows
from tests.bus.test_message_edits import edit
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.fakes.platform import ButtonPlatform, CardPlatform, FakePlatform

GROUP = ChannelPolicy(group_policy="open", admin_users=["boss"])
APPROVE, DENY = {"type": "approve"}, {"type": "reject"}


def review(name: str = "bash", **args: object) -> dict[str, Any]:
    """Return LangChain's human-in-the-loop request for one call."""
    action = {"name": name, "args": args, "description": "This tool call needs your approval."}
    config = {"action_name": name, "allowed_decisions": ["approve", "reject"]}
    return {"action_requests": [action], "review_configs": [config]}


def waiting(*asks: object) -> Script:
    return Script(words=("Let ", "me."), interrupts=asks)


async def asked(h: BusHarness, *asks: object, **changes: object) -> None:
    h.server.scripts.append(waiting(*asks or (review(command="make release"),)))
    await h.send("release it", **changes)
    await shows(h, 1)


def resumed(h: BusHarness, run: int = 1) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value with which a run was resumed, for each interrupt."""
    body = h.server.runs[run].body
    assert body.get("input") is None
    return list(body["command"]["resume"].values())


@pytest.mark.parametrize("platform", [ButtonPlatform("fake"), CardPlatform("fake")])
async def test_a_person_approves_by_a_button(tmp_path: Path, platform: FakePlatform) -> None:
    async with running_bus(tmp_path, platform=platform) as h:
        await asked(h)
        await eventually(lambda: labels(h) == [ENGLISH.button_approve, ENGLISH.button_deny])
        text = h.platform.texts[0]
        for part in ("Let me.", ENGLISH.approval_ask, "**bash**", "make release"):
            assert part in text
        assert await press(h, ENGLISH.button_approve) == PressResponse()
        await shows(h, 2)
        await eventually(lambda: not labels(h, 0))
        assert h.platform.texts[0].endswith(ENGLISH.mark_approved)
        await eventually(lambda: h.platform.texts[1] == "Hello you")
        assert resumed(h) == [{"decisions": [APPROVE]}]
        late = await press_again(h)
        assert late.urgent
        assert len(h.server.runs) == 2


async def press_again(h: BusHarness) -> PressResponse:
    row = (await h.bus.inbox.list_recent(limit=5))[-1]
    token = ButtonToken(ButtonAction.DENY, row.id).text
    return await h.bus.intake.handle_button_press(
        press_of(token, h.platform.shown[0], event_id="late")
    )


@pytest.mark.parametrize(
    ("words", "decision"),
    [
        ("approve", APPROVE),
        ("OK!", APPROVE),
        ("同意", APPROVE),
        ("deny", DENY),
        ("拒绝。", DENY),
        ("only on Mondays", {**DENY, "message": "only on Mondays"}),
    ],
)
async def test_a_person_decides_in_words(
    tmp_path: Path, words: str, decision: dict[str, str]
) -> None:
    async with running_bus(tmp_path) as h:
        await asked(h)
        await h.send(words)
        await shows(h, 2)
        assert resumed(h) == [{"decisions": [decision]}]
        assert h.platform.texts[1] == "Hello you"


async def test_a_pressed_button_is_no_message_of_the_presser(tmp_path: Path) -> None:
    """The button's text is English, but the conversation keeps its language."""
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        h.server.scripts += [waiting(review(command="make release")), waiting(review(command="b"))]
        await h.send("请发布新版本")
        await shows(h, 1)
        assert CHINESE.approval_ask in h.platform.texts[0]
        await press(h, CHINESE.button_approve)
        await shows(h, 2)
        assert CHINESE.approval_ask in h.platform.texts[1]
        assert resumed(h) == [{"decisions": [APPROVE]}]
        await eventually(lambda: h.platform.texts[0].endswith(CHINESE.mark_approved))


async def test_calls_beside_each_other_are_decided_together(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        one = {"type": "tool_approval", "tool_call_id": "c", "name": "push", "args": {"to": "x"}}
        await asked(h, review(command="a"), review("write_file", path="b"), one)
        assert all(name in h.platform.texts[0] for name in ("bash", "write_file", "push"))
        await press(h, ENGLISH.button_deny)
        await shows(h, 2)
        assert resumed(h) == [{"decisions": [DENY]}, {"decisions": [DENY]}, DENY]
        await eventually(lambda: h.platform.texts[0].endswith(ENGLISH.mark_denied))


async def test_questions_that_wait_together_are_asked_one_after_the_other(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        room = {"question": "Which room?", "options": ["blue", "red"]}
        h.server.scripts += [waiting(review(command="a"), room), waiting(room)]
        await h.send("book it")
        await shows(h, 1)
        assert "Which room?" not in h.platform.texts[0]
        assert labels(h) == [ENGLISH.button_approve, ENGLISH.button_deny]
        await h.send("yes")
        await shows(h, 2)
        assert resumed(h) == [{"decisions": [APPROVE]}]
        assert "Which room?" in h.platform.texts[1]
        await press(h, "red")
        await shows(h, 3)
        assert resumed(h, 2) == ["red"]


async def test_secrets_are_not_shown_and_long_arguments_are_cut(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as h:
        key = "sk-abcdefghijklmnop"
        await asked(h, review("call", api_key="hush", text=f"use {key} " + "x" * 5000))
        text = h.platform.texts[0]
        assert "hush" not in text
        assert key not in text
        assert len("".join(h.platform.texts)) < 2500


async def test_only_the_asker_or_an_admin_decides(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake"), policy=GROUP) as h:
        await asked(h, is_private=False)
        await h.send("approve", is_private=False, user="stranger")
        await shows(h, 2)
        assert h.platform.texts[1] == ENGLISH.approval_waits.format(name="u")
        refused = await press(h, ENGLISH.button_approve, nth=0, user="stranger", is_private=False)
        assert refused.text == ENGLISH.press_not_yours
        assert len(h.server.runs) == 1
        answer = await press(
            h, ENGLISH.button_approve, nth=0, user="boss", is_private=False, event_id="p2"
        )
        assert answer == PressResponse()
        await shows(h, 3)
        assert resumed(h) == [{"decisions": [APPROVE]}]
        # It continues for the person who asked.
        assert h.server.runs[1].body["context"]["channel_user_id"] == "u"


HEARD = {
    "is_private": False,
    "is_addressed": False,
    "chat": "g",
    "topic": "t",
    "replies_to": ("root",),
}
"""A message without a mention, in a thread in which the bot takes part."""

TO_BOT = {**HEARD, "is_addressed": True}
MENTION = ChannelPolicy(group_policy="mention", admin_users=["boss"])


def threads_platform() -> FakePlatform:
    """A platform like Slack: with threads, without replies to one message."""
    return FakePlatform(
        "fake", Capabilities(streaming=False, send_interval_s=0.0, has_replies=False)
    )


async def asked_in_group(h: BusHarness, *asks: object) -> None:
    await asked(h, *asks, **{**TO_BOT, "replies_to": ()}, event="root", track_replies=True)


async def test_in_a_group_words_decide_only_if_they_are_for_the_bot(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=threads_platform(), policy=MENTION) as h:
        await asked_in_group(h)
        assert h.platform.texts[0].endswith(ENGLISH.approval_hint_mention)
        await h.send("lunch?", user="bob", **HEARD)
        await h.send("yes", user="bob", **HEARD)
        await h.wait_until_finished()
        undecided = f"{ENGLISH.approval_undecided} {ENGLISH.approval_hint_mention}"
        for user, words in (("u", "ok"), ("u", "no"), ("boss", "approve")):
            await h.send(words, user=user, **HEARD)
            await shows(h, 2)
            assert h.platform.shown.pop().text == undecided
        await h.send("yes", user="bob", **TO_BOT)
        await shows(h, 2)
        assert h.platform.shown.pop().text == ENGLISH.approval_waits.format(name="u")
        assert len(h.server.runs) == 1
        await h.send("ok", **TO_BOT)
        await shows(h, 2)
        assert resumed(h) == [{"decisions": [APPROVE]}]


async def test_in_a_group_a_question_waits_for_the_asker_in_its_own_words(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=threads_platform(), policy=MENTION) as h:
        await asked_in_group(h, {"question": "Which day?"})
        for user in ("bob", "boss"):
            await h.send("lunch?", user=user, **HEARD)
        await h.wait_until_finished()
        await h.send("Monday?", user="bob", **TO_BOT)
        await shows(h, 2)
        assert h.platform.shown.pop().text == ENGLISH.question_waits.format(name="u")
        assert len(h.server.runs) == 1
        await h.send("Tuesday", **HEARD)
        await shows(h, 2)
        assert resumed(h) == ["Tuesday"]


async def test_a_long_list_of_choices_is_numbered_without_buttons(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        months = [f"Month {number} " + "x" * 200 for number in range(1, 13)]
        await asked(h, {"question": "Which month?", "options": [*months, "Decline"]})
        await h.wait_until_finished()
        await eventually(lambda: "13. Decline" in h.platform.texts[-1])
        assert all(month in "".join(h.platform.texts) for month in months)
        assert not labels(h)
        before = len(h.platform.texts)
        await h.send("12")
        await shows(h, before + 1)
        assert resumed(h) == [months[11]]


async def test_messages_between_people_get_no_indicator(tmp_path: Path) -> None:
    """No card, no reaction, no answer; the question stays."""
    platform = CardPlatform("fake")
    async with running_bus(tmp_path, platform=platform, policy=MENTION) as h:
        await asked_in_group(h)
        for words in ("lunch?", "ok"):
            await h.send(words, user="bob", **HEARD)
        await h.wait_until_finished()
        await h.send("ok", **TO_BOT)
        await eventually(lambda: h.platform.texts[-1] == "Hello you")
        assert len(h.platform.texts) == 2
        assert resumed(h) == [{"decisions": [APPROVE]}]
        # The indicators of the question and of the decision.
        await eventually(lambda: platform.marks == {"root": "done", f"e{h.sent}": "done"})


async def test_an_admin_decides_for_others_with_a_mention(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=threads_platform(), policy=MENTION) as h:
        await asked_in_group(h)
        await h.send("not today", user="boss", **TO_BOT)
        await shows(h, 2)
        assert resumed(h) == [{"decisions": [{**DENY, "message": "not today"}]}]


@pytest.mark.parametrize("has_replies", [True, False])
async def test_a_reply_to_the_bot_is_for_it(tmp_path: Path, *, has_replies: bool) -> None:
    """Feishu does not say whose message a reply answers. On Slack, a follow-up in a thread replies to no message."""
    platform = FakePlatform() if has_replies else threads_platform()
    async with running_bus(tmp_path, platform=platform, policy=MENTION) as h:
        await asked_in_group(h)
        if has_replies:
            assert h.platform.texts[0].endswith(ENGLISH.approval_hint_reply)
        question = str(h.platform.shown[0].id)
        await h.send("ok", **{**HEARD, "replies_to": ("root",)})
        await shows(h, 2)
        assert ENGLISH.approval_undecided in h.platform.shown.pop().text
        await h.send("ok", **{**HEARD, "replies_to": (question, "root")})
        await shows(h, 2)
        assert (len(h.server.runs) == 2) is has_replies


async def test_quotations_in_an_answer_are_not_part_of_the_decision(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as h:
        await asked(h)
        await h.send("ok", quoted="> You: I need your approval before I do this:")
        await shows(h, 2)
        assert resumed(h) == [{"decisions": [APPROVE]}]


async def test_a_question_in_a_group_needs_no_mention(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=threads_platform(), policy=MENTION) as h:
        await asked_in_group(h, {"question": "Which colour?"})
        await h.send("blue", **HEARD)
        await shows(h, 2)
        assert resumed(h) == ["blue"]


async def test_a_mention_that_is_added_later_decides_nothing_by_itself(tmp_path: Path) -> None:
    """The bot has answered the message already, and offers to answer it again."""
    async with running_bus(tmp_path, platform=threads_platform(), policy=MENTION) as h:
        await asked_in_group(h)
        await h.send("ok", event="answer", **HEARD)
        await shows(h, 2)
        await edit(h, "answer", "ok!", "c1", **TO_BOT)
        await shows(h, 3)
        assert len(h.server.runs) == 1


async def test_questions_of_other_graphs_are_answered_with_text(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        await asked(h, {"question": "Which colour?", "n": 2})
        assert h.platform.texts == ["Let me.\n\nWhich colour?"]
        assert labels(h) == []
        await h.send("blue")
        await shows(h, 2)
        assert resumed(h) == ["blue"]


async def test_interrupts_missing_from_the_stream_are_read_from_the_state(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        ask = (review(command="make release"),)
        h.server.scripts.append(
            Script(words=("Let me.",), interrupts=ask, streams_interrupts=False)
        )
        await h.send("release it")
        await shows(h, 1)
        assert "make release" in h.platform.texts[0]
        await press(h, ENGLISH.button_approve)
        await shows(h, 2)
        assert resumed(h) == [{"decisions": [APPROVE]}]


async def test_a_run_may_ask_again(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        await asked(h)
        h.server.scripts.append(waiting(review(command="make announce")))
        await press(h, ENGLISH.button_approve)
        await shows(h, 2)
        assert "make announce" in h.platform.texts[1]
        await press(h, ENGLISH.button_approve, event_id="p2")
        await shows(h, 3)
        assert [resumed(h, run) for run in (1, 2)] == [[{"decisions": [APPROVE]}]] * 2


async def test_a_question_that_is_gone_is_not_answered(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        await asked(h)
        h.server.waits.clear()
        await press(h, ENGLISH.button_approve)
        await shows(h, 2)
        assert h.platform.texts[1] == ENGLISH.press_inactive
        await h.send("hello")
        await shows(h, 3)
        assert h.server.runs[-1].body["input"]["messages"][0]["content"] == "hello"


async def test_a_new_conversation_leaves_the_call_unmade(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        await asked(h)
        await h.send("/new")
        await shows(h, 2)
        await h.send("yes")
        await shows(h, 3)
        assert h.server.runs[-1].body["input"]["messages"][0]["content"] == "yes"
        await eventually(lambda: not labels(h, 0))


@pytest.mark.parametrize("how", ["stop", "edit"])
async def test_an_approval_that_was_ended_is_not_used_again(tmp_path: Path, how: str) -> None:
    """LangGraph shows the question until the step is done. The first answer counts."""
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        await asked(h)
        [(thread, waits)] = h.server.waits.items()
        h.server.scripts.append(Script(hang_after=1))
        await h.send("yes")
        await h.wait_for_runs(2)
        await eventually(lambda: h.server.runs[1].events)
        h.server.waits[thread] = waits
        if how == "stop":
            await h.send("/stop")
            await eventually(lambda: ENGLISH.stop_done in h.platform.texts)
            await h.send("no")
        else:
            await edit(h, "e2", "no", "c1")
        await eventually(lambda: h.platform.texts[-1] == "Hello you")
        assert [run.body.get("command") for run in h.server.runs[2:]] == [None]
        assert h.server.runs[2].body["input"]["messages"][0]["content"] == "no"


@pytest.mark.parametrize("hang", [True, False])
async def test_a_decision_survives_a_crash_and_counts_once(tmp_path: Path, *, hang: bool) -> None:
    """The process is killed while the resumed run works, or before it began."""
    platform = ButtonPlatform("fake")
    async with FakeLangGraph() as server:
        async with running_bus(tmp_path, platform=platform, server=server) as h:
            await asked(h)
            if hang:
                server.scripts.append(Script(hang_after=1))
            else:
                server.refusals.extend([503] * 100)
            await press(h, ENGLISH.button_approve)
            if hang:
                await h.wait_for_runs(2)
            else:
                await eventually(lambda: server.requests.count(stream_of(h)) >= 2)
        server.refusals.clear()
        if hang:
            run = server.runs[1]
            messages = server.threads[run.thread_id]
            messages.append({"type": "ai", "id": "x", "content": "Released."})
            run.events.append(("values", {"messages": list(messages)}))
            run.status = "success"
            run.changed.set()
        async with running_bus(tmp_path, platform=platform, server=server):
            await eventually(lambda: len(platform.shown) >= 2)
        assert platform.texts[1] == ("Released." if hang else "Hello you")
        assert len(server.runs) == 2
        assert len(server.runs[1].body["command"]["resume"]) == 1


def stream_of(h: BusHarness) -> tuple[str, str]:
    [thread] = h.server.threads
    return ("POST", f"/threads/{thread}/runs/stream")
