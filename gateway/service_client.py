"""The running service, as the command line reaches it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from gateway.command_errors import CommandFailed
from gateway.config import TOKEN_VARIABLE, Config, read_admin_token

CONNECT_TIMEOUT_S = 2.0
REQUEST_TIMEOUT_S = 30.0


@asynccontextmanager
async def open_service_client(config: Config) -> AsyncIterator[httpx.AsyncClient | None]:
    """Yield a client of the running service's API, or None when nothing listens at its address.

    Raises:
        CommandFailed: something answers there that is not this service, or it does not know our token.
    """
    token = read_admin_token(config)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout = httpx.Timeout(REQUEST_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    async with httpx.AsyncClient(
        base_url=f"{config.base_url}/api", headers=headers, timeout=timeout, trust_env=False
    ) as client:
        yield client if await _is_running(client, config) else None


async def _is_running(client: httpx.AsyncClient, config: Config) -> bool:
    try:
        answer = await client.get(f"{config.base_url}/health")
    except httpx.ConnectError:
        return False
    except httpx.HTTPError as error:
        raise CommandFailed(
            f"{config.base_url}: something listens there but does not answer ({type(error).__name__}):"
            " end it, or set another gateway.port"
        ) from error
    if not _is_parley(answer):
        raise CommandFailed(
            f"{config.base_url}: another program listens there: end it, or set another gateway.port"
        )
    answer = await client.get("channels")
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        raise CommandFailed(
            f"{config.base_url}: the running service does not take the admin token of {config.token_file}:"
            f" set {TOKEN_VARIABLE} or PARLEY_HOME to the service's own"
        )
    return True


def _is_parley(answer: httpx.Response) -> bool:
    try:
        return bool(answer.json()["service"] == "parley")
    except (ValueError, KeyError, TypeError):
        return False


async def request_json(
    client: httpx.AsyncClient, method: str, path: str, **query: int
) -> dict[str, Any]:
    """Send a request and return its JSON object ({} where there is none).

    Raises:
        CommandFailed: with what the service said.
    """
    try:
        answer = await client.request(method, path, params=query)
    except httpx.HTTPError as error:
        raise CommandFailed(f"the service did not answer ({type(error).__name__})") from error
    if answer.is_error:
        raise CommandFailed(error_detail(answer))
    return dict(answer.json()) if answer.content else {}


def error_detail(answer: httpx.Response) -> str:
    """Return what the service said about a failure."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"the service answered HTTP {answer.status_code}"
