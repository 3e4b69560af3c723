"""The Bolt app: a payload is taken over by the bus before Slack is acknowledged."""

import logging
import re
from collections.abc import Callable
from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult

from bots.lanes import Lanes
from bots.slack.api import sdk_logger
from bots.slack.inbound import CHANNEL, Identity, Ignored, command, event
from bus.errors import BusError
from bus.messages import Inbound
from bus.ports import Intake

logger = logging.getLogger(__name__)


def build_app(intake: Intake, *, me: Callable[[], Identity], bot_token: str) -> AsyncApp:
    """Return an app whose answer is 200 only for what the bus took over or ignored.

    Listeners run before the answer (`process_before_response`): one that raises makes it a 500, which is
    not acknowledged, so that Slack sends the event again. The pattern `.*` takes every event type, because
    one without a listener would be sent again for nothing. Own messages are left to `inbound`, which counts them.
    Signatures of HTTP requests are checked before they come here, because Bolt parses first.

    Args:
        intake: Where messages go.
        me: Tells who the bot is; spares Bolt a call to auth.test, whose failure it would acknowledge.
        bot_token: Put into Bolt's context.
    """

    async def authorize() -> AuthorizeResult:
        bot = me()
        return AuthorizeResult(
            enterprise_id=None,
            team_id=bot.team_id,
            bot_user_id=bot.user_id,
            bot_id=bot.bot_id,
            bot_token=bot_token,
        )

    app = AsyncApp(
        name="parley",
        logger=sdk_logger(),
        authorize=authorize,
        process_before_response=True,
        request_verification_enabled=False,
        ignoring_self_events_enabled=False,
        attaching_conversation_kwargs_enabled=False,
    )

    lanes = Lanes()

    async def on_event(body: dict[str, Any]) -> None:
        await _hand_over(event(body, me()), intake, lanes)

    async def on_command(body: dict[str, Any], ack: AsyncAck) -> None:
        await _hand_over(command(body, me()), intake, lanes)
        await ack()

    app.event(re.compile(".*"))(on_event)
    app.command(re.compile(".*"))(on_command)
    app.error(_not_taken)
    return app


async def _hand_over(found: Inbound | Ignored, intake: Intake, lanes: Lanes) -> None:
    if isinstance(found, Ignored):
        intake.ignored(CHANNEL, found.reason, found.detail)
        return
    async with lanes.lane(found.key.chat):  # Messages of one chat in the order of their arrival.
        await intake.receive(found)


async def _not_taken(error: Exception) -> None:
    expected = isinstance(error, BusError)
    logger.warning(
        "slack: not taken over, Slack will send it again: %s",
        error if expected else type(error).__name__,
        exc_info=None if expected else error,
    )
