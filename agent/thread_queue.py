"""ThreadQueue: lets the runs on a thread take turns in order of arrival, without polling."""

from collections import deque
from dataclasses import dataclass, field

from agent.lazy_event import LazyEvent


@dataclass(slots=True, eq=False)
class QueueTicket:
    """A place in a thread's queue. `ready` is set when it is at the front."""

    thread_id: str
    ready: LazyEvent = field(default_factory=LazyEvent)


class ThreadQueue:
    """The queues of all threads. Empty queues take no memory."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[QueueTicket]] = {}

    def join(self, thread_id: str) -> QueueTicket:
        """Create a ticket and put it at the end of a thread's queue."""
        ticket = QueueTicket(thread_id)
        self.enter(ticket)
        return ticket

    def enter(self, ticket: QueueTicket) -> None:
        """Put an existing ticket at the end of its thread's queue."""
        queue = self._queues.setdefault(ticket.thread_id, deque())
        queue.append(ticket)
        if len(queue) == 1:
            ticket.ready.set()

    def leave(self, ticket: QueueTicket) -> None:
        """Remove a ticket from any position of its queue. Does nothing for a ticket that never entered."""
        queue = self._queues.get(ticket.thread_id)
        if queue is None or ticket not in queue:
            return
        queue.remove(ticket)
        if queue:
            queue[0].ready.set()
        else:
            del self._queues[ticket.thread_id]

    def length(self, thread_id: str) -> int:
        """Return the length of a thread's queue."""
        return len(self._queues.get(thread_id, ()))
