"""Buttons under messages: who may press them, what they do, and the message afterwards."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from bus.buttons import ButtonAction, ButtonToken
from bus.config import BusConfig, ChannelPolicy, RateLimit
from bus.errors import DeliveryError, IntakeClosed
from bus.inbound.button_presses import AuthorizedPress, message_from_press
from bus.locales.en import ENGLISH
from bus.locales.zh import CHINESE
from bus.messages import (
    Button,
    ButtonPress,
    PressResponse,
    ReplyTarget,
    Sender,
    decode_inbound,
    encode_inbound,
)
from bus.platform import Disposition
from store.conversations import ConversationKey
from tests.bus.harness import BusHarness, running_bus
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.fakes.platform import ButtonPlatform, CardPlatform, FakePlatform, ShownMessage

WHICH = Script(words=(), question="❓ Which?", options=("red", "green"))
BROKEN = Script(words=("Hel",), error={"error": "InternalServerError", "message": "sk-secret"})
GROUP = ChannelPolicy(group_policy="open", admin_users=["boss"])


def press_of(token: str, message: ShownMessage, **changes: object) -> ButtonPress:
    chat, user = str(changes.pop("chat", "c")), str(changes.pop("user", "u"))
    fields: dict[str, object] = {
        "event_id": "p1",
        "key": ConversationKey(channel="fake", workspace="w", chat=chat),
        "reply_target": ReplyTarget(chat=chat),
        "message_id": message.id,
        "token": token,
        "sender": Sender(user_id=user, name=user),
        "is_private": True,
        **changes,
    }
    return ButtonPress(**fields)  # type: ignore[arg-type]


async def press(h: BusHarness, label: str, *, nth: int = -1, **changes: object) -> PressResponse:
    """Press the button with a label under the n-th message."""
    message = h.platform.shown[nth]
    return await h.bus.intake.handle_button_press(
        press_of(token_of(message.buttons, label), message, **changes)
    )


def token_of(buttons: tuple[Button, ...], label: str) -> str:
    return next(button.token for button in buttons if button.label == label)


def labels(h: BusHarness, nth: int = -1) -> list[str]:
    return [button.label for button in h.platform.shown[nth].buttons]


async def shows(h: BusHarness, count: int) -> None:
    await eventually(lambda: len(h.platform.shown) >= count)


async def asked(h: BusHarness, **changes: object) -> None:
    """Send a message. The bot answers it with a question and two options."""
    h.server.scripts.append(WHICH)
    await h.send("paint it", **changes)
    await shows(h, 1)


async def failed(h: BusHarness) -> None:
    h.server.scripts.append(BROKEN)
    await h.send("paint it")
    await shows(h, 1)


@pytest.mark.parametrize("platform", [ButtonPlatform("fake"), CardPlatform("fake")])
async def test_a_pressed_option_is_a_message_of_the_presser(
    tmp_path: Path, platform: FakePlatform
) -> None:
    async with running_bus(tmp_path, platform=platform) as h:
        await asked(h)
        await eventually(lambda: labels(h) == ["red", "green"])
        assert await press(h, "green") == PressResponse()
        await shows(h, 2)
        await eventually(lambda: h.platform.texts == ["❓ Which?\n\n✓ green", "Hello you"])
        assert h.prompts() == ["paint it", "green"]
        assert labels(h, 0) == []
        assert h.bus.counters()[("fake", Disposition.ACCEPTED)] == 3
        row = (await h.bus.inbox.list_recent(limit=1))[0]
        assert '"user_id":"u"' in row.body.replace(" ", "")


@pytest.mark.parametrize(("presser", "recipient"), [("u", "T1@T9/u"), ("boss", "T1@boss")])
async def test_the_answer_to_a_press_is_sent_with_the_token_of_its_workspace(
    tmp_path: Path, presser: str, recipient: str
) -> None:
    """Where OAuth installed a Slack app, the recipient names the workspace."""
    async with running_bus(tmp_path, platform=ButtonPlatform("fake"), policy=GROUP) as h:
        await asked(h, is_private=False, reply_target=ReplyTarget(chat="c", user="T1@T9/u"))
        await eventually(lambda: labels(h) == ["red", "green"])
        place = ReplyTarget(chat="c", user=f"T1@{presser}")
        assert await press(h, "red", user=presser, reply_target=place) == PressResponse()
        await shows(h, 2)
        row = (await h.bus.inbox.list_recent(limit=1))[0]
        assert decode_inbound(row.body).reply_target.user == recipient


async def test_the_first_of_several_presses_counts(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        await asked(h)
        message = h.platform.shown[0]
        red, green = (token_of(message.buttons, label) for label in ("red", "green"))
        assert await h.bus.intake.handle_button_press(press_of(red, message)) == PressResponse()
        again = await h.bus.intake.handle_button_press(press_of(red, message))
        other = await h.bus.intake.handle_button_press(press_of(green, message, event_id="p2"))
        await shows(h, 2)
        assert again == PressResponse()
        assert other == PressResponse(text=ENGLISH.press_answered, urgent=True)
        assert h.prompts() == ["paint it", "red"]


async def test_presses_at_the_same_time_are_one_answer(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        await asked(h)
        async with anyio.create_task_group() as people:
            for number, label in enumerate(("red", "green") * 4):
                message = h.platform.shown[0]
                made = press_of(token_of(message.buttons, label), message, event_id=f"p{number}")
                people.start_soon(h.bus.intake.handle_button_press, made)
        await shows(h, 2)
        await h.send("thanks")
        await shows(h, 3)
        assert len(h.prompts()) == 3


async def test_only_the_asker_or_an_admin_may_press(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake"), policy=GROUP) as h:
        await asked(h, is_private=False)
        refused = await press(h, "red", user="stranger", is_private=False)
        assert refused == PressResponse(text=ENGLISH.press_not_yours, urgent=True)
        assert h.bus.counters()[("fake", Disposition.NOT_ALLOWED)] == 1
        assert labels(h, 0) == ["red", "green"]
        assert (
            await press(h, "red", user="boss", is_private=False, event_id="p2") == PressResponse()
        )
        await shows(h, 2)
        assert h.prompts() == ["paint it", "red"]


async def test_people_whose_access_was_revoked_may_not_press(tmp_path: Path) -> None:
    policy = ChannelPolicy(dm_policy="pairing")
    async with running_bus(tmp_path, platform=ButtonPlatform("fake"), policy=policy) as h:
        await h.send("hello")
        await shows(h, 1)
        [pairing] = await h.bus.pairings.list_all()
        await h.bus.approve(pairing.code)
        h.server.scripts.append(WHICH)
        await h.send("paint it")
        await shows(h, 2)
        await h.bus.pairings.revoke("fake", "u")
        answer = await press(h, "red")
        assert answer == PressResponse(text=ENGLISH.press_not_allowed, urgent=True)
        assert h.prompts() == ["paint it"]


@pytest.mark.parametrize(
    "changes",
    [
        {"chat": "elsewhere"},
        {"token": "option:99:0"},
        {"token": "option:1:7"},
        {"token": "retry:1:0"},
        {"token": "approve:1:0"},
        {"token": "rerun:1:0"},
        {"token": "nonsense"},
        {"token": ""},
    ],
)
async def test_an_unknown_button_is_answered_politely(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        await asked(h)
        message = h.platform.shown[0]
        made = press_of(
            str(changes.pop("token", token_of(message.buttons, "red"))), message, **changes
        )
        answer = await h.bus.intake.handle_button_press(made)
        assert answer == PressResponse(text=ENGLISH.press_inactive, urgent=True)
        assert h.bus.counters()[("fake", Disposition.TOO_LATE)] == 1
        assert h.prompts() == ["paint it"]


async def test_a_typed_answer_takes_the_buttons_away(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        await asked(h)
        stale = token_of(h.platform.shown[0].buttons, "red")
        await h.send("2")
        await shows(h, 2)
        await eventually(lambda: not labels(h, 0))
        assert h.platform.texts[0] == "❓ Which?\n\n✓ green"
        late = await h.bus.intake.handle_button_press(press_of(stale, h.platform.shown[0]))
        assert late == PressResponse(text=ENGLISH.press_answered, urgent=True)
        await h.send("more")
        await shows(h, 3)
        assert h.platform.calls.count("edit") == 1


async def test_a_new_conversation_leaves_the_question_behind(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        await asked(h)
        await h.send("/new")
        await shows(h, 2)
        late = await press(h, "red", nth=0)
        assert late == PressResponse(text=ENGLISH.press_inactive, urgent=True)
        await h.send("hello")
        await eventually(lambda: not labels(h, 0))
        assert h.platform.texts[0] == "❓ Which?"


async def test_a_long_option_is_cut_on_the_button_only(tmp_path: Path) -> None:
    long = "word " * 40
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        options = (long, *(f"option {number}" for number in range(9)))
        h.server.scripts.append(Script(words=(), question="Which?", options=options))
        await h.send("paint it")
        await shows(h, 1)
        assert len(labels(h)) == 10
        assert len(labels(h)[0]) == 75
        await press(h, labels(h)[0])
        await h.wait_for_runs(2)
        assert h.prompts()[1] == long.strip()


async def test_without_buttons_a_typed_answer_works(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as h:
        await asked(h)
        await h.send("red")
        await shows(h, 2)
        assert h.platform.calls == ["send", "send"]


async def test_a_press_refused_for_load_is_delivered_again(tmp_path: Path) -> None:
    config = BusConfig(drain_s=0.2, rate_limit=RateLimit(messages=1, per_seconds=60))
    async with running_bus(tmp_path, platform=ButtonPlatform("fake"), config=config) as h:
        await asked(h)
        answer = await press(h, "red")
        assert answer == PressResponse(text=ENGLISH.press_full, urgent=True)
        h.clock.ahead += 61
        message = h.platform.shown[0]
        green = press_of(token_of(message.buttons, "green"), message, event_id="p3")
        assert await press(h, "red", nth=0, event_id="p2") == PressResponse()
        again = await h.bus.intake.handle_button_press(green)  # its buttons may already be gone
        assert again == PressResponse(text=ENGLISH.press_answered, urgent=True)
        await h.wait_for_runs(2)
        assert h.prompts() == ["paint it", "red"]


async def test_a_press_while_parley_stops_is_not_taken(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        await asked(h)
        h.bus.local_intake.close()
        with pytest.raises(IntakeClosed):
            await press(h, "red")


async def test_the_buttons_go_also_after_a_crash(tmp_path: Path) -> None:
    """The crash comes between the accepted press and the edit of its message."""
    platform = ButtonPlatform("fake")
    async with FakeLangGraph() as server:
        async with running_bus(tmp_path, platform=platform, server=server) as h:
            await asked(h)
            server.refusals.extend([503] * 100)
            row = (await h.bus.inbox.list_recent(limit=1))[0]
            pressed = AuthorizedPress(
                press=press_of(labels(h)[0], platform.shown[0]),
                token=ButtonToken(ButtonAction.OPTION, row.id),
                row=row,
                asked=decode_inbound(row.body),
                texts=ENGLISH,
            )
            accepted = await h.bus.intake.receive(message_from_press(pressed, "red", "option"))
            assert accepted is Disposition.ACCEPTED
            dropped = await h.bus.inbox.list_recent(limit=1)
            assert dropped[0].event_id == f"press:{row.id}:option"
        server.refusals.clear()
        async with running_bus(tmp_path, platform=platform, server=server) as h:
            await shows(h, 2)
            await eventually(lambda: not labels(h, 0))
            assert platform.texts == ["❓ Which?\n\n✓ red", "Hello you"]
            again = press_of(pressed.token.text, platform.shown[0])
            assert await h.bus.intake.handle_button_press(again) == PressResponse()
            assert h.prompts() == ["paint it", "red"]


async def test_buttons_that_cannot_be_taken_away_now_go_later(tmp_path: Path) -> None:
    platform = ButtonPlatform("fake")
    async with running_bus(tmp_path, platform=platform) as h:
        await asked(h)
        platform.fail("edit", DeliveryError("slow down", retryable=True, retry_after_s=0.05))
        assert await press(h, "red") == PressResponse()
        await eventually(lambda: not labels(h, 0))
        assert platform.calls.count("edit") == 2


async def test_an_edit_of_unknown_outcome_is_made_again(tmp_path: Path) -> None:
    platform = ButtonPlatform("fake")
    async with running_bus(tmp_path, platform=platform) as h:
        await asked(h)
        platform.fail("edit", DeliveryError("no answer", retryable=True, ambiguous=True))
        assert await press(h, "red") == PressResponse()
        await eventually(lambda: not labels(h, 0))
        assert platform.calls.count("edit") == 2
        assert platform.texts[0] == "❓ Which?\n\n✓ red"


async def test_a_message_that_is_gone_needs_no_edit(tmp_path: Path) -> None:
    platform = ButtonPlatform("fake")
    async with running_bus(tmp_path, platform=platform) as h:
        await asked(h)
        platform.fail("edit", DeliveryError("no such message", target_gone=True))
        assert await press(h, "red") == PressResponse()
        await shows(h, 2)
        await eventually(h.bus.outbox.count_by_state, lambda counts: not counts)
        assert platform.calls.count("edit") == 1


# ---- stop --------------------------------------------------------------------------------------


async def test_stop_ends_the_turn_that_runs_and_no_other(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake", notice_after_s=0.01)) as h:
        h.server.scripts += [Script(hang_after=1), Script(hang_after=1)]
        await h.send("one", chat="a")
        await h.send("two", chat="b")
        await h.wait_for_runs(2)
        await shows(h, 2)
        nth = next(n for n, message in enumerate(h.platform.shown) if message.chat == "a")
        answer = await press(h, ENGLISH.button_stop, nth=nth, chat="a")
        assert answer == PressResponse(text=ENGLISH.press_stopping)
        await eventually(
            lambda: sorted(run.status for run in h.server.runs) == ["interrupted", "running"]
        )
        await eventually(lambda: ENGLISH.stopped in h.platform.shown[nth].text)


async def test_stop_takes_a_message_out_of_the_queue(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        h.server.scripts.append(Script(hang_after=1))
        await h.send("one")
        await h.wait_for_runs(1)
        await h.send("two")
        rows = await h.bus.inbox.list_unfinished()
        for row in (rows[1], rows[0]):
            token = ButtonToken(ButtonAction.STOP, row.id).text
            answer = await h.bus.intake.handle_button_press(
                press_of(token, ShownMessage("m", "c", "", ""))
            )
            assert answer == PressResponse(text=ENGLISH.press_stopping)
        for row in rows:
            await until_finished(h, row.id)
        assert h.prompts() == ["one"]
        assert h.platform.texts == []


async def test_a_stopped_message_stays_stopped_after_a_crash(tmp_path: Path) -> None:
    """The process is killed after the press was stored and before the run ended."""
    platform = ButtonPlatform("fake", notice_after_s=0.01)
    async with FakeLangGraph() as server:
        server.scripts.append(Script(hang_after=1))
        async with running_bus(tmp_path, platform=platform, server=server) as h:
            await h.send("one")
            await h.wait_for_runs(1)
            await shows(h, 1)
            [row] = await h.bus.inbox.list_unfinished()
            noted = replace(decode_inbound(row.body), is_stopped=True)
            assert await h.bus.inbox.update_body(row.id, encode_inbound(noted))
        async with running_bus(tmp_path, platform=platform, server=server) as h:
            await until_finished(h, row.id)
            await eventually(lambda: ENGLISH.stopped in platform.texts[0])
            assert server.runs[0].status == "interrupted"
            assert len(server.runs) == 1


async def test_a_late_stop_is_answered_with_the_reason(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        await h.send("one")
        await shows(h, 1)
        row = (await h.bus.inbox.list_recent(limit=1))[0]
        stop = press_of(
            ButtonToken(ButtonAction.STOP, row.id).text, h.platform.shown[0], language="zh-CN"
        )
        answer = await h.bus.intake.handle_button_press(stop)
        assert answer == PressResponse(text=CHINESE.press_finished, urgent=True)


async def until_finished(h: BusHarness, row_id: int) -> None:
    await eventually(
        h.bus.inbox.list_unfinished, lambda rows: all(row.id != row_id for row in rows)
    )


# ---- try again ---------------------------------------------------------------------------------


async def test_a_failed_answer_is_tried_again_in_its_place(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        await failed(h)
        assert labels(h) == [ENGLISH.button_retry]
        assert await press(h, ENGLISH.button_retry) == PressResponse()
        await shows(h, 2)
        await eventually(lambda: not labels(h, 0))
        assert h.platform.texts[0].endswith(ENGLISH.mark_retry)
        assert h.platform.texts[1] == "Hello you"
        [thread] = h.server.threads.values()
        assert [m["content"] for m in thread if m["type"] == "human"] == ["paint it"]


async def test_servers_without_forks_get_the_message_twice(tmp_path: Path) -> None:
    async with (
        FakeLangGraph("deerflow") as server,
        running_bus(tmp_path, platform=ButtonPlatform("fake"), server=server) as h,
    ):
        await failed(h)
        assert await press(h, ENGLISH.button_retry) == PressResponse()
        await shows(h, 2)
        assert h.platform.texts[1] == "Hello you"
        [thread] = server.threads.values()
        assert [m["content"] for m in thread if m["type"] == "human"] == ["paint it"] * 2


async def test_an_attempt_that_fails_again_can_be_tried_again(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        await failed(h)
        for count in (2, 3):
            h.server.scripts += [BROKEN] * (count == 2)
            assert await press(h, ENGLISH.button_retry, event_id=f"p{count}") == PressResponse()
            await shows(h, count)
        assert h.platform.texts[-1] == "Hello you"
        [thread] = h.server.threads.values()
        assert [m["content"] for m in thread if m["type"] == "human"] == ["paint it"]


async def test_nothing_is_tried_again_behind_newer_messages(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        await failed(h)
        await h.send("something else")
        await shows(h, 2)
        answer = await press(h, ENGLISH.button_retry, nth=0)
        assert answer == PressResponse(text=ENGLISH.press_newer, urgent=True)
        await eventually(lambda: not labels(h, 0))
        assert h.prompts() == ["paint it", "something else"]


@pytest.mark.parametrize("error", ["AuthenticationError", "GraphRecursionError", "AgentInvalid"])
async def test_errors_that_would_repeat_have_no_retry_button(tmp_path: Path, error: str) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        h.server.scripts.append(Script(words=(), error={"error": error, "message": "no"}))
        await h.send("paint it")
        await shows(h, 1)
        assert labels(h) == []


async def test_a_failed_retry_command_is_tried_again(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as h:
        await h.send("paint it")
        await shows(h, 1)
        h.server.scripts.append(BROKEN)
        await h.send("/retry")
        await shows(h, 2)
        assert await press(h, ENGLISH.button_retry) == PressResponse()
        await shows(h, 3)
        assert h.platform.texts[-1] == "Hello you"
        [thread] = h.server.threads.values()
        assert [m["content"] for m in thread if m["type"] == "human"] == ["paint it"]
