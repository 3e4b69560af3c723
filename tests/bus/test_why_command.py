"""/why: admins learn why messages were not answered, others do not."""

from pathlib import Path

from bots.config import TerminalConfig
from bus.access.intake_stats import MAX_CHATS_TRACKED, REFUSALS_PER_CHAT, IntakeStats
from bus.config import ChannelPolicy
from bus.platform import Disposition
from tests.bus.harness import inbound_message, running_bus
from tests.eventually import eventually

POLICY = ChannelPolicy(dm_policy="open", admin_users=["root"])
OURS = {"chat": "g", "is_private": False}


async def test_an_admin_learns_why_messages_were_not_answered(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=POLICY) as harness:
        await harness.send("hey all", **OURS, is_addressed=False, user="ann")
        await harness.send(" ", **OURS, user="ben")
        await harness.send("elsewhere", chat="h", is_private=False, is_addressed=False)
        harness.bus.intake.report_ignored("fake", Disposition.FROM_BOT)
        await harness.send("/why", **OURS, user="root")
        await eventually(lambda: harness.platform.texts)
        here, first, second, channel, *counts = harness.platform.texts[0].splitlines()
        assert here == "Not accepted in this chat, newest first:"
        assert first.startswith("• 1970-01-")
        assert first.endswith(" UTC, from `ben`: `empty` (it had no content)")
        assert "from `ann`: `not_addressed`" in second
        assert channel == "Not accepted on fake since the start:"
        assert counts[0] == "• 2 × `not_addressed` (in a group, and not addressed to the bot)"
        assert sorted(counts[1:]) == [
            "• 1 × `empty` (it had no content)",
            "• 1 × `from_bot` (sent by a bot)",
        ]


async def test_why_lists_nothing_if_nothing_was_refused(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=POLICY) as harness:
        await harness.send("/why", user="root")
        await harness.expect_replies(
            "Not accepted in this chat, newest first:\n• nothing\n"
            "Not accepted on fake since the start:\n• nothing"
        )


async def test_why_answers_only_admins(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=POLICY) as harness:
        await harness.send("/why", user="ann")
        await harness.expect_replies("Only admins can use this command.")


async def test_nobody_is_an_admin_unless_named(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("/why", user="")
        await harness.expect_replies("Only admins can use this command.")
    assert TerminalConfig().admin_users == ["local"]


def test_the_number_of_kept_refusals_is_bounded() -> None:
    decisions = IntakeStats()
    for number in range(MAX_CHATS_TRACKED + 1):
        decisions.record(inbound_message("x", "e", chat=str(number)), Disposition.EMPTY, at=0.0)
    for number in range(REFUSALS_PER_CHAT + 1):
        decisions.record(inbound_message("x", "e", chat="9"), Disposition.EMPTY, at=float(number))
    assert decisions.recent_refusals(inbound_message("x", "e", chat="0").key) == []
    assert [one.at for one in decisions.recent_refusals(inbound_message("x", "e", chat="9").key)] == [
        5.0, 4.0, 3.0, 2.0, 1.0,
    ]  # fmt: skip
    assert decisions.refusals_by_reason("fake") == {
        Disposition.EMPTY: MAX_CHATS_TRACKED + 1 + REFUSALS_PER_CHAT + 1
    }
