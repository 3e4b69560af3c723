"""Stage: recognizes commands."""

from bus.commands import parse_command
from bus.inbound.pipeline import InboundContext


async def recognize_command(context: InboundContext) -> None:
    """Note which command a message is, if it is one."""
    context.command = parse_command(context.message.text)
