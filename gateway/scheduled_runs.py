"""Starts the runs of crons, each once, and runs the checks of schedules."""

import logging
import uuid
from collections.abc import Callable
from dataclasses import replace

import orjson
from fastapi import HTTPException
from typing_extensions import override

from agent.errors import AgentError
from agent.sandbox.protocol import SandboxProvider
from bus.schedules.run_starter import CheckFailed, CheckRunner, RunNotStarted, RunStarter
from gateway.errors import STATUS_BY_ERROR
from gateway.langgraph.request_models import RunCreate
from gateway.langgraph.route import validate_body
from gateway.langgraph.runs import resolve_run
from gateway.services import Services
from store.errors import RowConflict, RowNotFound, StoreError, ValueRefused
from store.runs import RunExists
from store.schedules import Schedule, ScheduleStore

log = logging.getLogger(__name__)

_REFUSALS: tuple[type[Exception], ...] = (HTTPException, *STATUS_BY_ERROR)


class ScheduledRuns(RunStarter):
    """Starts runs on the cron's thread, or each on a thread whose ID is made from the cron's and the time.

    Args:
        services: Returns the services of the gateway.
    """

    def __init__(self, services: Callable[[], Services]) -> None:
        self._services = services

    @override
    async def start(self, schedule: Schedule, due_at: float) -> tuple[str, str]:
        services = self._services()
        key = f"cron:{schedule.id}:{due_at:.3f}"
        thread_id = schedule.thread_id or str(uuid.uuid5(uuid.UUID(schedule.id), key))
        try:
            if schedule.thread_id is None:
                await _create_thread(services, thread_id, schedule)
            body = validate_body(RunCreate, orjson.loads(schedule.body))
            run = await resolve_run(services, thread_id, body, restartable=True)
            metadata = {**run.metadata, **schedule.metadata, "cron_id": schedule.id}
            started = await services.cluster_runs.start(
                replace(run, metadata=metadata, start_key=key)
            )
        except RunExists as error:
            return thread_id, error.run_id
        except (RowNotFound, RowConflict, ValueRefused) as error:
            raise RunNotStarted(str(error)) from error
        except StoreError:
            raise
        except _REFUSALS as error:
            text = error.detail if isinstance(error, HTTPException) else str(error)
            raise RunNotStarted(str(text)) from error
        return thread_id, started.run_id

    @override
    async def finish(self, schedule_id: str, thread_id: str) -> None:
        services = self._services()
        schedule = await ScheduleStore(services.database).find(schedule_id)
        if schedule is None or schedule.on_run_completed != "delete":
            return
        try:
            await services.delete_thread(thread_id)
        except (OSError, StoreError) as error:
            log.warning("the thread %s of a cron could not be deleted: %s", thread_id, error)


async def _create_thread(services: Services, thread_id: str, schedule: Schedule) -> None:
    try:
        await services.runs.threads.create(
            thread_id, {"cron_id": schedule.id}, now=services.runs.now()
        )
    except RowConflict:
        return


CHECK_S = 60.0
"""Time limit of a check, seconds."""


class SandboxChecks(CheckRunner):
    """Runs checks in the sandboxes of threads."""

    def __init__(self, sandboxes: SandboxProvider) -> None:
        self._sandboxes = sandboxes

    @override
    async def run(self, thread_id: str, command: str) -> str:
        try:
            sandbox = await self._sandboxes.acquire(thread_id)
            try:
                return await sandbox.execute(command, timeout_s=CHECK_S)
            finally:
                await self._sandboxes.release(self._sandboxes.sandbox_id(thread_id))
        except AgentError as error:
            raise CheckFailed(error.user_message) from error
