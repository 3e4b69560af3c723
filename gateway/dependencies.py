"""FastAPI dependencies: the running services, the agent's services, the bus, the terminal adapter, and the language.

They are coroutine functions, because FastAPI calls other functions in worker threads, which takes 0.1 ms per call.
"""

from typing import Annotated

from fastapi import Depends, Header
from starlette.requests import HTTPConnection

from agent.services import AgentServices
from bots.terminal.adapter import TerminalAdapter
from bus.service import Bus
from gateway.config_messages import preferred_language
from gateway.errors import ServiceNotRunning
from gateway.services import Services


async def get_services(connection: HTTPConnection) -> Services:
    """Return the services of the application that handles a request or WebSocket."""
    services: Services = connection.app.state.services
    return services


async def get_agent_services(connection: HTTPConnection) -> AgentServices:
    """Return the agent's services. On a LangGraph Server, there are no other services."""
    services: AgentServices = connection.app.state.agent_services
    return services


ServicesDep = Annotated[Services, Depends(get_services)]
AgentServicesDep = Annotated[AgentServices, Depends(get_agent_services)]


async def get_bus(services: ServicesDep) -> Bus:
    """Return the bus. Raises ServiceNotRunning (503)."""
    if services.bus is None:
        raise ServiceNotRunning
    return services.bus


async def get_terminal(services: ServicesDep) -> TerminalAdapter:
    """Return the terminal adapter. Raises ServiceNotRunning (503)."""
    if services.terminal is None or services.bus is None:
        raise ServiceNotRunning
    return services.terminal


async def get_language(accept_language: Annotated[str, Header()] = "") -> str:
    """Return the reader's language: `en` or `zh`."""
    return preferred_language(accept_language)


BusDep = Annotated[Bus, Depends(get_bus)]
TerminalDep = Annotated[TerminalAdapter, Depends(get_terminal)]
LanguageDep = Annotated[str, Depends(get_language)]
