"""Work group: the channel that the current task works for. The event loop and the database let groups take turns."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

WORK_GROUP: ContextVar[str | None] = ContextVar("parley_work_group", default=None)
"""A channel's name, or another source of much work. Tasks inherit it from their parent. None = other work."""

_RUNS = "/runs"
_COMMANDS = "/commands"


def group_of_runs(group: str | None) -> str:
    """Return the group of the runs that a group starts. Tasks that they start belong to it too.

    >>> group_of_runs("telegram"), group_of_runs("telegram/runs"), group_of_runs(None)
    ('telegram/runs', 'telegram/runs', '/runs')
    """
    return group if group and group.endswith(_RUNS) else f"{group or ''}{_RUNS}"


@contextmanager
def working_for_command() -> Iterator[None]:
    """Work in the group of the channel's commands inside the block, including tasks started there."""
    group = WORK_GROUP.get() or ""
    token = WORK_GROUP.set(f"{group.removesuffix(_COMMANDS)}{_COMMANDS}")
    try:
        yield
    finally:
        WORK_GROUP.reset(token)


def leave_commands() -> None:
    """Work in the channel's own group from now on. For tasks that a command starts without waiting for them."""
    group = WORK_GROUP.get()
    if is_command_work(group):
        WORK_GROUP.set((group or "").removesuffix(_COMMANDS) or None)


def is_command_work(group: str | None) -> bool:
    """Return whether a group is that of commands, which are short and have a person waiting.

    >>> is_command_work("telegram/commands"), is_command_work("telegram"), is_command_work(None)
    (True, False, False)
    """
    return group is not None and group.endswith(_COMMANDS)
