"""Stage: recognizes commands."""

from bus.commands import ParsedCommand, misspelled_command, parse_command
from bus.inbound.pipeline import InboundContext


async def recognize_command(context: InboundContext) -> None:
    """Note which command a message is, if it is one; a misspelled one is answered like one."""
    text = context.message.text
    context.command = parse_command(text)
    if context.command is None and (name := misspelled_command(text)):
        context.command = ParsedCommand(name, "")
