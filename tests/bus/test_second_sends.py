"""What people may see if a delivery with an unknown outcome is sent again."""

from dataclasses import replace

import pytest

from bots.feishu.capabilities import FEISHU
from bots.slack.capabilities import SLACK
from bus.messages import (
    ConversationKey,
    OutboundEdit,
    OutboundMessage,
    OutboundText,
    ReplyTarget,
    encode_outbound,
)
from bus.outbound.deliveries import SecondSendEffect, second_send_effect
from bus.platform import Capabilities
from store.outbox import OutboxRow

HERE = ReplyTarget(chat="c")
TEXT = OutboundText(channel="fake", reply_target=HERE, markdown="hello")
EDIT = OutboundEdit(channel="fake", reply_target=HERE, target_key="k", markdown="hello")
TWICE, ONCE = SecondSendEffect(effect="may_appear_twice"), SecondSendEffect(effect="appears_once")
SENT_AT = 1000.0
ROW = OutboxRow(
    id=1, key="k", conversation=ConversationKey(channel="fake", workspace="w", chat="c"), body="{",
    state="uncertain", attempts=2, not_before=0.0, platform_id=None, error="lost",
    created_at=SENT_AT, updated_at=SENT_AT, first_sent_at=SENT_AT, uncertain_attempts=2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("capabilities", "body", "age_s", "expected"),
    [
        (SLACK, TEXT, 1.0, TWICE),
        (SLACK, EDIT, 1.0, ONCE),
        (FEISHU, TEXT, 1.0, replace(ONCE, until=SENT_AT + 3300.0)),
        (FEISHU, TEXT, 3300.0, TWICE),
        (FEISHU, replace(TEXT, uncertain=True), 1.0, TWICE),
    ],
)
def test_a_second_send_appears_once_while_the_platform_knows_its_key(
    capabilities: Capabilities, body: OutboundMessage, age_s: float, expected: SecondSendEffect
) -> None:
    row = replace(ROW, body=encode_outbound(body))
    window_s = capabilities.idempotent_send_s
    assert second_send_effect(row, window_s=window_s, now=SENT_AT + age_s) == expected


def test_only_uncertain_rows_have_an_effect_and_damaged_ones_may_appear_twice() -> None:
    assert second_send_effect(ROW, window_s=3300.0, now=SENT_AT) == TWICE
    for state in ("pending", "failed", "delivered"):
        assert second_send_effect(replace(ROW, state=state), window_s=9.0, now=SENT_AT) is None
