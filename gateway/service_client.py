"""HTTP client of the running service, for commands."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from gateway.command_errors import CommandFailed
from gateway.config import TOKEN_VARIABLE, Config, read_admin_token
from store.data_folder import running_address

CONNECT_TIMEOUT_S = 2.0
REQUEST_TIMEOUT_S = 30.0


def service_url(config: Config) -> str:
    """Return the address that the running service recorded, or else the configured one."""
    return running_address(config.home) or config.base_url


@asynccontextmanager
async def open_service_client(config: Config) -> AsyncIterator[httpx.AsyncClient | None]:
    """Yield a client of the running service's API, or None if nothing listens at its address.

    Raises:
        CommandFailed: Another program listens there, or the service rejects the admin token.
    """
    url = service_url(config)
    token = read_admin_token(config)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout = httpx.Timeout(REQUEST_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    async with httpx.AsyncClient(
        base_url=f"{url}/api", headers=headers, timeout=timeout, trust_env=False
    ) as client:
        yield client if await _is_running(client, config, url) else None


async def _is_running(client: httpx.AsyncClient, config: Config, url: str) -> bool:
    try:
        answer = await client.get(f"{url}/health")
    except httpx.ConnectError:
        return False
    except httpx.HTTPError as error:
        raise CommandFailed(
            f"{url}: a program listens there but does not respond ({type(error).__name__}):"
            " stop it, or set another gateway.port"
        ) from error
    if not _is_parley(answer):
        raise CommandFailed(
            f"{url}: another program listens there: stop it, or set another gateway.port"
        )
    answer = await client.get("channels")
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        raise CommandFailed(
            f"{url}: the running service rejects the admin token in {config.token_file}:"
            f" set {TOKEN_VARIABLE} or PARLEY_HOME to the values of the service"
        )
    return True


def _is_parley(answer: httpx.Response) -> bool:
    try:
        return bool(answer.json()["service"] == "parley")
    except (ValueError, KeyError, TypeError):
        return False


async def request_json(
    client: httpx.AsyncClient,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    **query: str | int,
) -> dict[str, Any]:
    """Send a request, with a JSON body if there is one, and return its JSON object ({} if there is no body).

    Raises:
        CommandFailed: The service returned an error or did not respond.
    """
    try:
        answer = await client.request(method, path, params=query, json=body)
    except httpx.HTTPError as error:
        raise CommandFailed(f"the service did not respond ({type(error).__name__})") from error
    if answer.is_error:
        raise CommandFailed(error_detail(answer))
    return dict(answer.json()) if answer.content else {}


def error_detail(answer: httpx.Response) -> str:
    """Return the error message of a response."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"the service returned HTTP {answer.status_code}"
