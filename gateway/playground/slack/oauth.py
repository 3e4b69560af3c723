"""The fake's OAuth: a person installs the app in a workspace, and the app exchanges the code."""

import secrets
from base64 import b64decode
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from aiohttp import web


class SlackOAuth:
    """Issues codes and tokens.

    Attributes:
        client_id, client_secret: The app's credentials.
        redirect_url: The redirect URL in the app's settings.
        team: The workspace of the person who opens the page, or the organization (E...) that installs the app
            everywhere; "" = they press Cancel.
        tokens: The workspace of each bot token.
    """

    def __init__(self) -> None:
        self.client_id = "1234.5678"
        self.client_secret = secrets.token_hex(16)
        self.redirect_url = ""
        self.team = "T2TEAM"
        self.tokens: dict[str, str] = {}
        self._codes: dict[str, str] = {}

    async def authorize(self, request: web.Request) -> web.Response:
        """Show the page. The person decides at once, and the browser is redirected to the app."""
        given = request.query
        if given.get("client_id") != self.client_id or not given.get("scope"):
            return web.Response(status=400, text="invalid_client_id")
        answer = {"state": given.get("state", "")}
        if self.team:
            code = secrets.token_hex(8)
            self._codes[code] = self.team
            answer["code"] = code
        else:
            answer["error"] = "access_denied"
        raise web.HTTPFound(f"{self.redirect_url}?{urlencode(answer)}")

    def exchange(self, request: web.Request, given: Mapping[str, Any]) -> dict[str, Any]:
        """Respond to oauth.v2.access. The app uses HTTP Basic authentication, and a code works once."""
        basic = request.headers.get("Authorization", "").removeprefix("Basic ")
        try:
            proof = b64decode(basic).decode()
        except ValueError:
            proof = ""
        if proof != f"{self.client_id}:{self.client_secret}":
            return {"ok": False, "error": "bad_client_secret"}
        team = self._codes.pop(str(given.get("code")), "")
        if not team:
            return {"ok": False, "error": "invalid_code"}
        token = f"xoxb-{secrets.token_hex(8)}"
        self.tokens[token] = team
        return {
            "ok": True,
            "access_token": token,
            "token_type": "bot",
            "scope": "chat:write,commands",
            "bot_user_id": "U0PARLEY",
            "app_id": "A1APP",
            **_installed_in(team),
        }


def _installed_in(holder: str) -> dict[str, Any]:
    named = {"id": holder, "name": f"Team {holder}"}
    if holder.startswith("E"):
        return {"team": None, "enterprise": named, "is_enterprise_install": True}
    return {"team": named, "enterprise": None, "is_enterprise_install": False}
