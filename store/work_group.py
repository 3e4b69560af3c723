"""Work group: whom the current task works for, so that the event loop and the database can share their time."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

WORK_GROUP: ContextVar[str | None] = ContextVar("parley_work_group", default=None)
"""A channel's name, or what else has much to do at times; inherited by the tasks that it starts. None = the rest."""

_RUNS = "/runs"
_COMMANDS = "/commands"


def group_of_runs(group: str | None) -> str:
    """Return the group of the runs that a group starts; what they start belongs to it as well.

    >>> group_of_runs("telegram"), group_of_runs("telegram/runs"), group_of_runs(None)
    ('telegram/runs', 'telegram/runs', '/runs')
    """
    return group if group and group.endswith(_RUNS) else f"{group or ''}{_RUNS}"


@contextmanager
def working_for_command() -> Iterator[None]:
    """Work in the group of the channel's commands inside the block, with the tasks that are started there."""
    group = WORK_GROUP.get() or ""
    token = WORK_GROUP.set(f"{group.removesuffix(_COMMANDS)}{_COMMANDS}")
    try:
        yield
    finally:
        WORK_GROUP.reset(token)


def leave_commands() -> None:
    """Work in the channel's own group from now on: for tasks that a command starts and does not wait for."""
    group = WORK_GROUP.get()
    if is_command_work(group):
        WORK_GROUP.set((group or "").removesuffix(_COMMANDS) or None)


def is_command_work(group: str | None) -> bool:
    """Return whether somebody waits for a command there, which takes little.

    >>> is_command_work("telegram/commands"), is_command_work("telegram"), is_command_work(None)
    (True, False, False)
    """
    return group is not None and group.endswith(_COMMANDS)
