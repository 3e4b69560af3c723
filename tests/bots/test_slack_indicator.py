"""Working indicators on Slack: an agent's own status, or a reaction; and greetings."""

from dataclasses import replace

import pytest

from bots.slack.adapter import SlackAdapter
from bots.slack.capabilities import SLACK, STREAMING
from bots.slack.indicator import TITLE_CHARS
from bus.errors import DeliveryError
from bus.messages import ReplyTarget
from bus.platform import WorkShown
from gateway.playground.slack.server import USER, FakeSlack
from gateway.playground.slack.state import SlackMessage
from tests.bots.slack_rig import FAST, config, fast_slack, running
from tests.bots.test_slack_outbound import place_of
from tests.fakes.intake import RecordingIntake


def agent_slack() -> FakeSlack:
    slack = fast_slack()
    slack.declare_agent()
    return slack


def shown(slack: FakeSlack, asked: SlackMessage) -> tuple[str, str]:
    status = slack.workspace.status(asked.channel, asked.thread_ts or asked.ts)
    return status.session, status.text


async def test_an_agents_thread_is_a_session_with_slacks_stop_button() -> None:
    async with agent_slack() as slack, running(slack, RecordingIntake()) as adapter:
        asked = slack.dm("what is the\nweather like? " * 20)
        await slack.wait_for(lambda: all(e.acked for e in slack.sockets.envelopes))
        await adapter.show_working(place_of(asked))
        await adapter.show_working(place_of(asked))
        assert shown(slack, asked) == ("processing", "")
        title = slack.workspace.status(asked.channel, asked.ts).title
        assert title == ("what is the weather like? " * 20)[:TITLE_CHARS]
        assert slack.reactions(asked) == set()
        await adapter.show_finished(place_of(asked), ok=True)
        assert shown(slack, asked) == ("active", "")
        assert slack.reactions(asked) == set()
        assert len(slack.asked("agents.sessions.setStatus")) == 3
    assert slack.violations == []


async def test_without_sessions_there_is_a_line_of_text() -> None:
    async with agent_slack() as slack, running(slack) as adapter:
        slack.workspace.is_agent = False
        asked = slack.dm("hi")
        place = replace(place_of(asked), language="zh")
        await adapter.show_working(place)
        assert shown(slack, asked) == ("", "正在处理…")
        await adapter.show_finished(place, ok=False)
        assert shown(slack, asked) == ("", "")
        other = slack.dm("again")
        await adapter.show_working(place_of(other))
        assert shown(slack, other) == ("", "is working on it…")
        # A call that the app may not make is tried only once.
        assert len(slack.asked("agents.sessions.setStatus")) == 1
    assert slack.violations == []


async def test_in_a_channel_the_message_has_its_reaction_all_the_same() -> None:
    async with agent_slack() as slack, running(slack) as adapter:
        asked = slack.mention("hi")
        await adapter.show_working(place_of(asked))
        await adapter.show_working(place_of(asked))
        assert shown(slack, asked)[0] == "processing"
        assert slack.reactions(asked) == {"eyes"}
        await adapter.show_finished(place_of(asked), ok=False)
        assert shown(slack, asked)[0] == "active"
        assert slack.reactions(asked) == {"x"}
        assert len(slack.asked("reactions.add")) == 2
    assert slack.violations == []


async def test_an_app_that_is_no_agent_reacts_and_asks_for_nothing_else() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")
        await adapter.show_working(place_of(asked))
        await adapter.show_working(place_of(asked))
        assert slack.reactions(asked) == {"eyes"}
        assert len(slack.asked("reactions.add")) == 1
        await adapter.show_finished(place_of(asked), ok=True)
        assert slack.reactions(asked) == {"white_check_mark"}
        methods = {call.method for call in slack.server.calls}
        assert not {name for name in methods if name.startswith(("agents", "assistant"))}
    assert slack.violations == []


@pytest.mark.parametrize("ends_well", [True, False])
async def test_another_attempt_replaces_the_outcome_of_the_one_before(*, ends_well: bool) -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.mention("hi")
        for ok in (not ends_well, ends_well):
            await adapter.show_working(place_of(asked))
            await adapter.show_finished(place_of(asked), ok=ok)
        assert slack.reactions(asked) == {"white_check_mark" if ends_well else "x"}
        slack.fail("reactions.remove", status=503)
        await adapter.show_finished(place_of(asked), ok=not ends_well, was_shown=WorkShown.NO)
        assert slack.reactions(asked) == {"white_check_mark", "x"}
    assert slack.violations == []


async def test_a_thread_in_which_no_status_can_be_shown_gets_a_reaction() -> None:
    async with agent_slack() as slack, running(slack) as adapter:
        for method in ("agents.sessions.setStatus", "assistant.threads.setStatus"):
            slack.fail(method, error="invalid_thread_ts")
        first, second = slack.dm("one"), slack.dm("two")
        await adapter.show_working(place_of(first))
        assert slack.reactions(first) == {"eyes"}
        await adapter.show_finished(place_of(first), ok=True)
        assert slack.reactions(first) == {"white_check_mark"}
        await adapter.show_working(place_of(second))
        assert shown(slack, second)[0] == "processing"


