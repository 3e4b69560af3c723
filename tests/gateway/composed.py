"""The whole service in this process, without a port."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from fastapi import FastAPI

from gateway.app import network_app
from gateway.compose import open_app
from gateway.config import load_config
from gateway.services import Services
from tests.fakes.migrated import place_database

TOKEN = "test-token-0123"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedService:
    """The running service: its parts, and clients like those of an operator."""

    app: FastAPI
    client: httpx.AsyncClient
    stranger: httpx.AsyncClient

    @property
    def services(self) -> Services:
        services: Services = self.app.state.services
        return services


@asynccontextmanager
async def composed(folder: Path, text: str = "{}") -> AsyncIterator[ComposedService]:
    """Run the service with a configuration. `client` has the token; `stranger` does not."""
    home = place_database(folder / "home")
    file = folder / "config.yaml"
    file.write_text(text)
    config = load_config(str(file), {"PARLEY_HOME": str(home), "PARLEY_ADMIN_TOKEN": TOKEN})
    async with open_app(config) as app:
        transport = httpx.ASGITransport(network_app(app, config.gateway, token=TOKEN))
        base = "http://127.0.0.1:8001"
        async with (
            httpx.AsyncClient(
                transport=transport, base_url=base, headers={"X-Api-Key": TOKEN}
            ) as client,
            httpx.AsyncClient(transport=transport, base_url=base) as stranger,
        ):
            yield ComposedService(app=app, client=client, stranger=stranger)
