"""Indicators as reactions: one while a message is being answered, and another for the outcome."""

from collections.abc import Awaitable, Callable, Sequence

from typing_extensions import override

from bus.bounded import BoundedDict
from bus.messages import ReplyTarget
from bus.platform import SupportsIndicators, SupportsRefusalIndicator, WorkShown

_MAX_SHOWN = 1_000


class ReactionIndicator(SupportsIndicators, SupportsRefusalIndicator):
    """The part of an adapter that adds reactions to a message while it is answered, or if it is refused.

    Args:
        add: Adds a reaction to the message `target.reply_to`. Returns what `remove` needs.
        remove: Removes it.
        working, done, failed: The platform's names of the reactions.
        find: Finds our reactions with a name on `target.reply_to`, for `remove`. None = reactions from an earlier
            process stay.
    """

    def __init__(
        self,
        add: Callable[[ReplyTarget, str], Awaitable[str]],
        remove: Callable[[ReplyTarget, str], Awaitable[None]],
        *,
        working: str,
        done: str,
        failed: str,
        find: Callable[[ReplyTarget, str], Awaitable[Sequence[str]]] | None = None,
    ) -> None:
        self._add = add
        self._remove = remove
        self._find = find
        self._working = working
        self._done = done
        self._failed = failed
        self._shown = BoundedDict[tuple[str, str], str](_MAX_SHOWN)

    @override
    async def show_working(self, target: ReplyTarget) -> None:
        """Show that a message is being answered. Raises DeliveryError."""
        message = (target.chat, target.reply_to)
        if target.reply_to and message not in self._shown:
            self._shown[message] = await self._add(target, self._working)

    @override
    async def show_finished(
        self, target: ReplyTarget, *, ok: bool, was_shown: WorkShown = WorkShown.UNKNOWN
    ) -> None:
        """Show the outcome and remove the working reaction. May be repeated. Raises DeliveryError."""
        if not target.reply_to:
            return
        message = (target.chat, target.reply_to)
        shown: Sequence[str] = [self._shown[message]] if message in self._shown else []
        may_be_shown = was_shown is not WorkShown.NO
        # An earlier process may have shown it.
        if not shown and may_be_shown and self._find is not None:
            shown = await self._find(target, self._working)
        for reaction in shown:
            await self._remove(target, reaction)
        self._shown.pop(message, None)
        await self._add(target, self._done if ok else self._failed)

    @override
    async def show_refused(self, target: ReplyTarget) -> None:
        """Show that a message was not accepted. Raises DeliveryError."""
        if target.reply_to:
            await self._add(target, self._failed)
