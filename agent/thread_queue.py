"""ThreadQueue: runs on one thread take turns, in order of arrival. Nothing polls."""

from collections import deque
from dataclasses import dataclass, field

import anyio


@dataclass(slots=True, eq=False)
class QueueTicket:
    """A place in a thread's line. `ready` is set when it is the first."""

    thread_id: str
    ready: anyio.Event = field(default_factory=anyio.Event)


class ThreadQueue:
    """The lines of all threads. A line without anybody in it takes no memory."""

    def __init__(self) -> None:
        self._lanes: dict[str, deque[QueueTicket]] = {}

    def join(self, thread_id: str) -> QueueTicket:
        """Take a place at the end of a thread's line."""
        ticket = QueueTicket(thread_id)
        self.enter(ticket)
        return ticket

    def enter(self, ticket: QueueTicket) -> None:
        """Take a place at the end of a thread's line with a ticket that was made before."""
        lane = self._lanes.setdefault(ticket.thread_id, deque())
        lane.append(ticket)
        if len(lane) == 1:
            ticket.ready.set()

    def leave(self, ticket: QueueTicket) -> None:
        """Give a place up, from wherever in the line; nothing happens to a ticket that never entered."""
        lane = self._lanes.get(ticket.thread_id)
        if lane is None or ticket not in lane:
            return
        lane.remove(ticket)
        if lane:
            lane[0].ready.set()
        else:
            del self._lanes[ticket.thread_id]

    def length(self, thread_id: str) -> int:
        """Return how many stand in a thread's line."""
        return len(self._lanes.get(thread_id, ()))

    def has_others(self, ticket: QueueTicket) -> bool:
        """Return whether anybody else stands in a ticket's line."""
        lane = self._lanes.get(ticket.thread_id, ())
        return any(one is not ticket for one in lane)
