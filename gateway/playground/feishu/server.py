"""A Feishu server on 127.0.0.1, independent of the SDK and as strict as the platform."""

import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack

import anyio
import httpx
from aiohttp import web
from aiohttp.typedefs import Middleware

from gateway.playground import WITHIN_S
from gateway.playground.feishu.cardkit import SCOPE, CardKitService
from gateway.playground.feishu.post import FeishuWebhookSender
from gateway.playground.feishu.push import FeishuConnection, PushService
from gateway.playground.feishu.rest import RestApi
from gateway.playground.feishu.shown import event_content
from gateway.playground.feishu.state import (
    BOT_OPEN_ID,
    FeishuCall,
    FeishuEvent,
    FeishuFailure,
    FeishuMessage,
    FeishuState,
)

__all__ = [
    "BOT_OPEN_ID",
    "FakeFeishu",
    "FeishuCall",
    "FeishuConnection",
    "FeishuEvent",
    "FeishuMessage",
]

T = TypeVar("T")


class FeishuMessageOptions(TypedDict, total=False):
    """Properties of a user's message besides its content.

    `private`: it is in a p2p chat. `thread`: topic ID. `reply_to`: ID of the original message. `sender_type`: user or
    app. `parts`: number of frames of its event.
    """

    private: bool
    thread: str
    reply_to: str
    mentions: list[dict[str, Any]]
    sender_type: str
    parts: int


