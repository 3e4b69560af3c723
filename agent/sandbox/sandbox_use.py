"""SandboxUse: counts the commands that use a thread's sandbox, and records its last use."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio


@dataclass(slots=True, kw_only=True)
class SandboxUse:
    """The use of a thread's sandbox that Parley starts and deletes.

    Attributes:
        lock: Held while the sandbox is started, deleted or otherwise changed. Commands run concurrently.
        commands: Number of commands that use the sandbox or wait for it.
        used_at: Last use, on the event loop's clock.
    """

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    commands: int = 0
    used_at: float = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether no command uses it, and nothing changes it."""
        return not self.commands and not self.lock.locked()

    @contextmanager
    def command(self) -> Iterator[None]:
        """Count a command while the block runs."""
        self.commands += 1
        try:
            yield
        finally:
            self.commands -= 1
            self.used_at = anyio.current_time()
