"""Readiness checks: database, channels and models. They do not change anything or call providers."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import anyio

from agent.errors import AgentError
from bus.platform import ChannelHealth, ConnectionState
from gateway.services import Services
from store.errors import StoreError, StoreUnavailable

CHECK_TIMEOUT_S = 2.0
"""Time limit of each check, seconds."""

MIN_FREE_BYTES = 20_000_000
"""With less free disk space, the check fails, because the next messages might not be stored."""

LOW_FREE_BYTES = 500_000_000
"""With less free disk space, the check warns."""

CONNECT_TIMEOUT_S = 60.0
"""A channel that has been connecting for longer counts as broken, seconds."""

FAILING_CALLS = 3
"""Consecutive failed calls after which a model counts as unreachable."""

TIMED_OUT = "No response in time."


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessCheck:
    """The result of one check.

    Attributes:
        ok: Whether this part allows messages to be answered.
        state: One word.
        detail: The problem and how to fix it; "" if nothing is wrong.
    """

    ok: bool
    state: str = "ok"
    detail: str = ""


async def check_readiness(services: Services) -> Mapping[str, ReadinessCheck]:
    """Run all checks."""
    return {
        "store": await _check_store(services),
        "channels": _check_channels(services, now=time.time()),
        "model": await _check_models(services),
        **await _check_files(services),
    }


async def _check_store(services: Services) -> ReadinessCheck:
    try:
        with anyio.fail_after(CHECK_TIMEOUT_S):
            await services.database.read("SELECT 1")
            await services.database.check_writable()
            free = await anyio.to_thread.run_sync(services.database.free_bytes)
        if services.runs.outage:
            raise StoreUnavailable(services.runs.outage)
    except TimeoutError:
        return ReadinessCheck(ok=False, state="slow", detail=TIMED_OUT)
    except StoreError as error:
        return ReadinessCheck(ok=False, state="failed", detail=str(error))
    left = f"{free / 1e6:.0f} MB of disk space are free: free up space."
    if free < MIN_FREE_BYTES:
        return ReadinessCheck(ok=False, state="full", detail=left)
    if free < LOW_FREE_BYTES:
        return ReadinessCheck(ok=True, state="low", detail=left)
    return ReadinessCheck(ok=True)


async def _check_files(services: Services) -> Mapping[str, ReadinessCheck]:
    """Check the bucket, if files are in one. Without it, messages without files are still answered."""
    mirror = services.agent_services.mirror
    if not mirror.is_remote:
        return {}
    try:
        with anyio.fail_after(CHECK_TIMEOUT_S):
            await mirror.check()
    except TimeoutError:
        return {"files": ReadinessCheck(ok=True, state="degraded", detail=TIMED_OUT)}
    except StoreError as error:
        return {"files": ReadinessCheck(ok=True, state="degraded", detail=str(error))}
    return {"files": ReadinessCheck(ok=True)}


def _check_channels(services: Services, *, now: float) -> ReadinessCheck:
    """List broken channels. The service is ready if at least one enabled platform and all required channels work."""
    if services.bus is None:
        return ReadinessCheck(ok=False, state="stopped", detail="The channels are not running.")
    broken = find_broken_channels(services, now=now)
    required = set(services.config.gateway.required_channels)
    if not broken:
        return ReadinessCheck(ok=True)
    platforms = services.config.bots.platforms.items()
    needed = {name for name, section in platforms if section.enabled} or set(services.bus.health())
    is_ready = not needed <= broken.keys() and not required & broken.keys()
    return ReadinessCheck(
        ok=is_ready,
        state="degraded" if is_ready else "failed",
        detail="; ".join(f"{name}: {detail}" for name, detail in sorted(broken.items())),
    )


def find_broken_channels(services: Services, *, now: float) -> dict[str, str]:
    """Return why channels do not work, by name. `now`: Unix seconds."""
    health = services.bus.health() if services.bus else {}
    broken = dict(services.channel_problems)
    for name, found in health.items():
        if _is_broken(found, now):
            broken[name] = found.detail or f"The channel is {found.state.value}."
    for name in set(services.config.gateway.required_channels) - health.keys() - broken.keys():
        broken[name] = "The channel is required but not enabled."
    return broken


def find_failing_models(services: Services) -> list[str]:
    """Return the models that answered none of their latest calls."""
    breakers = services.agent_services.circuit_breakers
    return [
        name
        for name in (entry.name for entry in services.agent_services.config.get().chat_models)
        if breakers.is_open(name) or breakers.consecutive_failures(name) >= FAILING_CALLS
    ]


def _is_broken(health: ChannelHealth, now: float) -> bool:
    if health.state is ConnectionState.CONNECTED or health.awaiting_first_event:
        return False
    if health.state in (ConnectionState.CONNECTING, ConnectionState.RECONNECTING):
        return bool(health.since) and now - health.since > CONNECT_TIMEOUT_S
    return True


async def _check_models(services: Services) -> ReadinessCheck:
    """Judge the models by their latest calls. The service is ready if at least one of them works."""
    if services.config.bus.langgraph_url:
        return ReadinessCheck(ok=True, state="remote")
    failing = find_failing_models(services)
    detail = f"The latest calls failed: {', '.join(failing)}." if failing else ""
    if len(failing) == len(services.agent_services.config.get().chat_models):
        return ReadinessCheck(ok=False, state="unreachable", detail=detail)
    try:
        with anyio.fail_after(CHECK_TIMEOUT_S):
            await services.agents.warm_up()
    except TimeoutError:
        text = "The model package is being imported."
        return ReadinessCheck(ok=False, state="starting", detail=text)
    except AgentError as error:
        return ReadinessCheck(ok=False, state="failed", detail=error.user_message)
    return ReadinessCheck(ok=True, state="degraded" if failing else "ok", detail=detail)
