"""Signed events, as other systems send them to hooks."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping

SECRET = "0123456789abcdef"


def signed(
    payload: object, delivery: str, *, secret: str = SECRET, at: float | None = None
) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of an event, signed as Standard Webhooks specifies."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    sent_at = str(int(time.time() if at is None else at))
    content = b".".join((delivery.encode(), sent_at.encode(), body))
    signature = base64.b64encode(hmac.new(secret.encode(), content, hashlib.sha256).digest())
    headers = {
        "content-type": "application/json",
        "webhook-id": delivery,
        "webhook-timestamp": sent_at,
        "webhook-signature": f"v1,{signature.decode()}",
    }
    return headers, body


def signed_by_github(
    payload: Mapping[str, object], delivery: str, event: str = "push", *, secret: str = SECRET
) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of a GitHub event."""
    body = json.dumps(payload).encode()
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {
        "content-type": "application/json",
        "x-github-delivery": delivery,
        "x-github-event": event,
        "x-hub-signature-256": f"sha256={digest}",
    }
    return headers, body