class FakeFeishu:
    """The platform: REST API, long connections, chats, users.

    Use it as `async with FakeFeishu() as feishu:` inside a test (not across a fixture's yield).
    Configure Parley with `feishu.settings`, a `channels.feishu` section.

    Speak as a user: `dm`, `mention`, `say`, `message` (any type), `file`, `forward`, `forward_messages`, `press`,
    `withdraw`, `click_menu`, `open_chat`, `add_bot`, `push` (any event). Each returns the `FeishuMessage`
    (or `FeishuEvent`). `state.people`, `state.titles`, `state.members` hold names.
    Events are pushed to a random connection until acknowledged with code 200.
    State: `messages(chat)`, `answers(chat)`, `answers_to(message)`, `event_of(message)`, `calls(op)`,
    `files`, `connections`, `past_connections`, `violations` (must stay empty).
    Wait: `await wait_for(lambda: feishu.answers(chat))`, which checks again after every change.
    Over HTTP instead of long connections: `call_at(url)`, `poster`.
    Faults: `fail(op, ...)`, `disconnect_all()`, `refuse_connects(code)`, `revoke_tokens()`,
    `recall(message)`, `expire(message)`, `remove_bot(chat)`, `mute()`.

    Permissions: `rest.scopes` (granted by the tenant), `rest.activate_status`, `rest.has_bot`.

    Operations: token, endpoint, bot.info, scopes, message.create, message.reply, message.patch,
    message.get, message.delete, chat.get,
    chat.members, users.batch, reaction.create, reaction.delete, image.create, file.create, card.create,
    card.update, card.settings, card.content, card.convert. Card entities need `allow_cardkit`.

    Args:
        ack_s: How long a push waits for its acknowledgement (the platform: 3 s).
        redeliver_s: Pause before an event is pushed again (the platform: 15 s, 5 min, ...).
        token_s: Life of a tenant token (the platform: 2 h).
        app_calls_per_s: Calls an app may make in a second (the platform: 50).
        tls: The TLS context (the platform always encrypts); None = no encryption.
        middlewares: See all requests and responses.
    """

    tenant = "tenant_1"

    def __init__(
        self,
        *,
        app_id: str = "cli_0123456789abcdef",
        app_secret: str = "feishu-app-secret",  # noqa: S107 - a fake's
        ack_s: float = 3.0,
        redeliver_s: float = 0.2,
        token_s: float = 7200.0,
        app_calls_per_s: int = 50,
        tls: ssl.SSLContext | None = None,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self._middlewares = middlewares
        self._tls = tls
        self.app_id = app_id
        self.app_secret = app_secret
        self.outsiders: dict[str, str] = {}
        self.state = FeishuState()
        secrets = {"app_id": app_id, "app_secret": app_secret}
        self.rest = RestApi(self.state, **secrets, token_s=token_s, app_calls_per_s=app_calls_per_s)
        self.pusher = PushService(self.state, **secrets, ack_s=ack_s, redeliver_s=redeliver_s)
        self.poster = FeishuWebhookSender(self.state, ack_s=ack_s, redeliver_s=redeliver_s)
        self.url = ""

    async def __aenter__(self) -> Self:
        application = web.Application(client_max_size=2**26, middlewares=self._middlewares)
        endpoint = self.rest.guarded("endpoint", self.pusher.endpoint)
        application.add_routes([web.post("/callback/ws/endpoint", endpoint), *self.rest.routes()])
        application.router.add_get("/callback/ws", self.pusher.connect)
        self._runner = web.AppRunner(application, shutdown_timeout=0.5, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"{'https' if self._tls else 'http'}://{host}:{port}"
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tasks.cancel_scope.cancel()
        try:
            await self._tasks.__aexit__(kind, error, trace)
        finally:
            with anyio.CancelScope(shield=True):
                await self._runner.cleanup()

    @property
    def settings(self) -> dict[str, Any]:
        """The `channels.feishu` section that leads here."""
        return {
            "enabled": True,
            "app_id": self.app_id,
            "app_secret": self.app_secret,
            "domain": self.url,
        }

    def call_at(self, url: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """Deliver to a request URL instead of long connections, after it has answered the console's question."""
        self.poster.caller.url, self.poster.caller.transport = url, transport
        self.poster.verified = False
        self._tasks.start_soon(self.poster.verify)

    # People's actions.

    async def dm(self, text: str, *, user: str = "ou_alice", reply_to: str = "") -> FeishuMessage:
        """Write to the bot in private."""
        return await self.say(
            text, chat=f"oc_dm_{user}", user=user, private=True, reply_to=reply_to
        )

    async def mention(
        self,
        text: str,
        *,
        chat: str = "oc_room",
        user: str = "ou_alice",
        thread: str = "",
        reply_to: str = "",
    ) -> FeishuMessage:
        """Write `@Parley text` in a group."""
        mentions = [
            {
                "key": "@_user_1",
                "id": {"open_id": BOT_OPEN_ID},
                "name": "Parley",
                "tenant_key": self.tenant,
            }
        ]
        extra = FeishuMessageOptions(thread=thread, reply_to=reply_to, mentions=mentions)
        return await self.say(f"@_user_1 {text}", chat=chat, user=user, **extra)

    async def say(
        self, text: str, *, chat: str, user: str = "ou_alice", **extra: Unpack[FeishuMessageOptions]
    ) -> FeishuMessage:
        """Write a text, exactly as given."""
        return await self.message("text", {"text": text}, chat=chat, user=user, **extra)

    async def file(
        self,
        name: str,
        data: bytes = b"content",
        *,
        mime: str = "application/octet-stream",
        user: str = "ou_alice",
    ) -> FeishuMessage:
        """Send a file in private."""
        key = self.state.next_id("file_v3_")
        return await self._resource(
            "file", {"file_key": key, "file_name": name}, key, (mime, data), user
        )

    async def voice(self, data: bytes, *, seconds: float, user: str = "ou_alice") -> FeishuMessage:
        """Send a voice message in private."""
        key = self.state.next_id("file_v3_")
        content = {"file_key": key, "duration": round(seconds * 1000)}
        self.state.resources[key] = ("file", "audio/ogg", data)
        chat = f"oc_dm_{user}"
        return await self.message("audio", content, chat=chat, user=user, private=True)

    async def forward(self, *texts: str, user: str = "ou_alice") -> FeishuMessage:
        """Forward other people's messages, each by another person, in private."""
        said = [
            FeishuMessage("", "oc_elsewhere", f"ou_other{number}", "text", {"text": text}, made_at=1_700_000_000)
            for number, text in enumerate(texts)
        ]  # fmt: skip
        return await self.forward_messages(*said, user=user)

    async def forward_messages(
        self,
        *messages: FeishuMessage,
        user: str = "ou_alice",
        chat: str = "",
        **extra: Unpack[FeishuMessageOptions],
    ) -> FeishuMessage:
        """Forward messages as one, in private or to a chat."""
        kind, content = "merge_forward", {"content": "Merged and Forwarded Message"}
        extra = {**extra, "private": not chat}
        where = chat or f"oc_dm_{user}"
        forwarded = FeishuMessage(self.state.next_id("om_user"), where, user, kind, content)
        self.state.forwards[forwarded.id] = self._held(messages, forwarded.id)
        return await self._say(forwarded, extra)

    def _held(
        self, messages: Iterable[FeishuMessage], holder: str
    ) -> list[tuple[FeishuMessage, str]]:
        """Return copies of messages, each with the ID of the message that contains it."""
        held = []
        for message in messages:
            copy = replace(message, id=self.state.next_id("om_held"), reactions={})
            inside = [one for one, _ in self.state.forwards.get(message.id, [])]
            held += [(copy, holder), *self._held(inside, copy.id)]
        return held

    async def picture(
        self, data: bytes, *, mime: str = "image/png", user: str = "ou_alice"
    ) -> FeishuMessage:
        """Send a picture in private."""
        key = self.state.next_id("img_v3_")
        return await self._resource("image", {"image_key": key}, key, (mime, data), user)

    async def _resource(
        self, kind: str, content: dict[str, Any], key: str, data: tuple[str, bytes], user: str
    ) -> FeishuMessage:
        # Store it before sending the event, because the bot may ask for it at once.
        self.state.resources[key] = (kind, *data)
        return await self.message(kind, content, chat=f"oc_dm_{user}", user=user, private=True)

    async def message(
        self,
        kind: str,
        content: dict[str, Any],
        *,
        chat: str,
        user: str = "ou_alice",
        **extra: Unpack[FeishuMessageOptions],
    ) -> FeishuMessage:
        """Send a message of any type."""
        made = FeishuMessage(self.state.next_id("om_user"), chat, user, kind, content)
        return await self._say(made, extra)

    async def _say(self, message: FeishuMessage, extra: FeishuMessageOptions) -> FeishuMessage:
        replied = self.state.messages.get(extra.get("reply_to", ""))
        message.thread = extra.get("thread", "")
        message.mentions = extra.get("mentions", [])
        if replied is not None:
            message.reply_to = replied.id
            message.root = replied.root or replied.id
            message.thread = message.thread or replied.thread
        self.state.add(message)
        event = FeishuEvent(self.state.next_id("ev_"), {}, message, parts=extra.get("parts", 1))
        event.payload = self._envelope(
            event.id, "im.message.receive_v1", self._received(message, extra)
        )
        self._start(event)
        return message

    async def press(
        self, message: FeishuMessage, label: str, *, user: str = "ou_alice", old: bool = False
    ) -> FeishuEvent:
        """Press a button. `old`: the app gets callbacks of the old kind. Never pushed twice."""
        value = message.buttons[label]
        return await self.press_value(message, value, user=user, old=old)

    async def press_value(
        self,
        message: FeishuMessage,
        value: dict[str, Any],
        *,
        user: str = "ou_alice",
        old: bool = False,
    ) -> FeishuEvent:
        """Press a button with this callback value, even if it is no longer shown."""
        action = {"tag": "button", "value": value}
        context = {"open_message_id": message.id, "open_chat_id": message.chat}
        token = self.state.next_id("c-")
        made = FeishuEvent(
            self.state.next_id("ev_"), {}, once=True, kind="card" if old else "event"
        )
        if old:
            made.payload = {"open_id": user, "tenant_key": self.tenant, "token": token,
                            "action": action, **context}  # fmt: skip
        else:
            operator = {"open_id": user, "tenant_key": self.tenant_of(user)}
            event = {"operator": operator, "token": token, "action": action, "host": "im_message",
                     "context": context}  # fmt: skip
            made.payload = self._envelope(made.id, "card.action.trigger", event)
        self._start(made)
        return made

    def tenant_of(self, user: str) -> str:
        """Return a person's tenant. `outsiders` are in another tenant."""
        return self.outsiders.get(user, self.tenant)

    async def withdraw(self, message: FeishuMessage) -> FeishuEvent:
        """Withdraw a message as its author, and notify the app."""
        self.recall(message)
        told = {"message_id": message.id, "chat_id": message.chat, "recall_type": "message_owner"}
        return await self.push("im.message.recalled_v1", told)

    async def click_menu(self, entry: str, *, user: str = "ou_alice") -> FeishuEvent:
        """Click an entry of the bot's menu."""
        operator = {"operator_name": "Alice", "operator_id": {"open_id": user}}
        return await self.push(
            "application.bot.menu_v6", {"operator": operator, "event_key": entry}
        )

    async def open_chat(self, *, user: str = "ou_alice") -> FeishuEvent:
        """Open the chat with the bot."""
        chat = f"oc_dm_{user}"
        self.state.chats.add(chat)
        said = self.messages(chat)
        told = {"chat_id": chat, "operator_id": {"open_id": user}}
        if said:
            told["last_message_id"] = said[-1].id
        return await self.push("im.chat.access_event.bot_p2p_chat_entered_v1", told)

    async def add_bot(self, chat: str, *, user: str = "ou_alice") -> FeishuEvent:
        """Add the bot to a group."""
        self.state.chats.add(chat)
        self.state.left.discard(chat)
        told: dict[str, object] = {"chat_id": chat, "operator_id": {"open_id": user}}
        told |= {"operator_tenant_key": self.tenant_of(user), "name": "Room"}
        return await self.push("im.chat.member.bot.added_v1", told)

    async def push(self, event_type: str, event: dict[str, Any]) -> FeishuEvent:
        """Push an event of any type."""
        made = FeishuEvent(self.state.next_id("ev_"), {})
        made.payload = self._envelope(made.id, event_type, event)
        self._start(made)
        return made

    async def push_raw(self, payload: bytes) -> FeishuEvent:
        """Push bytes that need not be JSON."""
        made = FeishuEvent(self.state.next_id("ev_"), {}, raw=payload)
        self._start(made)
        return made

    def push_again(self, event: FeishuEvent) -> None:
        """Push an acknowledged event again, as the platform sometimes does hours later."""
        event.acked = False
        self._tasks.start_soon(self.pusher.deliver, event)

    # The visible state.

    def messages(self, chat: str) -> list[FeishuMessage]:
        """Return the messages of a chat, except withdrawn messages, oldest first."""
        return [
            message
            for message in self.state.messages.values()
            if message.chat == chat and not message.gone
        ]

    def answers(self, chat: str) -> list[FeishuMessage]:
        """Return the bot's messages in a chat."""
        return [message for message in self.messages(chat) if message.by_bot]

    def answers_to(self, message: FeishuMessage) -> list[FeishuMessage]:
        """Return the bot's replies to a message."""
        return [answer for answer in self.answers(message.chat) if answer.reply_to == message.id]

    def event_of(self, message: FeishuMessage) -> FeishuEvent:
        """Return the event of a user's message."""
        return next(event for event in reversed(self.state.events) if event.message is message)

    def calls(self, op: str) -> list[FeishuCall]:
        """Return the requests of an operation."""
        return [call for call in self.state.calls if call.op == op]

    @property
    def cardkit(self) -> CardKitService:
        """The card entities."""
        return self.rest.cardkit

    @property
    def files(self) -> dict[str, tuple[str, str, bytes]]:
        """Uploads by key: type, name, bytes."""
        return self.state.files

    @property
    def connections(self) -> list[FeishuConnection]:
        """The long connections that are open."""
        return self.pusher.connections

    @property
    def past_connections(self) -> list[FeishuConnection]:
        """The ended long connections, with their close codes."""
        return self.pusher.past

    @property
    def violations(self) -> list[str]:
        """Requests that the platform's documentation forbids."""
        return self.state.violations

    async def wait_for(self, predicate: Callable[[], T | None], timeout_s: float = WITHIN_S) -> T:
        """Return the first truthy value of `predicate`; TimeoutError with the fake's state otherwise."""
        return await self.state.wait_for(predicate, timeout_s)

    # Faults.

    def fail(
        self,
        op: str,
        *,
        times: int = 1,
        status: int = 0,
        code: int = 0,
        text: str | None = None,
        headers: dict[str, str] | None = None,
        drop: Literal["before", "after"] | None = None,
        delay_s: float = 0.0,
    ) -> None:
        """Fail the next `times` calls of an operation.

        Args:
            op: The operation, see the class.
            times: How many calls fail.
            status: HTTP status of an answer without effect, with `code` or the raw `text`.
            code: The body's `code`.
            text: A body that is not the API's JSON.
            headers: Headers of that answer.
            drop: Cut the connection `before` or `after` the call took effect.
            delay_s: Wait first, seconds. Without another argument, the call is only slow.
        """
        failure = FeishuFailure(op, times, status, code, text, headers or {}, drop, delay_s)
        self.state.failures.append(failure)

    def stop_failing(self) -> None:
        """Forget all scripted failures."""
        self.state.failures.clear()

    def disconnect_all(self) -> None:
        """Break every long connection without a close frame."""
        for connection in self.connections:
            if connection.request.transport is not None:
                connection.request.transport.abort()

    def refuse_connects(self, code: int = 1) -> None:
        """Answer requests for an address with this code (1 = busy); 0 = serve again."""
        self.pusher.endpoint_code = code

    def refuse_handshakes(self, headers: dict[str, str] | None) -> None:
        """Refuse websockets with these headers; None = serve again."""
        self.pusher.handshake = headers

    def mute(self, *, muted: bool = True) -> None:
        """Leave pings unanswered."""
        self.pusher.mute = muted

    def allow_cardkit(self) -> None:
        """Grant the app the scope for card entities."""
        self.rest.scopes.add(SCOPE)

    def allow_names(self) -> None:
        """Grant the app the optional scopes for names of people and groups."""
        self.rest.scopes |= {
            "im:chat:readonly", "contact:contact.base:readonly", "contact:user.base:readonly",
        }  # fmt: skip

    def revoke_tokens(self) -> None:
        """Make every tenant token invalid."""
        self.rest.revoke_tokens()

    def recall(self, message: FeishuMessage) -> None:
        """Withdraw a message."""
        message.gone = True
        self.state.changed()

    def expire(self, message: FeishuMessage) -> None:
        """Make a card 14 days old."""
        message.too_old = True

    def remove_bot(self, chat: str) -> None:
        """Remove the bot from a group."""
        self.state.left.add(chat)

    def _start(self, event: FeishuEvent) -> None:
        self.state.events.append(event)
        over_http = bool(self.poster.caller.url)
        self._tasks.start_soon((self.poster if over_http else self.pusher).deliver, event)

    def _envelope(self, event_id: str, event_type: str, event: dict[str, Any]) -> dict[str, Any]:
        header = {
            "event_id": event_id, "event_type": event_type, "create_time": str(int(time.time() * 1000)),
            "token": self.poster.token if self.poster.caller.url else "", "app_id": self.app_id,
            "tenant_key": self.tenant,
        }  # fmt: skip
        return {"schema": "2.0", "header": header, "event": event}

    def _received(self, message: FeishuMessage, extra: FeishuMessageOptions) -> dict[str, Any]:
        ids = {"open_id": message.sender, "union_id": f"on_{message.sender}", "user_id": None}
        sender_type = extra.get("sender_type", "user")
        sender = {
            "sender_id": ids,
            "sender_type": sender_type,
            "tenant_key": self.tenant_of(message.sender),
        }
        told: dict[str, Any] = {
            "message_id": message.id,
            "create_time": str(int(time.time() * 1000)),
            "chat_id": message.chat,
            "chat_type": "p2p" if extra.get("private") else "group",
            "message_type": message.type,
            "content": event_content(message),
        }
        links = {
            "root_id": message.root,
            "parent_id": message.reply_to,
            "thread_id": message.thread,
        }
        told |= {name: value for name, value in links.items() if value}
        if extra.get("mentions"):
            told["mentions"] = extra["mentions"]
        return {"sender": sender, "message": told}
