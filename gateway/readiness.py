"""Readiness checks: store, channels and model. Cheap; calls no provider."""

from collections.abc import Mapping
from dataclasses import dataclass

import anyio

from agent.errors import AgentError
from bus.platform import ConnectionState
from gateway.services import Services
from store.errors import StoreError

CHECK_TIMEOUT_S = 2.0
"""Of each look, seconds: who asks waits a few seconds only."""

TIMED_OUT = "No response in time."


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessCheck:
    """The result of one check.

    Attributes:
        ok: Whether people can be answered, as far as this part goes.
        state: One word.
        detail: What is wrong and what to do; "" when all is well.
    """

    ok: bool
    state: str = "ok"
    detail: str = ""


async def check_readiness(services: Services) -> Mapping[str, ReadinessCheck]:
    """Look at all parts."""
    return {
        "store": await _check_store(services),
        "channels": _check_channels(services),
        "model": await _check_model(services),
    }


async def _check_store(services: Services) -> ReadinessCheck:
    """Read and write: a full disk can still be read."""
    try:
        with anyio.fail_after(CHECK_TIMEOUT_S):
            await services.database.read("SELECT 1")
            await services.database.transaction(lambda tx: tx.run("SELECT 1"))
    except TimeoutError:
        return ReadinessCheck(ok=False, state="slow", detail=TIMED_OUT)
    except StoreError as error:
        return ReadinessCheck(ok=False, state="failed", detail=str(error))
    return ReadinessCheck(ok=True)


def _check_channels(services: Services) -> ReadinessCheck:
    """Every channel that is switched on must be connected; one that reconnects has a moment for it.

    One whose platform has yet to call is ready for it: it may call only those that say so.
    """
    if services.bus is None:
        return ReadinessCheck(ok=False, state="stopped", detail="The channels are not running.")
    wrong = dict(services.channel_problems)
    wrong |= {
        name: health.detail or f"The channel is {health.state.value}."
        for name, health in services.bus.health().items()
        if health.state not in (ConnectionState.CONNECTED, ConnectionState.RECONNECTING)
        and not health.awaiting_first_event
    }
    if not wrong:
        return ReadinessCheck(ok=True)
    told = "; ".join(f"{name}: {detail}" for name, detail in sorted(wrong.items()))
    return ReadinessCheck(ok=False, state="failed", detail=told)


async def _check_model(services: Services) -> ReadinessCheck:
    if services.config.bus.langgraph_url:
        return ReadinessCheck(ok=True, state="elsewhere")
    default = services.agent.config.get().chat_models[0].name
    if services.agent.circuit_breakers.is_open(default):
        return ReadinessCheck(ok=False, state="unreachable", detail=f"{default} failed repeatedly.")
    try:
        with anyio.fail_after(CHECK_TIMEOUT_S):
            await services.agents.warm_up()
    except TimeoutError:
        return ReadinessCheck(
            ok=False, state="starting", detail="The model package is being imported."
        )
    except AgentError as error:
        return ReadinessCheck(ok=False, state="failed", detail=error.user_message)
    return ReadinessCheck(ok=True)
