"""Stage: recognizes commands."""

from bus.commands import recognize_command
from bus.inbound.pipeline import InboundContext


async def note_command(context: InboundContext) -> None:
    """Note which command a message is, if it is one."""
    context.command = recognize_command(context.message.text)
