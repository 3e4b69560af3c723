"""Nodes: the processes that share one database. A SQLite file has one, number 0."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

import anyio
from typing_extensions import override


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A process that shares the database.

    Attributes:
        number: Assigned when it starts and never reused. 0 = the only process of a SQLite file.
        name: `node.name` of its configuration.
        started_at: Unix seconds, by the database's clock.
        takes_work: Whether it accepts work: it receives signals and is not stopping.
    """

    number: int
    name: str
    started_at: float = 0.0
    takes_work: bool = True


class Nodes(Protocol):
    """The nodes of a database, as this process knows them. For the event loop's thread."""

    @property
    def number(self) -> int:
        """The number of this process."""
        ...

    @property
    def living(self) -> Sequence[Node]:
        """The living nodes, including this one, as of the last heartbeat. Cheap."""
        ...

    @property
    def can_hand_over(self) -> bool:
        """Whether a living node can continue this one's work when it stops."""
        return len(self.living) > 1

    def divide_limit(self, limit: int) -> int:
        """Return this node's part of a limit that all nodes share: `limit` for a single node, and at least 1."""
        return max(1, limit // len(self.living))

    def exclusive(
        self, name: str, on_wait: Callable[[], None] | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Run the block once no other node is inside a block with this name, and keep others out meanwhile.

        If the connection that shows the block to other nodes breaks, the block is canceled and ends without an error;
        enter it again. A process must not be inside it twice. `on_wait` is called once if another node is inside.
        """
        ...

    async def mark_ready(self) -> None:
        """Tell the other nodes that this one accepts work. Raises StoreUnavailable."""
        ...

    async def leave(self) -> None:
        """Tell the other nodes that this one is stopping, so that they take its work. Raises StoreUnavailable.

        Its `exclusive` blocks end, and it can enter no more of them.
        """
        ...

    async def wait_change(self) -> None:
        """Wait until the list of living nodes changes. A node that is no longer listed cannot write."""
        ...


class SingleNode(Nodes):
    """The only process of a SQLite file."""

    def __init__(self, name: str = "") -> None:
        self._living = (Node(number=0, name=name),)

    @property
    @override
    def number(self) -> int:
        return 0

    @property
    @override
    def living(self) -> Sequence[Node]:
        return self._living

    @override
    @asynccontextmanager
    async def exclusive(
        self, name: str, on_wait: Callable[[], None] | None = None
    ) -> AsyncIterator[None]:
        yield

    @override
    async def mark_ready(self) -> None:
        return

    @override
    async def leave(self) -> None:
        return

    @override
    async def wait_change(self) -> None:
        await anyio.sleep_forever()


def preferred_node(living: Sequence[Node], key: str, *, otherwise: int) -> int:
    """Return the node that should do the work with this name. All nodes agree, and a change of nodes moves few names.

    Rendezvous hashing over the nodes that take work; `otherwise` if none does.

    >>> both = [Node(number=1, name="a"), Node(number=2, name="b")]
    >>> {preferred_node(both, f"chat {n}", otherwise=1) for n in range(20)} == {1, 2}
    True
    >>> preferred_node([Node(number=1, name="a", takes_work=False)], "chat 1", otherwise=3)
    3
    """
    ready = [node.number for node in living if node.takes_work]
    if not ready:
        return otherwise
    return max(ready, key=lambda number: _weight(number, key))


def _weight(number: int, key: str) -> bytes:
    return blake2b(f"{number} {key}".encode(), digest_size=8).digest()
