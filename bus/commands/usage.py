"""/usage: what the person and the chat used today and this month."""

import time
from collections.abc import Sequence
from typing import Any

from bus.commands.context import CommandContext
from bus.commands.gateway import GatewayCommands
from bus.locales import Messages
from bus.settings.memory_scope import global_room_id, global_user_id

ORIGINS = ("schedule", "hook")
"""The kinds of calls of runs that no person started (`InboundMessage.origin_kind`)."""


class UsageCommand:
    """The command."""

    def __init__(self, gateway: GatewayCommands) -> None:
        self._gateway = gateway

    async def usage(self, context: CommandContext) -> str:
        """Show the usage of the person, and, in a group, of the group."""
        texts, inbound = context.texts, context.inbound
        today = time.strftime("%Y-%m-%d", time.gmtime())
        since = f"{today[:7]}-01"
        shown = {
            texts.usage_you: await self._gateway.usage(since=since, person=global_user_id(inbound))
        }
        if not inbound.is_private:
            shown[texts.usage_this_chat] = await self._gateway.usage(
                since=since, room=global_room_id(inbound)
            )
        lines = [texts.usage_head]
        for whose, days in shown.items():
            if days is None:
                return texts.usage_failed
            of_today = [day for day in days if day.get("day") == today]
            lines.append(
                texts.usage_line.format(
                    whose=whose, today=_amount(of_today, texts), month=_amount(days, texts)
                )
            )
            by_origin = [day for day in days if day.get("kind") in ORIGINS]
            if by_origin:
                lines.append(texts.usage_origins.format(month=_amount(by_origin, texts)))
        return "\n".join(lines)


def _amount(days: Sequence[dict[str, Any]], texts: Messages) -> str:
    """Return the tokens, and the cost if the models have prices."""
    tokens = sum(int(day["input_tokens"]) + int(day["output_tokens"]) for day in days)
    cost = sum(float(day["cost_usd"]) for day in days)
    text = texts.usage_amount_cost if cost else texts.usage_amount
    return text.format(tokens=f"{tokens:,}", cost=f"{cost:,.2f}")
