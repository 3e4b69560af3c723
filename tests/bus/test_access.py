"""Who may use the bot: a table of cases."""

from dataclasses import replace

import pytest

from bots.config import FeishuConfig, SlackConfig, TelegramConfig
from bus.access.policy import decide_access
from bus.config import ChannelPolicy
from bus.messages import InboundMessage, Sender, SenderKind
from bus.platform import Disposition
from tests.bus.harness import attachment, inbound_message

NOW = 1_000_000.0


def private(user: str = "7", **changes: object) -> InboundMessage:
    return inbound_message("hi", "e1", user=user, **changes)


def group(user: str = "7", **changes: object) -> InboundMessage:
    return inbound_message("hi", "e1", user=user, is_private=False, **changes)


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
def test_the_policy_decides_who_may_write_in_private(
    policy: ChannelPolicy, listed: Disposition, stranger: Disposition
) -> None:
    assert decide_access(private("7"), policy) is listed
    assert decide_access(private("8"), policy) is stranger


@pytest.mark.parametrize(
    ("policy", "addressed", "overheard", "stranger"),
    [
        (SlackConfig(), Disposition.ACCEPTED, Disposition.NOT_ADDRESSED, Disposition.ACCEPTED),
        (
            TelegramConfig(),
            Disposition.GROUP_PAIRING,
            Disposition.NOT_ADDRESSED,
            Disposition.GROUP_PAIRING,
        ),
        (
            TelegramConfig(allowed_users=["7"]),
            Disposition.ACCEPTED,
            Disposition.NOT_ADDRESSED,
            Disposition.NOT_ALLOWED,
        ),
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
def test_the_policy_decides_which_groups_are_answered(
    policy: ChannelPolicy, addressed: Disposition, overheard: Disposition, stranger: Disposition
) -> None:
    assert decide_access(group(), policy) is addressed
    assert decide_access(group(is_addressed=False), policy) is overheard
    assert decide_access(group("8"), policy) is stranger


def test_a_reply_to_a_known_message_needs_no_mention() -> None:
    assert (
        decide_access(group(is_addressed=False), SlackConfig(), is_known_reply=True)
        is Disposition.ACCEPTED
    )
    limited = SlackConfig(allowed_users=["7"])
    assert (
        decide_access(group("8", is_addressed=False), limited, is_known_reply=True)
        is Disposition.NOT_ALLOWED
    )


def test_a_pairing_applies_only_in_private_chats() -> None:
    policy = TelegramConfig(allowed_users=["7"], dm_policy="pairing")
    assert decide_access(private("8"), policy, is_approved=True) is Disposition.ACCEPTED
    assert decide_access(group("8"), policy, is_approved=True) is Disposition.NOT_ALLOWED


def test_an_approved_group_is_answered() -> None:
    assert decide_access(group(), TelegramConfig(), is_approved=True) is Disposition.ACCEPTED
    overheard = group(is_addressed=False)
    assert decide_access(overheard, TelegramConfig(), is_approved=True) is Disposition.NOT_ADDRESSED


@pytest.mark.parametrize("kind", ["guest", "external"])
@pytest.mark.parametrize("private_chat", [True, False])
@pytest.mark.parametrize(
    ("policy", "listed", "other"),
    [
        (SlackConfig(), Disposition.EXTERNAL, Disposition.EXTERNAL),
        (
            SlackConfig(dm_policy="open", group_policy="open"),
            Disposition.EXTERNAL,
            Disposition.EXTERNAL,
        ),
        (
            SlackConfig(allowed_users=["7"], external_policy="allowlist"),
            Disposition.ACCEPTED,
            Disposition.EXTERNAL,
        ),
        (SlackConfig(external_policy="open"), Disposition.ACCEPTED, Disposition.ACCEPTED),
        (
            SlackConfig(external_policy="open", allowed_users=["7"]),
            Disposition.ACCEPTED,
            Disposition.NOT_ALLOWED,
        ),
    ],
)
def test_the_policy_decides_whether_outsiders_are_answered(
    policy: ChannelPolicy,
    listed: Disposition,
    other: Disposition,
    kind: SenderKind,
    *,
    private_chat: bool,
) -> None:
    for user, expected in (("7", listed), ("8", other)):
        message = inbound_message("hi", "e1", user=user, is_private=private_chat)
        outsider = replace(message, sender=Sender(user_id=user, kind=kind))
        assert decide_access(outsider, policy) is expected


def test_an_unknown_kind_of_sender_is_judged_as_a_member() -> None:
    sender = Sender(user_id="7", kind="unknown")
    assert decide_access(replace(private(), sender=sender), SlackConfig()) is Disposition.ACCEPTED


def test_an_outsider_who_does_not_address_the_bot_is_ignored() -> None:
    message = replace(group(is_addressed=False), sender=Sender(user_id="7", kind="external"))
    assert decide_access(message, SlackConfig()) is Disposition.NOT_ADDRESSED


def test_bots_and_empty_messages_are_not_answered() -> None:
    policy = SlackConfig()
    bot = replace(private(), sender=Sender(user_id="B", is_bot=True))
    assert decide_access(bot, policy) is Disposition.FROM_BOT
    assert decide_access(replace(private(), text=" \n"), policy) is Disposition.EMPTY
    with_file = replace(private(), text="", attachments=(attachment("a"),))
    assert decide_access(with_file, policy) is Disposition.ACCEPTED


def test_age_is_no_reason_to_be_silent() -> None:
    """Redeliveries are recognized by their IDs, not by age, because a platform's clock may be wrong."""
    for sent_at in (0.0, NOW - 1e6, NOW + 1e6):
        assert decide_access(private(sent_at=sent_at), SlackConfig()) is Disposition.ACCEPTED
