"""/timezone: the time zone of a person, for schedules."""

from anyio import to_thread

from bus.commands.context import CommandContext
from bus.context import BusContext
from bus.recurrence import InvalidTimes, find_zone

MAX_CHARS_QUOTED = 64


class TimezoneCommand:
    """Shows and sets the time zone."""

    def __init__(self, bus: BusContext) -> None:
        self._timezones = bus.schedules.timezones

    async def timezone(self, context: CommandContext) -> str:
        """Show or choose the sender's time zone."""
        texts, wanted = context.texts, context.argument.strip()
        if not wanted:
            name = await to_thread.run_sync(self._timezones.resolve, context.inbound)
            if not self._timezones.known(context.inbound):
                name = texts.timezone_guessed.format(name=name)
            return texts.timezone_now.format(name=name)
        try:
            await to_thread.run_sync(find_zone, wanted)
        except InvalidTimes:
            return texts.timezone_unknown.format(wanted=wanted[:MAX_CHARS_QUOTED])
        await self._timezones.choose(context.inbound, wanted)
        return texts.timezone_done.format(name=wanted)
