"""The fake's HTTP server: reads and checks requests, and responds or fails as scripted."""

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import anyio
from aiohttp import web
from aiohttp.typedefs import Middleware

from gateway.playground.ports import free_port
from gateway.playground.slack.checks import JSON_ARGUMENTS, check_arguments, load_methods
from gateway.playground.slack.limits import SlackRateLimits
from gateway.playground.slack.methods import SlackMethods
from gateway.playground.slack.oauth import SlackOAuth
from gateway.playground.slack.sockets import SlackSockets
from gateway.playground.slack.state import ResponseUrl, SlackMessage, SlackWorkspace

SCOPES = (
    "app_mentions:read", "channels:history", "channels:read", "chat:write", "commands", "files:read",
    "files:write", "groups:history", "groups:read", "im:history", "im:read", "im:write", "mpim:history",
    "reactions:write", "usergroups:read", "users:read",
)  # fmt: skip


SIGN_IN_PAGE = (
    "<!DOCTYPE html><html><head><title>Sign in to Slack | Slack</title></head>"
    "<body><h1>Sign in to your workspace</h1></body></html>"
)


class SlackFailureOptions(TypedDict, total=False):
    """See `SlackFailure`."""

    status: int
    error: str
    headers: dict[str, str]
    body: str
    reply: dict[str, object]
    drop: str
    effect: bool
    delay_s: float
    times: int


@dataclass(slots=True, kw_only=True)
class SlackFailure:
    """A scripted failure of the next calls of a method.

    Attributes:
        status: The HTTP status of the response.
        error: Slack's error code in the response.
        headers: Headers of the response.
        body: The raw response, instead of JSON.
        reply: The response's JSON.
        drop: Break the connection "before" or "after" the effect.
        effect: Whether the call takes effect despite the error.
        delay_s: Wait first, seconds.
        times: Number of calls that fail.
    """

    status: int = 200
    error: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: str | None = None
    reply: dict[str, object] | None = None
    drop: str = ""
    effect: bool = False
    delay_s: float = 0.0
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackCall:
    """A received request. `team` is the workspace of its token."""

    method: str
    arguments: Mapping[str, Any]
    at: float
    team: str = ""


