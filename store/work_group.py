"""Work groups: the channel that the current task works for. Groups take turns in the event loop and the database."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

WORK_GROUP: ContextVar[str | None] = ContextVar("parley_work_group", default=None)
"""The name of a channel or of another source of much work; None = other work. Tasks inherit it from their parent."""

_RUNS = "/runs"
_COMMANDS = "/commands"


def group_of_runs(group: str | None) -> str:
    """Return the group for the runs that a group starts. Tasks that these runs start belong to it too.

    >>> group_of_runs("telegram"), group_of_runs("telegram/runs"), group_of_runs(None)
    ('telegram/runs', 'telegram/runs', '/runs')
    """
    return group if group and group.endswith(_RUNS) else f"{group or ''}{_RUNS}"


@contextmanager
def working_for_command() -> Iterator[None]:
    """Inside the block, work in the group of the channel's commands. This includes tasks started there."""
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
    """Return whether a group is for commands, which are short and keep a person waiting.

    >>> is_command_work("telegram/commands"), is_command_work("telegram"), is_command_work(None)
    (True, False, False)
    """
    return group is not None and group.endswith(_COMMANDS)
