"""Work group: whom the current task works for, so that the event loop and the database can share their time."""

from contextvars import ContextVar

WORK_GROUP: ContextVar[str | None] = ContextVar("parley_work_group", default=None)
"""A channel's name, or what else has much to do at times; inherited by the tasks that it starts. None = the rest."""

_RUNS = "/runs"


def group_of_runs(group: str | None) -> str:
    """Return the group of the runs that a group starts; what they start belongs to it as well.

    >>> group_of_runs("telegram"), group_of_runs("telegram/runs"), group_of_runs(None)
    ('telegram/runs', 'telegram/runs', '/runs')
    """
    return group if group and group.endswith(_RUNS) else f"{group or ''}{_RUNS}"
