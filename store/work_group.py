"""Work group: whom the current task works for, so that the event loop and the database can share their time."""

from contextvars import ContextVar

WORK_GROUP: ContextVar[str | None] = ContextVar("parley_work_group", default=None)
"""A channel's name, or what else has much to do at times; inherited by the tasks that it starts. None = the rest."""
