"""Verifies the signatures of hook requests on their raw bytes. Pure.

`hmac` is Standard Webhooks (https://www.standardwebhooks.com): the headers are `webhook-id`, `webhook-timestamp` (Unix
seconds) and `webhook-signature`. The signature is `v1,` and the base64 HMAC-SHA256 of `{id}.{timestamp}.{body}`, or
several of these separated by spaces. A secret that begins with `whsec_` is base64; any other secret is the key itself.

`github` is the form of GitHub's webhooks: `X-Hub-Signature-256: sha256=` and the hexadecimal HMAC-SHA256 of the body.
GitHub does not sign a time. A repeated delivery has the same `X-GitHub-Delivery`.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping

from bus.errors import HookRejected

MAX_AGE_S = 300.0
"""How far the time of a request may be from the clock, seconds (Standard Webhooks: five minutes)."""

_BASE64_SECRET = "whsec_"  # noqa: S105 - a prefix
_DELIVERY_ID = re.compile(r"[!-~]{1,200}")
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


def signing_key(secret: str) -> bytes:
    """Return the key of a secret. Raises ValueError.

    >>> signing_key("whsec_aGVsbG8="), signing_key("hello")
    (b'hello', b'hello')
    """
    if not secret.startswith(_BASE64_SECRET):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_BASE64_SECRET), validate=True)
    except ValueError:
        raise ValueError("what follows whsec_ is not base64") from None


def verify_standard(secret: str, headers: Mapping[str, str], body: bytes, *, now: float) -> str:
    """Return the ID of a signed delivery.

    Args:
        secret: The hook's secret.
        headers: The request's headers by lower-case name.
        body: Its raw body.
        now: Unix seconds.

    Raises:
        HookRejected: The signature is missing, wrong or too old.
    """
    delivery_id, sent_at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    given = headers.get("webhook-signature", "")
    if not (_DELIVERY_ID.fullmatch(delivery_id) and _TIMESTAMP.fullmatch(sent_at) and given):
        raise HookRejected(
            "the headers webhook-id, webhook-timestamp and webhook-signature are missing"
        )
    signed = b".".join((delivery_id.encode(), sent_at.encode(), body))
    expected = base64.b64encode(_digest(secret, signed))
    versions = [one.partition(",") for one in given.split()]
    found = [
        hmac.compare_digest(signature.encode("latin-1", "replace"), expected)
        for version, _, signature in versions
        if version == "v1"
    ]
    if not any(found):
        raise HookRejected("the signature is wrong")
    if abs(now - int(sent_at)) > MAX_AGE_S:
        raise HookRejected("its time is more than five minutes from this clock")
    return delivery_id


def verify_github(secret: str, headers: Mapping[str, str], body: bytes) -> tuple[str, str]:
    """Return the ID and the event of a signed delivery. See `verify_standard` for arguments and errors."""
    given = headers.get("x-hub-signature-256", "")
    expected = f"sha256={_digest(secret, body).hex()}".encode()
    if not hmac.compare_digest(given.encode("latin-1", "replace"), expected):
        raise HookRejected("the signature is missing or wrong")
    delivery_id, event = headers.get("x-github-delivery", ""), headers.get("x-github-event", "")
    if not (_DELIVERY_ID.fullmatch(delivery_id) and _DELIVERY_ID.fullmatch(event)):
        raise HookRejected("the headers X-GitHub-Delivery and X-GitHub-Event are missing")
    return delivery_id, event


def _digest(secret: str, signed: bytes) -> bytes:
    return hmac.new(signing_key(secret), signed, hashlib.sha256).digest()