class SlackHttpServer:
    """Listens on 127.0.0.1, always on the same port.

    Args:
        workspace: The workspace that requests act on.
        sockets: The target of /link/.
        violations: Receives violations.
        posted: Called with every new message of the bot.
        edited: Called with every edited message and its previous version.
        changed: Called after every request.
        middlewares: See all requests and responses.
    """

    def __init__(
        self,
        workspace: SlackWorkspace,
        sockets: SlackSockets,
        *,
        violations: list[str],
        posted: Callable[[SlackMessage], None],
        edited: Callable[[SlackMessage, Mapping[str, Any]], None],
        changed: Callable[[], None],
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self._middlewares = middlewares
        self.bot_token = f"xoxb-{secrets.token_hex(8)}"
        self.app_token = f"xapp-{secrets.token_hex(8)}"
        self.refusal = "invalid_auth"
        self.oauth = SlackOAuth()
        self.scopes = set(SCOPES)
        self.calls: list[SlackCall] = []
        self.failures: dict[str, list[SlackFailure]] = {}
        self.methods = SlackMethods(
            workspace,
            url=lambda path: f"{self.url}{path}",
            violation=violations.append,
            posted=posted,
            edited=edited,
        )
        self._workspace = workspace
        self._sockets = sockets
        self._violations = violations
        self._changed = changed
        self.specs = load_methods()
        self.limits = SlackRateLimits()
        self._runner: web.AppRunner | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, on the same port as before."""
        app = web.Application(client_max_size=2**30, middlewares=self._middlewares)
        app.add_routes([
            web.route("*", "/api/{method}", self._api),
            web.get("/link/", self._sockets.serve),
            web.get("/oauth/v2/authorize", self.oauth.authorize),
            web.post("/upload/{file}", self._upload),
            web.post("/response/{name}", self._respond),
            web.get("/files-pri/{file}", self._download),
            web.get("/files-pri/{file}/{form}", self._download),
        ])  # fmt: skip
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()

    @property
    def is_listening(self) -> bool:
        """Whether it accepts connections."""
        return self._runner is not None

    async def stop(self) -> None:
        """Stop listening and break every connection."""
        self._sockets.cut_all()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _failure(self, method: str) -> SlackFailure | None:
        waiting = self.failures.get(method, [])
        if not waiting:
            return None
        waiting[0].times -= 1
        return waiting[0] if waiting[0].times > 0 else waiting.pop(0)

    async def _api(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        arguments, is_json = await _arguments(request)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        team = self.oauth.tokens.get(token, self._workspace.team)
        self.calls.append(SlackCall(method=method, arguments=arguments, at=time.time(), team=team))

        def effect() -> web.Response:
            spec = self.specs.get(method) or {}
            if wait_s := self.limits.wait_s(method, spec, arguments):
                told = {"ok": False, "error": "ratelimited"}
                return web.json_response(told, status=429, headers={"Retry-After": str(wait_s)})
            answer = self._answer(request, method, arguments, is_json=is_json)
            headers = {"x-oauth-scopes": ",".join(sorted(self.scopes))} if answer["ok"] else {}
            return web.json_response(answer, headers=headers)

        return await self._answered(request, method, effect)

    async def _answered(
        self, request: web.Request, method: str, effect: Callable[[], web.Response]
    ) -> web.StreamResponse:
        failure = self._failure(method)
        try:
            if failure is None:
                return effect()
            await anyio.sleep(failure.delay_s)
            if failure.drop == "after" or failure.effect:
                effect()
            return _broken(request, failure) or effect()
        finally:
            self._changed()

    def _answer(
        self, request: web.Request, method: str, arguments: Mapping[str, Any], *, is_json: bool
    ) -> dict[str, Any]:
        if method == "oauth.v2.access":  # This method is not in the table of methods.
            return self.oauth.exchange(request, arguments)
        spec = self.specs.get(method)
        if spec is None:
            self._violations.append(f"{method}: no such method")
        if "token" in request.query:
            self._violations.append(f"{method}: the token is in the address")
        for finding in check_arguments(spec, arguments, is_json=is_json) if spec else ():
            self._violations.append(f"{method}: {finding}")
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if method == "apps.connections.open":
            return self._open_socket(token)
        if refusal := self._refusal(token, spec):
            return refusal
        self.methods.scopes = self.scopes
        self.methods.team = self.oauth.tokens.get(token, self._workspace.team)
        return self.methods.answer(method, arguments)

    def _refusal(self, token: str, spec: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if token != self.bot_token and token not in self.oauth.tokens:
            return {"ok": False, "error": self.refusal if token else "not_authed"}
        needed = (spec or {}).get("scope", {}).get("bot", [])
        if needed and not self.scopes & set(needed):
            return {
                "ok": False,
                "error": "missing_scope",
                "needed": ",".join(needed),
                "provided": ",".join(sorted(self.scopes)),
            }
        return None

    def _open_socket(self, token: str) -> dict[str, Any]:
        if token != self.app_token:
            return {
                "ok": False,
                "error": "not_allowed_token_type" if token == self.bot_token else "invalid_auth",
            }
        return {
            "ok": True,
            "url": f"ws://127.0.0.1:{self.port}/link/?ticket={self._sockets.ticket()}&app_id=A1APP",
        }

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        file = self._workspace.files.get(request.match_info["file"])
        content = await request.read()
        self.calls.append(
            SlackCall(method="upload", arguments={"length": len(content)}, at=time.time())
        )

        def effect() -> web.Response:
            if file is None or len(content) != file.length:
                self._violations.append(
                    "upload: unknown file, or not of the length that was announced"
                )
                return web.Response(status=400)
            file.content = content
            return web.Response(text=f"OK - {len(content)}")

        return await self._answered(request, "upload", effect)

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = await request.json()
        self.calls.append(SlackCall(method="response_url", arguments=body, at=time.time()))
        callback = self._workspace.callbacks.get(request.match_info["name"])

        def effect() -> web.Response:
            if callback is None or callback.expired or callback.uses < 1:
                gone = "used_url" if callback and not callback.expired else "expired_url"
                return web.Response(status=404, text=gone)
            callback.uses -= 1
            callback.answers.append(self._private(callback, body))
            self._workspace.posted.append(callback.answers[-1])
            return web.Response(text="ok")

        return await self._answered(request, "response_url", effect)

    def _private(self, callback: ResponseUrl, body: Mapping[str, Any]) -> SlackMessage:
        return SlackMessage(
            channel=callback.channel,
            ts=self._workspace.ts(),
            user=self._workspace.bot_user,
            bot_id=self._workspace.bot_id,
            text=body.get("text", ""),
            blocks=body.get("blocks", []),
            only_for="" if body.get("response_type") == "in_channel" else callback.user,
        )

    async def _download(self, request: web.Request) -> web.StreamResponse:
        """Return a file. Without the right token, return the login page with 200, like Slack."""
        file = self._workspace.files.get(request.match_info["file"])
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")

        def effect() -> web.Response:
            if token != self.bot_token or "files:read" not in self.scopes or file is None:
                return web.Response(text=SIGN_IN_PAGE, content_type="text/html")
            if request.match_info.get("form") == "csv":
                return web.Response(body=file.csv, content_type="text/csv")
            return web.Response(body=file.content, content_type=file.served_as or file.mimetype)

        return await self._answered(request, "download", effect)


async def _arguments(request: web.Request) -> tuple[dict[str, Any], bool]:
    if request.content_type == "application/json":
        body = await request.json()
        return {**request.query, **body}, True
    given: dict[str, Any] = {**request.query, **dict(await request.post())}
    for name in JSON_ARGUMENTS & given.keys():
        given[name] = json.loads(given[name])
    return given, False


def _broken(request: web.Request, failure: SlackFailure) -> web.Response | None:
    """Return the response of a failure; None if the call is only slow."""
    if failure.drop:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()
    if failure.body is not None:
        return web.Response(
            status=failure.status,
            text=failure.body,
            headers=failure.headers,
            content_type="text/html",
        )
    if failure.reply is not None:
        return web.json_response(failure.reply, status=failure.status, headers=failure.headers)
    if failure.error or failure.status != 200:
        body = json.dumps({"ok": False, "error": failure.error or "internal_error"})
        return web.Response(
            status=failure.status,
            text=body,
            headers=failure.headers,
            content_type="application/json",
        )
    return None
