"""Slack's OAuth: one app serves every workspace that installs it. Tokens are stored encrypted.

Flow: docs.slack.dev/authentication/installing-with-oauth. The redirect URL is the one in the app's settings.
"""

import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlencode, urljoin

from bots.common.installation import CredentialVault, InstallationEndpoint
from bots.common.webhooks import WebhookRequest, WebhookResponse, secrets_match
from bots.config import SlackConfig
from bots.slack.api import SlackApi
from bots.slack.capabilities import BOT_SCOPES
from bots.slack.errors import SlackError
from bots.slack.payload import as_mapping, as_str
from bus.characters import clean
from bus.errors import StoreError
from bus.platform import Clock

log = logging.getLogger(__name__)

STATE_S = 600.0
"""How long a browser may take to return from Slack, seconds."""

_COOKIE = "parley_slack_state"


class SlackInstaller:
    """Sends browsers to Slack, and exchanges the code that they bring back for a bot token.

    The `state` is signed with the client secret, expires, and is bound to one browser by a cookie. That way, nobody can
    be tricked into installing the app in another person's workspace. Slack accepts each code once.

    Args:
        api: Receives the tokens.
        config: client_id, client_secret, and the workspaces that may install.
        channel: Instance name.
        vault: Stores the tokens.
        on_installed: Called after an installation.
        now: Wall clock.
    """

    def __init__(
        self,
        api: SlackApi,
        config: SlackConfig,
        *,
        channel: str,
        vault: CredentialVault,
        on_installed: Callable[[], None],
        now: Clock,
    ) -> None:
        self._api = api
        self._config = config
        self._channel = channel
        self._vault = vault
        self._on_installed = on_installed
        self._now = now
        self.endpoint = InstallationEndpoint(start=self._start, finish=self._finish)

    async def load(self) -> None:
        """Pass the stored tokens to the API. Raises StoreError."""
        for workspace, secret in (await self._vault.load(self._channel)).items():
            self._api.add_installation(workspace, as_str(json.loads(secret).get("bot_token")))

    async def remove(self, workspace: str) -> None:
        """Forget a workspace that uninstalled the app. Raises StoreError."""
        self._api.remove_installation(workspace)
        await self._vault.delete(self._channel, workspace)

    async def _start(self, _request: WebhookRequest) -> WebhookResponse:
        nonce = secrets.token_urlsafe(24)
        query = {
            "client_id": self._config.client_id,
            "scope": ",".join(sorted(BOT_SCOPES)),
            "state": self._signed(f"{int(self._now() + STATE_S)}.{nonce}"),
        }
        # Without a path, the cookie applies to the folder of this page, even if a proxy publishes the page under
        # another path.
        cookie = f"{_COOKIE}={nonce}; Max-Age={STATE_S:.0f}; HttpOnly; SameSite=Lax"
        target = f"{urljoin(self._config.base_url, '/oauth/v2/authorize')}?{urlencode(query)}"
        return WebhookResponse(
            status=302, body=b"", headers={"location": target, "set-cookie": cookie}
        )

    async def _finish(self, request: WebhookRequest) -> WebhookResponse:
        if not self._is_ours(request):
            return _page(400, "This link is no longer valid. Start the installation again.")
        code = request.query.get("code", "")
        if not code:
            reason = clean(request.query.get("error", "no code"))[:80]
            return _page(400, f"The app was not installed ({reason}).")
        try:
            name = await self._install(code)
        except SlackError as error:
            log.warning("%s: an installation failed: %s", self._channel, error.user_message)
            return _page(502, f"The app was not installed: {error.user_message}")
        except StoreError:
            log.exception("%s: an installation could not be stored", self._channel)
            return _page(503, "The app could not be installed now. Try again later.")
        return _page(200, f"The app is installed in {name}. You can close this page.")

    async def _install(self, code: str) -> str:
        answer = await self._api.exchange_code(
            code, client_id=self._config.client_id, client_secret=self._config.client_secret
        )
        team, organization = as_mapping(answer.get("team")), as_mapping(answer.get("enterprise"))
        holder: Mapping[str, Any] = organization if answer.get("is_enterprise_install") else team
        workspace, token = as_str(holder.get("id")), as_str(answer.get("access_token"))
        if not (workspace and token):
            raise SlackError("Slack's response does not contain a workspace and a token.")
        allowed = self._config.allowed_workspaces
        if allowed and workspace not in allowed:
            raise SlackError(f"the workspace {workspace} is not allowed to install this app.")
        await self._vault.save(self._channel, workspace, json.dumps({"bot_token": token}))
        self._api.add_installation(workspace, token)
        self._on_installed()
        log.info("%s: installed in the workspace %s", self._channel, workspace)
        return clean(as_str(holder.get("name"))) or workspace

    def _is_ours(self, request: WebhookRequest) -> bool:
        state = request.query.get("state", "")
        text, _, _ = state.rpartition(".")
        expires, _, nonce = text.partition(".")
        try:
            cookies = SimpleCookie(request.headers.get("cookie", ""))
        except CookieError:
            return False
        given = cookies[_COOKIE].value if _COOKIE in cookies else ""
        is_signed = secrets_match(state, self._signed(text))
        return is_signed and secrets_match(given, nonce) and int(expires) >= self._now()

    def _signed(self, text: str) -> str:
        key = self._config.client_secret.encode()
        return (
            f"{text}.{hmac.new(key, text.encode('utf-8', 'replace'), hashlib.sha256).hexdigest()}"
        )


def _page(status: int, text: str) -> WebhookResponse:
    headers = {"content-type": "text/plain; charset=utf-8", "cache-control": "no-store"}
    return WebhookResponse(status=status, body=text.encode(), headers=headers)
