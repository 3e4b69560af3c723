"""Who is answered, case by case."""

from dataclasses import replace

import pytest

from bots.config import FeishuConfig, SlackConfig, TelegramConfig
from bus.access.policy import decide_access
from bus.config import ChannelPolicy
from bus.messages import InboundMessage, Sender
from bus.platform import Disposition
from tests.bus.rig import file, said

NOW = 1_000_000.0


def private(user: str = "7", **changes: object) -> InboundMessage:
    return said("hi", "e1", user=user, **changes)


def group(user: str = "7", **changes: object) -> InboundMessage:
    return said("hi", "e1", user=user, private=False, **changes)


def verdict(
    inbound: InboundMessage, policy: ChannelPolicy, *, paired: bool = False, known: bool = False
) -> Disposition:
    return decide_access(inbound, policy, paired=paired, known=known)


@pytest.mark.parametrize(
    ("policy", "listed", "stranger"),
    [
        (SlackConfig(), Disposition.ACCEPTED, Disposition.ACCEPTED),
        (FeishuConfig(), Disposition.ACCEPTED, Disposition.ACCEPTED),
        (TelegramConfig(), Disposition.PAIRING, Disposition.PAIRING),
        (SlackConfig(allowed_users=["7"]), Disposition.ACCEPTED, Disposition.NOT_ALLOWED),
        (TelegramConfig(allowed_users=["7"]), Disposition.ACCEPTED, Disposition.NOT_ALLOWED),
        (
            TelegramConfig(allowed_users=["7"], dm_policy="pairing"),
            Disposition.ACCEPTED,
            Disposition.PAIRING,
        ),
        (
            SlackConfig(allowed_users=["7"], dm_policy="open"),
            Disposition.ACCEPTED,
            Disposition.ACCEPTED,
        ),
        (SlackConfig(dm_policy="allowlist"), Disposition.NOT_ALLOWED, Disposition.NOT_ALLOWED),
        (
            SlackConfig(allowed_users=["7"], dm_policy="disabled"),
            Disposition.DISABLED,
            Disposition.DISABLED,
        ),
        (ChannelPolicy(), Disposition.PAIRING, Disposition.PAIRING),
        (ChannelPolicy(allowed_users=[" 7 "]), Disposition.ACCEPTED, Disposition.NOT_ALLOWED),
    ],
)
def test_private_chats(policy: ChannelPolicy, listed: Disposition, stranger: Disposition) -> None:
    assert verdict(private("7"), policy) is listed
    assert verdict(private("8"), policy) is stranger


@pytest.mark.parametrize(
    ("policy", "addressed", "overheard", "stranger"),
    [
        (SlackConfig(), Disposition.ACCEPTED, Disposition.NOT_ADDRESSED, Disposition.ACCEPTED),
        (TelegramConfig(), Disposition.ACCEPTED, Disposition.NOT_ADDRESSED, Disposition.ACCEPTED),
        (
            SlackConfig(group_policy="open"),
            Disposition.ACCEPTED,
            Disposition.ACCEPTED,
            Disposition.ACCEPTED,
        ),
        (
            SlackConfig(group_policy="disabled"),
            Disposition.DISABLED,
            Disposition.DISABLED,
            Disposition.DISABLED,
        ),
        (
            SlackConfig(allowed_users=["7"]),
            Disposition.ACCEPTED,
            Disposition.NOT_ADDRESSED,
            Disposition.NOT_ALLOWED,
        ),
        (
            SlackConfig(group_policy="allowlist"),
            Disposition.NOT_ALLOWED,
            Disposition.NOT_ADDRESSED,
            Disposition.NOT_ALLOWED,
        ),
        (
            SlackConfig(allowed_users=["7"], group_policy="allowlist"),
            Disposition.ACCEPTED,
            Disposition.NOT_ADDRESSED,
            Disposition.NOT_ALLOWED,
        ),
        (
            SlackConfig(allowed_users=["7"], group_policy="mention"),
            Disposition.ACCEPTED,
            Disposition.NOT_ADDRESSED,
            Disposition.NOT_ALLOWED,
        ),
    ],
)
def test_groups(
    policy: ChannelPolicy, addressed: Disposition, overheard: Disposition, stranger: Disposition
) -> None:
    assert verdict(group(), policy) is addressed
    assert verdict(group(addressed=False), policy) is overheard
    assert verdict(group("8"), policy) is stranger


def test_who_answers_a_known_message_need_not_mention_the_bot() -> None:
    assert verdict(group(addressed=False), SlackConfig(), known=True) is Disposition.ACCEPTED
    limited = SlackConfig(allowed_users=["7"])
    assert verdict(group("8", addressed=False), limited, known=True) is Disposition.NOT_ALLOWED


def test_a_pairing_counts_in_private_only() -> None:
    policy = TelegramConfig(allowed_users=["7"], dm_policy="pairing")
    assert verdict(private("8"), policy, paired=True) is Disposition.ACCEPTED
    assert verdict(group("8"), policy, paired=True) is Disposition.NOT_ALLOWED


def test_bots_and_empty_messages_are_not_answered() -> None:
    policy = SlackConfig()
    bot = replace(private(), sender=Sender(user_id="B", is_bot=True))
    assert verdict(bot, policy) is Disposition.FROM_BOT
    assert verdict(replace(private(), text=" \n"), policy) is Disposition.EMPTY
    with_file = replace(private(), text="", attachments=(file("a"),))
    assert verdict(with_file, policy) is Disposition.ACCEPTED


def test_age_is_no_reason_to_be_silent() -> None:
    """Redeliveries are known by their ids; a platform's clock may be anything."""
    for sent_at in (0.0, NOW - 1e6, NOW + 1e6):
        assert verdict(private(sent_at=sent_at), SlackConfig()) is Disposition.ACCEPTED
