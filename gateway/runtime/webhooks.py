"""RunWebhooks: posts a run's result to the caller's URL, signed, with limits, and only to public addresses."""

import errno
import logging
import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from hmac import new as hmac
from pathlib import Path

import anyio
import anyio.to_thread
import httpx

from agent.errors import UnknownHost, UrlNotAllowed
from agent.network.url_guard import UrlGuard, guarded_client
from gateway.runtime.errors import InvalidRequest
from gateway.runtime.run_view import format_timestamp, run_view
from gateway.runtime.serialization import dumps
from store.data_folder import read_or_create_key
from store.runs import Run

SIGNATURE = "X-Parley-Signature"
"""`t=<Unix seconds>,v1=<hex>`: HMAC-SHA256 of `<t>.<body>`."""

MIN_KEY_BYTES = 16
"""Minimum length of the signing key, bytes. Anyone could sign with the key of an empty file."""

MAX_ATTEMPTS = 3
RETRY_DELAY_S = 2.0
"""Delay before the second attempt, seconds. It doubles with each further attempt."""

TIMEOUT_S = 10.0
"""How long a receiver may send nothing, seconds."""

ATTEMPT_S = 60.0
"""How long one attempt may take, seconds, because a receiver could send a byte now and then."""

_SUCCESS_STATUSES = range(200, 300)
_PERMANENT_STATUSES = frozenset({400, 401, 403, 404, 405, 410, 413, 422})
"""Statuses that a retry does not change."""

log = logging.getLogger(__name__)


def sign_webhook(key: bytes, body: bytes, *, seconds: int) -> str:
    """Return the value of the signature header.

    >>> sign_webhook(b"k", b"{}", seconds=1)[:14]
    't=1,v1=3dd49b2'
    """
    digest = hmac(key, b"%d.%b" % (seconds, body), sha256).hexdigest()
    return f"t={seconds},v1={digest}"


def webhook_body(run: Run, values: bytes, *, started_at: float) -> str:
    """Return the body for a run that has ended: its fields, its times, and the thread's values or the error.

    Args:
        run: The stored run.
        values: JSON.
        started_at: Unix seconds.
    """
    fields = run_view(run) | {
        "run_started_at": format_timestamp(started_at),
        "run_ended_at": format_timestamp(run.updated_at),
        "error": run.error,
    }
    body = b'%b,"values":%b}' % (dumps(fields)[:-1], b"null" if run.error else values)
    return body.decode()


def _add_time(body: str, now: float) -> bytes:
    """Return a body with the time at which it is sent.

    >>> _add_time('{"run_id":"r"}', 0.0)
    b'{"run_id":"r","webhook_sent_at":"1970-01-01T00:00:00.000000+00:00"}'
    """
    return f'{body[:-1]},"webhook_sent_at":"{format_timestamp(now)}"}}'.encode()


class RunWebhooks:
    """Posts the results of runs.

    Args:
        guard: Decides which URLs are allowed.
        key: Returns the signing key. It may block, and is called once.
        pause_s: Delay before the second attempt, seconds.
        attempt_s: How long one attempt may take, seconds.
    """

    def __init__(
        self,
        guard: UrlGuard,
        key: Callable[[], bytes],
        *,
        pause_s: float = RETRY_DELAY_S,
        attempt_s: float = ATTEMPT_S,
    ) -> None:
        self._guard = guard
        self._key = key
        self._pause_s = pause_s
        self._attempt_s = attempt_s
        self._client: tuple[bytes, httpx.AsyncClient] | None = None

    async def validate_url(self, url: str) -> None:
        """Check a URL before a run is started for it. Raises InvalidRequest."""
        try:
            await self._guard.check(url)
        except UnknownHost:
            return  # The name may resolve when the run has ended.
        except UrlNotAllowed as error:
            raise InvalidRequest(f"webhook: {error.user_message}", malformed=True) from error

    async def send(self, url: str, body: str) -> bool:
        """Post a body, a JSON object, and return whether it was accepted. Follows no redirects.

        Raises:
            OSError: The signing key or the certificates cannot be read.
        """
        key, client = await self._open_client()
        for number in range(MAX_ATTEMPTS):
            if number:
                await anyio.sleep(self._pause_s * 2 ** (number - 1))
            content = _add_time(body, time.time())
            with anyio.move_on_after(self._attempt_s) as attempt:
                if (verdict := await _post(client, url, content, key)) is not None:
                    return verdict
            if attempt.cancelled_caught:
                log.warning("Webhook not accepted: no response within %g s.", self._attempt_s)
        return False

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client[1].aclose()

    async def _open_client(self) -> tuple[bytes, httpx.AsyncClient]:
        if self._client is None:
            key = await anyio.to_thread.run_sync(self._key)
            tls = await anyio.to_thread.run_sync(httpx.create_ssl_context)
            self._client = key, guarded_client(self._guard, tls, timeout_s=TIMEOUT_S)
        return self._client


async def _post(client: httpx.AsyncClient, url: str, body: bytes, key: bytes) -> bool | None:
    """Make one attempt; None = retry."""
    headers = {
        "Content-Type": "application/json",
        SIGNATURE: sign_webhook(key, body, seconds=int(time.time())),
    }
    try:
        # Only the status matters, so the response body is not read.
        async with client.stream("POST", url, content=body, headers=headers) as response:
            status = response.status_code
    except (UnknownHost, httpx.HTTPError) as error:
        log.warning("Webhook not accepted: %s.", type(error).__name__)
        return None
    except UrlNotAllowed as error:
        log.warning("Webhook not sent: %s", error.user_message)
        return False
    if status in _SUCCESS_STATUSES:
        return True
    log.warning("Webhook not accepted: HTTP %d.", status)
    return False if status in _PERMANENT_STATUSES or status in range(300, 400) else None


def webhook_key(file: Path) -> bytes:
    """Return the signing key. Creates the file (mode 0600) if it does not exist.

    Raises:
        OSError: The file cannot be read or written, or its content is too short for a key.
    """
    content, _ = read_or_create_key(file, f"{secrets.token_urlsafe(32)}\n".encode())
    key = content.strip()
    if len(key) < MIN_KEY_BYTES:
        raise OSError(errno.EINVAL, f"it has fewer than {MIN_KEY_BYTES} bytes", str(file))
    return key
