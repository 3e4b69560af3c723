"""A Telegram server on 127.0.0.1: the Bot API with the chats behind it, as strict as the real one."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypedDict

import anyio
from aiohttp import web
from aiohttp.typedefs import Middleware
from typing_extensions import Unpack, override

from gateway.playground.ports import free_port, keep_port
from gateway.playground.telegram.calls import TelegramCall
from gateway.playground.telegram.chats import Json, TelegramApiError, TelegramUpload, user_json
from gateway.playground.telegram.checks import specification, violations
from gateway.playground.telegram.flood import AccountFloodLimit
from gateway.playground.telegram.methods import TelegramMethods
from gateway.playground.telegram.push import TelegramWebhookSender
from gateway.playground.telegram.users import TelegramUsers

TOKEN = "700700:fake-token"
_BODY_BYTES = 60_000_000


@dataclass(slots=True, kw_only=True)
class TelegramRequest:
    """A received call. `arguments` are the form's strings, or a JSON body's values."""

    method: str
    arguments: Mapping[str, Any]
    files: Mapping[str, TelegramUpload]


class TelegramFailureOptions(TypedDict, total=False):
    """How a call fails. See `TelegramServer.fail`."""

    status: int
    description: str
    parameters: Json
    headers: Mapping[str, str]
    body: str
    drop: Literal["before", "after"]
    delay_s: float
    lag_s: float


@dataclass(slots=True, kw_only=True)
class TelegramFailure:
    """A scripted failure of the next calls of a method."""

    method: str
    times: int
    how: TelegramFailureOptions


class TelegramServer(TelegramUsers):
    """A replacement for api.telegram.org with one bot.

    Use as `async with TelegramServer() as telegram:` and configure its `settings`.

    People write with `dm`, `say`, `mention`, `send_file`, `edit` (each returns the message id). The first message
    creates a chat. Positive IDs are private chats, IDs above -1,000,000,000 are basic groups, and the others are
    supergroups, whose message IDs start at 1. `add_forum` and `add_topic` make forums. With `privacy` (the default, as
    with @BotFather), the bot sees only commands, mentions and replies to it in groups. People also press buttons, send
    albums, stop drafts (see `TelegramUsers`). Updates are sent repeatedly until a later getUpdates confirms them. A
    second poller ends the first one with 409. A webhook refuses all pollers and gets the updates itself (`pusher`).

    Look at it with `messages(chat)`, `answers(chat)` (the bot's own), `log` (in order: ("message", chat,
    message id) and ("typing", chat, topic)), `requests`, `commands`, `backlog`; wait with
    `wait_for(predicate)`, which looks again after every change. `violations` collects calls that the
    specification does not allow: assert it is empty.

    Break it with `fail`, `disconnect_all`, `refuse` and `accept`, `revoke`, `block`, `migrate`; `account_limit`, if
    set, limits the bot's calls in all chats together.

    Args:
        token: The only valid token.
        username: The bot's name, without @.
        privacy: Whether groups are mostly hidden from the bot.
        group_per_minute: Messages per minute that one group accepts from the bot. More get 429.
        classic: A server from before drafts and rich messages.
        middlewares: See all requests and responses.
    """

    def __init__(
        self,
        token: str = TOKEN,
        *,
        username: str = "parley_bot",
        privacy: bool = True,
        group_per_minute: int = 20,
        classic: bool = False,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self._middlewares = middlewares
        bot_id = int(token.split(":", maxsplit=1)[0])
        super().__init__(
            bot=user_json(bot_id, name="Parley", is_bot=True, username=username), privacy=privacy
        )
        self.token = token
        self.requests: list[TelegramRequest] = []
        self.revoked = False
        self.port = free_port()
        self.account_limit: AccountFloodLimit | None = None
        self._failures: list[TelegramFailure] = []
        self._transports: set[asyncio.Transport] = set()
        self.pusher = TelegramWebhookSender(self)
        self._methods = TelegramMethods(
            self, self.pusher, group_per_minute=group_per_minute, classic=classic
        )
        self._stack = AsyncExitStack()
        self._site: web.TCPSite | None = None
        self._away = ExitStack()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/bot"

    @property
    def base_file_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/file/bot"

    @property
    def settings(self) -> dict[str, Any]:
        """The section of a configuration that connects to this server. Everyone may write in private."""
        return {
            "enabled": True,
            "base_url": self.base_url,
            "base_file_url": self.base_file_url,
            "bot_token": self.token,
            "dm_policy": "open",
        }

    async def __aenter__(self) -> Self:
        await anyio.to_thread.run_sync(specification)  # Read it once, and not in the event loop.
        app = web.Application(client_max_size=_BODY_BYTES, middlewares=self._middlewares)
        app.router.add_route("*", "/bot{token}/{method}", self._handle)
        app.router.add_get("/file/bot{token}/{path:.+}", self._download)
        # Without `handler_cancellation`, a canceled long poll would continue and take updates.
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1
        )
        await self._runner.setup()
        self._stack.push_async_callback(self._runner.cleanup)
        # A plain task, because a task group must not stay open across a fixture's yield.
        pushing = asyncio.get_running_loop().create_task(self.pusher.run())
        self._stack.push_async_callback(_ended, pushing)
        await self.accept()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.disconnect_all()
        self._away.close()
        await self._stack.aclose()

    def revoke(self, *, revoked: bool = True) -> None:
        """Revoke the token, or restore it."""
        self.revoked = revoked
        self.disconnect_all()

    def calls(self, method: str) -> list[TelegramRequest]:
        """Return the requests of one method."""
        return [request for request in self.requests if request.method == method]

    @override
    def described(self) -> str:
        asked = [request.method for request in self.requests[-10:]]
        return f"last calls: {asked}, {super().described()}"

    # Faults.

    def fail(self, method: str, *, times: int = 1, **how: Unpack[TelegramFailureOptions]) -> None:
        """Make the next calls of a method fail.

        Args:
            method: The method's name in the URL; "download" = fetching a file; "*" = any method.
            times: Number of calls that fail.
            how: `status` with `description`, `parameters` ({"retry_after": 3}), `headers`, `body` (raw,
                instead of the usual JSON): a refusal without effect. `drop="before"` or `drop="after"`:
                the connection breaks before or after the effect. `delay_s`: the answer is slow; the
                effect is not. `lag_s`: the effect is slow too.
        """
        self._failures.append(TelegramFailure(method=method, times=times, how=how))

    def stop_failing(self) -> None:
        """Forget all scripted failures."""
        self._failures.clear()

    def disconnect_all(self) -> None:
        """Break every open connection."""
        for transport in list(self._transports):
            transport.abort()
        self._transports.clear()

    async def refuse(self) -> None:
        """Refuse all connections, as if the network were down."""
        if self._site is not None:
            await self._site.stop()
            self._site = None
            self._away.enter_context(keep_port(self.port))
        self.disconnect_all()

    @property
    def is_away(self) -> bool:
        """Whether it accepts no connections."""
        return self._site is None

    async def accept(self) -> None:
        """Listen (again), on the same port."""
        self._away.close()
        self._site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await self._site.start()

    async def _download(self, request: web.Request) -> web.Response:
        failure = self._failure("download")
        if failure is not None:
            await anyio.sleep(failure.get("delay_s", 0.0))
            if "status" in failure or "drop" in failure:
                return _failed(request, failure)
        file = self.files.get(request.match_info["path"].rpartition("/")[2])
        if request.match_info["token"] != self.token or self.revoked or file is None:
            return web.json_response({"ok": False, "error_code": 404}, status=404)
        return web.Response(body=file.content)

    async def _handle(self, request: web.Request) -> web.Response:
        transport = request.transport
        if transport is None:
            return web.Response()
        # Close idle connections too, because the next request would use them.
        self._transports = {known for known in self._transports if not known.is_closing()}
        self._transports.add(transport)
        try:
            refused = self._refused_token(request.match_info["token"])
            return _refusal(refused) if refused else await self._called(request)
        finally:
            self.changed()

    def _refused_token(self, token: str) -> TelegramApiError | None:
        if ":" not in token:
            return TelegramApiError(404, "Not Found")
        if token != self.token or self.revoked:
            return TelegramApiError(401, "Unauthorized")
        return None

    async def _called(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        arguments, files = await _decode(request)
        self.requests.append(TelegramRequest(method=method, arguments=arguments, files=files))
        self.violations += violations(method, arguments, files)
        self.changed()
        failure = self._failure(method)
        if failure is not None and ("status" in failure or failure.get("drop") == "before"):
            return _failed(request, failure)
        if failure is not None:
            await anyio.sleep(failure.get("lag_s", 0.0))
        answer = await self._answer(method, TelegramCall(arguments=arguments, files=files))
        self.changed()
        if failure is not None:
            await anyio.sleep(failure.get("delay_s", 0.0))
            if "drop" in failure:
                return _failed(request, failure)
        return answer

    async def _answer(self, method: str, call: TelegramCall) -> web.Response:
        try:
            if self.account_limit is not None and "chat_id" in call.arguments:
                self.account_limit.check()
            return web.json_response({"ok": True, "result": await self._methods.call(method, call)})
        except TelegramApiError as error:
            return _refusal(error)

    def _failure(self, method: str) -> TelegramFailureOptions | None:
        for failure in self._failures:
            if failure.method in {method, "*"} and failure.times > 0:
                failure.times -= 1
                return failure.how
        return None


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _failed(request: web.Request, how: TelegramFailureOptions) -> web.Response:
    if "drop" in how and request.transport is not None:
        request.transport.abort()
        return web.Response()
    status, headers = how.get("status", 500), how.get("headers")
    if "body" in how:
        return web.Response(status=status, text=how["body"], headers=headers)
    description = how.get("description", f"Failed {status}")
    return _refusal(TelegramApiError(status, description, how.get("parameters")), headers)


def _refusal(error: TelegramApiError, headers: Mapping[str, str] | None = None) -> web.Response:
    body: Json = {"ok": False, "error_code": error.status, "description": error.description}
    if error.parameters:
        body["parameters"] = dict(error.parameters)
    return web.json_response(body, status=error.status, headers=headers)


async def _decode(request: web.Request) -> tuple[dict[str, Any], dict[str, TelegramUpload]]:
    """Return a call's arguments and files, from a query, form, multipart or JSON body."""
    arguments: dict[str, Any] = dict(request.query)
    files: dict[str, TelegramUpload] = {}
    if request.content_type == "application/json":
        return arguments | json.loads(await request.read() or b"{}"), files
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            content = await anyio.to_thread.run_sync(value.file.read)
            files[name] = TelegramUpload(
                name=value.filename, content=content, mime=value.content_type
            )
            value.file.close()
        else:
            arguments[name] = value if isinstance(value, str) else bytes(value).decode()
    return arguments, files
