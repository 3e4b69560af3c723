"""Typed accessors for routes."""

from typing import Annotated

from fastapi import Depends, Request

from bots.terminal.adapter import TerminalAdapter
from bus.service import Bus
from gateway.errors import ServiceNotRunning
from gateway.services import Services


def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


def _bus(services: "Annotated[Services, Depends(_services)]") -> Bus:
    if services.bus is None:
        raise ServiceNotRunning
    return services.bus


def _terminal(services: "Annotated[Services, Depends(_services)]") -> TerminalAdapter:
    if services.terminal is None or services.bus is None:
        raise ServiceNotRunning
    return services.terminal


Parts = Annotated[Services, Depends(_services)]
"""The running parts."""

RunningBus = Annotated[Bus, Depends(_bus)]
"""The bus; 503 while it does not run."""

Terminal = Annotated[TerminalAdapter, Depends(_terminal)]
"""The terminal adapter; 503 while it does not run."""