async def test_a_failing_slack_is_tried_again_later() -> None:
    async with agent_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")
        slack.fail("agents.sessions.setStatus", status=503)
        with pytest.raises(DeliveryError) as caught:
            await adapter.show_working(place_of(asked))
        assert caught.value.retryable
        await adapter.show_working(place_of(asked))
        assert shown(slack, asked)[0] == "processing"


async def test_a_status_of_an_earlier_process_is_taken_away() -> None:
    async with agent_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")
        await adapter.show_working(place_of(asked))
        async with running(slack) as later:
            await later.show_finished(place_of(asked), ok=True)
        assert shown(slack, asked)[0] == "active"
        assert slack.reactions(asked) == set()


async def test_a_status_that_cannot_be_taken_away_goes_by_itself() -> None:
    async with agent_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")
        await adapter.show_working(place_of(asked))
        slack.fail("agents.sessions.setStatus", status=500)
        await adapter.show_finished(place_of(asked), ok=True)
        assert slack.reactions(asked) == set()


def test_the_sign_is_refreshed_before_slack_takes_it_away() -> None:
    for numbers in (SLACK, STREAMING):
        assert 0 < numbers.indicator_refresh_s < 120
        assert 0 < numbers.progress_notice_after_s <= 10


async def test_a_command_has_no_message_to_put_a_sign_on() -> None:
    async with agent_slack() as slack, running(slack) as adapter:
        await adapter.show_working(ReplyTarget(chat=f"D{USER}"))
        await adapter.show_finished(ReplyTarget(chat=f"D{USER}"), ok=True)
        assert {call.method for call in slack.server.calls} == {
            "auth.test",
            "apps.connections.open",
        }


async def test_a_refused_message_is_marked_and_its_thread_keeps_the_status_of_the_one_before() -> (
    None
):
    async with agent_slack() as slack, running(slack) as adapter:
        asked = slack.dm("write a book")
        more = slack.dm("and another", thread_ts=asked.ts)
        await adapter.show_working(place_of(asked))
        await adapter.show_refused(place_of(more))
        assert shown(slack, more)[0] == "processing"
        assert (slack.reactions(asked), slack.reactions(more)) == (set(), {"x"})
    assert slack.violations == []


async def test_a_thread_keeps_its_status_until_its_last_message_is_answered() -> None:
    async with agent_slack() as slack, running(slack) as adapter:
        asked = slack.dm("one")
        after, elsewhere = slack.dm("two", thread_ts=asked.ts), slack.dm("three")
        for message in (asked, after, elsewhere):
            await adapter.show_working(place_of(message))
        await adapter.show_finished(place_of(asked), ok=True)
        assert shown(slack, asked)[0] == "processing"
        await adapter.show_finished(place_of(after), ok=True)
        assert (shown(slack, asked)[0], shown(slack, elsewhere)[0]) == ("active", "processing")
    assert slack.violations == []


async def test_a_status_of_an_earlier_process_is_taken_away_before_the_connection_is_there() -> (
    None
):
    """The indicators of the last process are repeated at the start, before anything is known about the app."""
    async with agent_slack() as slack:
        async with running(slack) as adapter:
            asked = slack.dm("hi")
            await adapter.show_working(place_of(asked))
        await SlackAdapter(config(slack), timeouts=FAST).show_finished(place_of(asked), ok=True)
        assert (shown(slack, asked)[0], slack.reactions(asked)) == ("active", set())
    assert slack.violations == []


# -- greeting


async def test_opening_an_agents_chat_offers_suggested_prompts_once() -> None:
    async with agent_slack() as slack, running(slack):
        for _ in range(2):
            slack.open_chat()
        await slack.wait_for(lambda: slack.workspace.prompts)
        assert len(slack.workspace.prompts[(f"D{USER}", "")]) == 3
        started = {"user_id": USER, "channel_id": f"D{USER}", "thread_ts": slack.dm("x").ts}
        slack.send_event({"type": "assistant_thread_started", "assistant_thread": started})
        await slack.wait_for(lambda: len(slack.workspace.prompts) == 2)
        await slack.wait_for(lambda: all(e.acked for e in slack.sockets.envelopes))
        assert len(slack.asked("assistant.threads.setSuggestedPrompts")) == 2
        assert slack.texts(f"D{USER}") == []
    assert slack.violations == []


async def test_greetings_speak_the_configured_language() -> None:
    async with agent_slack() as slack, running(slack, given={"language": "zh"}):
        slack.open_chat()
        await slack.wait_for(lambda: slack.workspace.prompts)
        assert "你能做什么？" in slack.workspace.prompts[(f"D{USER}", "")]


async def test_an_app_that_is_not_an_agent_greets_nobody() -> None:
    async with fast_slack() as slack, running(slack):
        envelope = slack.open_chat()
        await slack.wait_for(lambda: envelope.acked)
        assert slack.asked("assistant.threads.setSuggestedPrompts") == []


async def test_a_greeting_that_fails_harms_nothing() -> None:
    intake = RecordingIntake()
    async with agent_slack() as slack, running(slack, intake):
        slack.fail("assistant.threads.setSuggestedPrompts", status=500)
        slack.open_chat()
        await slack.wait_for(lambda: slack.asked("assistant.threads.setSuggestedPrompts"))
        slack.dm("hello")
        await slack.wait_for(lambda: intake.texts == ["hello"])
