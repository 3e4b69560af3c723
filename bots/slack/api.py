"""Slack Web API client: one shared session, a time limit for each call, no retries, error mapping."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

import aiohttp
import anyio
from slack_sdk.errors import SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse
from slack_sdk.webhook.async_client import AsyncWebhookClient

from bots.common.proxy import proxy_url_for
from bots.config import SlackConfig
from bots.slack.errors import SlackError, error_from_exception, error_from_status
from bots.slack.payload import SlackIdentity, as_str

CONNECT_TIMEOUT_S = 10.0


def parse_scopes(headers: Mapping[str, str]) -> frozenset[str] | None:
    """Return the scopes granted to the app, from the headers of a response; None = the headers do not say.

    >>> parse_scopes({"x-oauth-scopes": "chat:write, commands"}) == {"chat:write", "commands"}
    True
    """
    scopes = next((v for name, v in headers.items() if name.lower() == "x-oauth-scopes"), None)
    return None if scopes is None else frozenset(scope.strip() for scope in scopes.split(","))


class ResponseUrlExpired(SlackError):
    """A response_url has been used 5 times, is older than 30 minutes, or refuses the message."""


def sdk_logger() -> logging.Logger:
    """Return the logger for slack_sdk and Bolt. Its level is ERROR: below it, they log URLs, texts and tickets."""
    logger = logging.getLogger("bots.slack.sdk")
    if logger.level != logging.ERROR:  # Setting the level clears the caches of all loggers.
        logger.setLevel(logging.ERROR)
    return logger


_WORKSPACE: ContextVar[str] = ContextVar("slack_workspace", default="")
"""The workspace whose token calls currently use, if the app is installed in several workspaces."""


@dataclass(slots=True)
class _BotAccount:
    """The bot in one workspace."""

    token: str
    identity: SlackIdentity


class SlackApi:
    """Slack's Web API.

    Calls work at any time. While `shared_session` is open, they share one session. Otherwise each call opens its own,
    because the bus still empties the outbox after the adapter has stopped.
    """

    def __init__(self, config: SlackConfig, *, timeout_s: float, channel: str = "slack") -> None:
        self.channel = channel
        self._app_token = config.app_token
        self._base_url = config.base_url
        self._timeout_s = timeout_s
        self._pool: aiohttp.ClientSession | None = None
        self._clients: dict[str, AsyncWebClient] = {}
        identity = SlackIdentity(channel=channel, team_id="", user_id="", bot_id="")
        self._accounts = {"": _BotAccount(config.bot_token, identity)}

    @property
    def _account(self) -> "_BotAccount":
        return self._accounts.get(_WORKSPACE.get(), self._accounts[""])

    @property
    def workspace(self) -> str:
        """The workspace whose token calls currently use; "" = the configured token."""
        return _WORKSPACE.get()

    @property
    def bot_token(self) -> str:
        """The bot token of the current workspace; "" if it has none."""
        return self._account.token

    @property
    def installations(self) -> Sequence[str]:
        """The workspaces (or organizations) that installed the app by OAuth."""
        return [workspace for workspace in self._accounts if workspace]

    @property
    def default_installation(self) -> str:
        """The workspace of a chat in which nobody has written; "" = the configured one, or unknown among several."""
        names = self.installations
        return names[0] if len(names) == 1 and not self._accounts[""].token else ""

    @property
    def bots(self) -> Sequence[SlackIdentity]:
        """The bot's identity in each workspace, if known."""
        return [account.identity for account in self._accounts.values() if account.identity.user_id]

    def add_installation(self, workspace: str, token: str) -> None:
        """Use a token for a workspace that installed the app."""
        identity = replace(self._accounts[""].identity, installation=workspace)
        self._accounts[workspace] = _BotAccount(token, identity)

    def remove_installation(self, workspace: str) -> None:
        """Stop using a workspace's token."""
        self._accounts.pop(workspace, None)

    @contextmanager
    def in_workspace(self, workspace: str) -> Iterator[None]:
        """Use a workspace's token inside the block and in tasks started there; "" = the configured token."""
        token = _WORKSPACE.set(workspace)
        try:
            yield
        finally:
            _WORKSPACE.reset(token)

    async def exchange_code(
        self, code: str, *, client_id: str, client_secret: str
    ) -> AsyncSlackResponse:
        """Exchange an OAuth code for a bot token (oauth.v2.access). Raises SlackError."""
        # `web.oauth_v2_access` uses a class that aiohttp will remove.
        proof = aiohttp.encode_basic_auth(client_id, client_secret)
        return await self.call(
            lambda web: web.api_call(
                "oauth.v2.access", data={"code": code}, headers={"Authorization": proof}
            )
        )

    @asynccontextmanager
    async def shared_session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Hold the shared session open."""
        async with self._new_session() as session:
            self._pool = session
            try:
                yield session
            finally:
                self._pool = None
                self._clients.clear()

    async def call(
        self,
        request: Callable[[AsyncWebClient], Awaitable[AsyncSlackResponse]],
        *,
        timeout_s: float | None = None,
    ) -> AsyncSlackResponse:
        """Make one call with the SDK's client. Raises SlackError."""
        try:
            with anyio.fail_after(timeout_s or self._timeout_s):
                async with self.session() as session:
                    return await request(self._web(session))
        except (SlackClientError, aiohttp.ClientError, OSError) as error:
            raise error_from_exception(error) from error
        except (AttributeError, ValueError) as error:
            # The SDK fails if a response of 200 is not a JSON object, such as a proxy's page.
            raise error_from_status(200, {}) from error

    async def authenticate(self) -> SlackIdentity:
        """Get the bot's identity (auth.test). Raises SlackError."""
        answer = await self.call(lambda web: web.auth_test())
        account = self._account
        account.identity = replace(
            account.identity,
            team_id=answer.get("team_id") or "",
            user_id=answer.get("user_id") or "",
            bot_id=answer.get("bot_id") or "",
            enterprise_id=answer.get("enterprise_id") or "",
            is_org_install=answer.get("is_enterprise_install") is True,
            scopes=parse_scopes(answer.headers),
            name=as_str(answer.get("user")),
        )
        return account.identity

    async def identity(self) -> SlackIdentity:
        """Return the bot's identity. Asks Slack only once. Raises SlackError."""
        known = self.known_identity
        return known if known.user_id else await self.authenticate()

    @property
    def known_identity(self) -> SlackIdentity:
        """The bot's identity. All IDs are "" before `authenticate`."""
        return self._account.identity

    async def open_connection_url(self) -> str:
        """Return the one-time URL of a Socket Mode connection, which is a secret. Raises SlackError."""
        answer = await self.call(lambda web: web.apps_connections_open(app_token=self._app_token))
        url = answer.get("url")
        if not isinstance(url, str) or not url.startswith(("ws://", "wss://")):
            raise error_from_status(200, {})
        return url

    async def post_response_url(self, url: str, body: dict[str, object]) -> None:
        """Post to a response_url. No error contains the URL, because it is a secret.

        Raises:
            ResponseUrlExpired: The URL accepts no more responses. Send a message instead.
            SlackError: Any other failure.
        """
        try:
            with anyio.fail_after(self._timeout_s):
                async with self.session() as session:
                    client = AsyncWebhookClient(
                        url, session=session, retry_handlers=[], logger=sdk_logger()
                    )
                    client.proxy = proxy_url_for(url)
                    answer = await client.send_dict(body)
        except (SlackClientError, aiohttp.ClientError, OSError) as error:
            raise error_from_exception(error) from None
        if answer.status_code == 200 and answer.body.strip() in {"ok", '{"ok":true}', ""}:  # noqa: PLR2004
            return
        if answer.status_code in {200, 408, 429} or answer.status_code >= 500:  # noqa: PLR2004
            raise error_from_status(answer.status_code, answer.headers)
        raise ResponseUrlExpired("Slack accepts no more answers to this command.")

    @asynccontextmanager
    async def session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Yield the shared session, or a new one."""
        if self._pool is not None:
            yield self._pool
        else:
            async with self._new_session() as session:
                yield session

    def _web(self, session: aiohttp.ClientSession) -> AsyncWebClient:
        """Return the SDK's client for the current workspace. Clients of the shared session are cached."""
        token = self.bot_token
        if session is not self._pool:
            return self._new_web(session, token)
        if token not in self._clients:
            self._clients[token] = self._new_web(session, token)
        return self._clients[token]

    def _new_web(self, session: aiohttp.ClientSession, token: str) -> AsyncWebClient:
        web = AsyncWebClient(
            token=token or None,
            base_url=self._base_url,
            session=session,
            retry_handlers=[],
            logger=sdk_logger(),
        )
        web.proxy = proxy_url_for(self._base_url)
        return web

    def _new_session(self) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        return aiohttp.ClientSession(timeout=timeout)
