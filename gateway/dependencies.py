"""FastAPI dependencies: the running services, the bus and the terminal adapter."""

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from bots.terminal.adapter import TerminalAdapter
from bus.service import Bus
from gateway.errors import ServiceNotRunning
from gateway.services import Services


def get_services(connection: HTTPConnection) -> Services:
    """Return the services of the application that serves a request or WebSocket."""
    services: Services = connection.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(get_services)]


def get_bus(services: ServicesDep) -> Bus:
    """Return the bus. Raises ServiceNotRunning (503)."""
    if services.bus is None:
        raise ServiceNotRunning
    return services.bus


def get_terminal(services: ServicesDep) -> TerminalAdapter:
    """Return the terminal adapter. Raises ServiceNotRunning (503)."""
    if services.terminal is None or services.bus is None:
        raise ServiceNotRunning
    return services.terminal


BusDep = Annotated[Bus, Depends(get_bus)]
TerminalDep = Annotated[TerminalAdapter, Depends(get_terminal)]
