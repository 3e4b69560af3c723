"""A simulated Slack on this machine: Web API, Socket Mode, response_url and file upload on 127.0.0.1.

It is independent of the SDK and as strict as Slack. It checks every request, resends events until they are
acknowledged, sends events about the bot's own messages, and refuses wrong tokens.

    async with FakeSlack() as slack:
        config = SlackConfig(base_url=slack.base_url, bot_token=slack.bot_token, app_token=slack.app_token)
        ...                                          # start what is tested
        await slack.wait_for(lambda: slack.sockets.open)
        asked = slack.mention("hello")               # a person writes in #C1
        await slack.wait_for(lambda: slack.replies(asked))
        assert slack.violations == []

People: `person`, `group`, `name_channel`, `dm`, `mention`, `say`, `bot_says`, `edit`, `delete`, `press`, `halt`,
`open_chat`, `slash`, `send_event`; `file`, `document`, `list_of_items`. What they see: `messages`, `replies`, `texts`,
`reactions`. The bot's calls: `calls`. Faults: `fail`, `disconnect_all`, `cut_all`, `go_offline`, `come_back`,
`expire_callbacks`, `sockets.refuse | mute | deaf | disabled`, `server.scopes | bot_token | app_token`,
`server.methods.page_size`. Events that Slack sent: `sockets.envelopes`. Over HTTP instead: `call_at`, `events`.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
import httpx
from aiohttp.typedefs import Middleware
from typing_extensions import Unpack

from gateway.playground import WITHIN_S
from gateway.playground.ports import keep_port
from gateway.playground.slack.events import SlackEventsSender
from gateway.playground.slack.http import (
    SlackCall,
    SlackFailure,
    SlackFailureOptions,
    SlackHttpServer,
)
from gateway.playground.slack.payloads import (
    BOT_ID,
    BOT_USER,
    TEAM,
    USER,
    callback,
    changed,
    composed,
    deleted,
    escape,
    halted,
    pressed,
    slash,
)
from gateway.playground.slack.sockets import SlackEnvelope, SlackSockets
from gateway.playground.slack.state import (
    ChannelKind,
    ResponseUrl,
    SlackFile,
    SlackMessage,
    SlackWorkspace,
)

__all__ = ["BOT_USER", "USER", "FakeSlack"]

T = TypeVar("T")

_KINDS: dict[str, ChannelKind] = {"D": "im", "M": "mpim", "G": "group"}


class FakeSlack:
    """See the module's text.

    Args:
        ack_window_s: How long an acknowledgement may take (Slack: 3 s).
        retries_s: The pauses before an event is sent again (Slack: at once, 1 min, 5 min).
        middlewares: See all requests and responses.
    """

    def __init__(
        self,
        *,
        ack_window_s: float = 1.0,
        retries_s: Sequence[float] = (0.1, 2.0, 6.0),
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self.workspace = SlackWorkspace(team=TEAM, bot_user=BOT_USER, bot_id=BOT_ID)
        self.violations: list[str] = []
        self.sockets = SlackSockets(
            ack_window_s=ack_window_s,
            retries_s=retries_s,
            violation=self.violations.append,
            changed=self._changed,
        )
        self.events = SlackEventsSender(
            patience_s=3 * ack_window_s, retries_s=retries_s, changed=self._changed
        )
        self.server = SlackHttpServer(
            self.workspace,
            self.sockets,
            violations=self.violations,
            posted=self._tell,
            edited=self._told_change,
            changed=self._changed,
            middlewares=middlewares,
        )
        self.listeners: list[Callable[[], object]] = []
        self._away = ExitStack()
        self._change = anyio.Event()
        self._tasks = anyio.create_task_group()

    # -- start and stop

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        await self.server.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        with anyio.CancelScope(shield=True):
            await self.server.stop()
        self._away.close()
        self._tasks.cancel_scope.cancel()
        return await self._tasks.__aexit__(kind, error, trace)

    @property
    def base_url(self) -> str:
        """The value for `channels.slack.base_url`."""
        return f"{self.server.url}/api/"

    def call_at(self, url: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """Deliver to a request URL instead of sockets after it has answered the challenge."""
        self.events.caller.url, self.events.caller.transport = url, transport
        self.events.verified = False
        self._tasks.start_soon(self.events.verify)

    @property
    def bot_token(self) -> str:
        """The current bot token. Set `server.bot_token` to revoke it."""
        return self.server.bot_token

    @property
    def app_token(self) -> str:
        """The current app-level token. Set `server.app_token` to revoke it."""
        return self.server.app_token

    # -- people's actions

    def dm(
        self, text: str, *, user: str = USER, thread_ts: str = "", **more: object
    ) -> SlackMessage:
        """Write to the bot in private."""
        return self._write(escape(text), f"D{user}", user, thread_ts, more)

    def person(self, user: str, **described: object) -> None:
        """Set the users.info response for a person. Other people are members of the team."""
        self.workspace.people[user] = described

    def group(self, group: str, handle: str) -> None:
        """Put a user group into the workspace."""
        self.workspace.groups[group] = handle

    def name_channel(
        self, channel: str, name: str, *, kind: ChannelKind = "channel", joined: bool = True
    ) -> None:
        """Give a channel a name. `joined`: whether the bot is in it."""
        found = self.workspace.channel(channel, kind=kind, members=set())
        found.name = name
        if not joined:
            found.members.discard(BOT_USER)

    def mention(
        self,
        text: str,
        *,
        channel: str = "C1",
        user: str = USER,
        thread_ts: str = "",
        **more: object,
    ) -> SlackMessage:
        """Write `@bot text` in a channel. Slack sends two events for it: app_mention and message."""
        return self._write(f"<@{BOT_USER}> {escape(text)}", channel, user, thread_ts, more)

    def say(
        self,
        text: str,
        *,
        channel: str = "C1",
        user: str = USER,
        thread_ts: str = "",
        **more: object,
    ) -> SlackMessage:
        """Write something.

        Args:
            text: The text as typed; Slack escapes it. `marked=True` says that it is already in Slack's mark-up.
            channel: The channel's ID. Its first letter is its kind: C public, G private, D direct, M direct with
                several. The author and the bot become members.
            user: The author's ID.
            thread_ts: The thread's root; "" = none.
            more: Further fields of the event (files=[...], subtype="file_share"); `blocks=[...]` replaces the blocks
                that the composer makes from the text.
        """
        marked = more.pop("marked", False)
        return self._write(text if marked else escape(text), channel, user, thread_ts, more)

    def file(
        self, name: str, content: bytes, mimetype: str = "application/octet-stream", **extra: object
    ) -> dict[str, object]:
        """Put a file into the workspace. Return its description in events."""
        file = SlackFile(
            id=f"F{len(self.workspace.files) + 1}UP",
            name=name,
            length=len(content),
            content=content,
            shared=True,
            mimetype=mimetype,
            extra=extra,
        )
        self.workspace.files[file.id] = file
        return {
            "id": file.id,
            "name": name,
            "mimetype": mimetype,
            "mode": "hosted",
            "size": len(content),
            **extra,
        }

    def document(
        self, mode: str, title: str, page: bytes, *, mimetype: str, **extra: object
    ) -> dict[str, object]:
        """Put a document of Slack into the workspace. It has a title, and its download is a page.

        `mode`: quip (a canvas), space (a post), email. Slack reports another size for it.
        """
        name = "-" if mode == "quip" else title
        described = self.file(name, page, mimetype, mode=mode, title=title, size=871, **extra)
        self.workspace.files[str(described["id"])].served_as = "text/html"
        return described

    def list_of_items(self, title: str, csv: bytes | None) -> dict[str, object]:
        """Put a list into the workspace. Its address returns a description, and another address returns the items."""
        about = b'{"ok":true,"list_metadata":{}}'
        described = self.file("list", about, "application/vnd.slack-list", mode="list", title=title)
        file = self.workspace.files[str(described["id"])]
        file.served_as, file.csv = "application/json", csv
        return described

    def bot_says(
        self,
        text: str,
        *,
        channel: str = "C1",
        thread_ts: str = "",
        attachments: Sequence[dict[str, Any]] = (),
        blocks: Sequence[dict[str, Any]] = (),
    ) -> SlackMessage:
        """Let another bot write something."""
        self.workspace.channel(channel, kind="channel", members={"U2OTHER"})
        said = SlackMessage(
            channel=channel, ts=self.workspace.ts(), user="U2OTHER", bot_id="B2OTHER",
            text=text, thread_ts=thread_ts, attachments=[*attachments], blocks=[*blocks],
        )  # fmt: skip
        self.workspace.posted.append(said)
        self._tell(said)
        return said

    def edit(self, message: SlackMessage, text: str, *, marked: bool = False) -> SlackEnvelope:
        """Edit a person's message. `marked` as for `say`."""
        before = message.fields()
        message.earlier.append(message.text)
        message.text = text if marked else escape(text)
        message.blocks = composed(message.text)
        return self._tell_change(message, before)

    def delete(self, message: SlackMessage) -> SlackEnvelope:
        """Delete a person's message. A message with answers leaves a tombstone."""
        if len(self.workspace.thread(message.channel, message.ts)) > 1:
            before = message.fields()
            message.subtype, message.user = "tombstone", "USLACKBOT"
            message.text, message.blocks = "This message was deleted.", []
            return self._tell_change(message, before)
        self.workspace.posted.remove(message)
        return self.send_event(deleted(message, at=self.workspace.ts(), kind=self._kind(message)))

    def preview(self, message: SlackMessage) -> SlackEnvelope:
        """Let Slack add a link preview to a message, which keeps its text."""
        page = {
            "id": 1, "title": "A page", "title_link": "https://x.test/", "text": "What the page says",
            "fallback": "X: A page", "service_name": "X", "from_url": "https://x.test/", "original_url": "https://x.test/",
        }  # fmt: skip
        return self._tell_change(message, message.fields(), attachments=[page])

    def press(self, message: SlackMessage, label: str, *, user: str = USER) -> SlackEnvelope:
        """Press a button below a message."""
        return self.act(
            message, f"parley.{[*message.buttons].index(label)}", message.buttons[label], user=user
        )

    def act(
        self, message: SlackMessage, action: str, value: str, *, user: str = USER
    ) -> SlackEnvelope:
        """Press anything below a message, even if it is no longer there."""
        answer = self._callback(message.channel, user)
        return self._send(
            "interactive", pressed(message, action, value, user=user, response_url=answer)
        )

    def interact(self, payload: dict[str, Any]) -> SlackEnvelope:
        """Use the app in any other way: a shortcut, a form."""
        return self._send("interactive", payload)

    def halt(self, message: SlackMessage, *, user: str = USER) -> SlackEnvelope:
        """Press the stop button that Slack shows for an agent in the thread of a message."""
        thread = message.thread_ts or message.ts
        streams = [m for m in self.workspace.thread(message.channel, thread) if m.streams]
        for found in streams:
            if found.stream is not None:
                found.stream.ended = "person"
        told = [found.ts for found in streams]
        at = self.workspace.ts()
        return self.send_event(halted(message.channel, thread, user=user, at=at, streams=told))

    def open_chat(self, *, user: str = USER) -> SlackEnvelope:
        """Open the private chat with the bot."""
        channel = f"D{user}"
        self.workspace.channel(channel, kind="im", members={user})
        return self.send_event(
            {"type": "app_home_opened", "tab": "messages", "channel": channel, "user": user}
        )

    def declare_agent(self) -> None:
        """Declare the app an agent, as in its settings."""
        self.workspace.is_agent = True
        self.server.scopes.add("assistant:write")

    def slash(
        self, text: str, *, channel: str = "C1", user: str = USER, command: str = "/parley"
    ) -> SlackEnvelope:
        """Type a slash command."""
        self.workspace.channel(channel, kind=_KINDS.get(channel[0], "channel"), members={user})
        answer = self._callback(channel, user)
        return self._send(
            "slash_commands",
            slash(text, channel=channel, user=user, command=command, response_url=answer),
        )

    def send_event(self, event: dict[str, Any], **more: object) -> SlackEnvelope:
        """Send the app an event. `more` goes into the payload around it."""
        return self._send("events_api", callback(event) | more)

    # -- the visible state

    def messages(self, channel: str, *, viewer: str = "") -> list[SlackMessage]:
        """Return all messages of a channel that `viewer` sees, including threads, oldest first."""
        return [
            message
            for message in self.workspace.posted
            if message.channel == channel and message.only_for in {"", viewer}
        ]

    def replies(self, message: SlackMessage) -> list[SlackMessage]:
        """Return the bot's messages in the thread of a message, or in the private chat after it."""
        return [
            found
            for found in self.messages(message.channel, viewer=message.user)
            if found.bot_id == BOT_ID
            and float(found.ts) > float(message.ts)
            and (message.channel[0] == "D" or found.thread_ts == (message.thread_ts or message.ts))
        ]

    def texts(self, channel: str, *, viewer: str = "") -> list[str]:
        """Return the texts of the bot's messages in a channel, oldest first."""
        found = self.messages(channel, viewer=viewer)
        return [message.words for message in found if message.bot_id == BOT_ID]

    def reactions(self, message: SlackMessage) -> set[str]:
        """Return the bot's reactions on a message."""
        return {name for name, users in message.reactions.items() if BOT_USER in users}

    def asked(self, method: str) -> list[SlackCall]:
        """Return the calls of one method."""
        return [call for call in self.server.calls if call.method == method]

    async def wait_for(self, found: Callable[[], T], *, timeout_s: float = WITHIN_S) -> T:
        """Wait until `found()` is true and return its value. It is called after every change."""
        with anyio.move_on_after(timeout_s):
            while not (value := found()):
                with anyio.move_on_after(0.02):
                    await self._change.wait()
            return value
        seen = [
            (m.channel, m.user, m.words[:60], sorted(m.reactions)) for m in self.workspace.posted
        ]
        raise AssertionError(f"not within {timeout_s} s; posted: {seen}; {self.violations}")

    # -- faults

    def fail(self, method: str, **how: Unpack[SlackFailureOptions]) -> None:
        """Make the next calls of a method fail. See `SlackFailure`. "response_url" and "upload" are methods too."""
        self.server.failures.setdefault(method, []).append(SlackFailure(**how))

    def stop_failing(self) -> None:
        """Forget all scripted failures."""
        self.server.failures.clear()

    async def disconnect_all(self, reason: str = "refresh_requested") -> None:
        """End every connection like Slack, with an announcement."""
        await self.sockets.disconnect_all(reason)

    def cut_all(self) -> None:
        """Break every connection without an announcement."""
        self.sockets.cut_all()

    @property
    def is_away(self) -> bool:
        """Whether it is offline."""
        return not self.server.is_listening

    async def go_offline(self) -> None:
        """Stop listening and break every connection."""
        self.sockets.cut_all()
        await self.server.stop()
        self._away.enter_context(keep_port(self.server.port))

    async def come_back(self) -> None:
        """Listen again, on the same port."""
        self._away.close()
        await self.server.start()

    def expire_callbacks(self) -> None:
        """Make every response_url half an hour old."""
        for address in self.workspace.callbacks.values():
            address.expired = True

    def send_again(self, envelope: SlackEnvelope) -> None:
        """Send an acknowledged event again, as Slack does if the acknowledgement was lost."""
        envelope.acked = False
        self._tasks.start_soon(self.sockets.deliver, envelope)

    def _changed(self) -> None:
        change, self._change = self._change, anyio.Event()
        change.set()
        for told in self.listeners:
            told()

    def push(self, kind: str, payload: dict[str, Any]) -> SlackEnvelope:
        """Send an envelope of any payload."""
        return self._send(kind, payload)

    def _send(self, kind: str, payload: dict[str, Any]) -> SlackEnvelope:
        envelope = SlackEnvelope(kind=kind, payload=payload)
        self.sockets.envelopes.append(envelope)
        over_http = bool(self.events.caller.url)
        way = self.events.deliver if over_http else self.sockets.deliver
        self._tasks.start_soon(way, envelope)
        return envelope

    def _write(
        self, text: str, channel: str, user: str, thread_ts: str, more: dict[str, object]
    ) -> SlackMessage:
        self.workspace.channel(channel, kind=_KINDS.get(channel[0], "channel"), members={user})
        ts = self.workspace.ts()
        said = SlackMessage(channel=channel, ts=ts, user=user, text=text, thread_ts=thread_ts)
        said.blocks = composed(text)
        for name in ("files", "attachments", "blocks"):
            if isinstance(given := more.get(name), list):
                setattr(said, name, [*given])
        self.workspace.posted.append(said)
        self._tell(said, **more)
        return said

    def _callback(self, channel: str, user: str) -> str:
        """Return a new response_url."""
        name = secrets.token_hex(8)
        self.workspace.callbacks[name] = ResponseUrl(channel=channel, user=user)
        return f"{self.server.url}/response/{name}"

    def _kind(self, message: SlackMessage) -> str:
        return self.workspace.channels[message.channel].kind

    def _told_change(self, message: SlackMessage, before: Mapping[str, Any]) -> None:
        self._tell_change(message, before)

    def _tell_change(
        self, message: SlackMessage, before: Mapping[str, Any], **more: object
    ) -> SlackEnvelope:
        """Send the event of an edited message."""
        self._changed()
        at, kind = self.workspace.ts(), self._kind(message)
        return self.send_event(changed(message, before, at=at, kind=kind, **more))

    def _tell(self, message: SlackMessage, **more: object) -> None:
        """Send the events of a new message: one, or two if it mentions the bot in a channel."""
        self._changed()
        channel = self.workspace.channels[message.channel]
        if message.only_for or BOT_USER not in channel.members:
            return
        event = message.fields() | self.workspace.parent(message)
        event |= {"channel": channel.id, "event_ts": message.ts} | more
        if f"<@{BOT_USER}>" in message.text and channel.kind != "im" and not message.bot_id:
            self.send_event(event | {"type": "app_mention"})
        self.send_event(event | {"channel_type": channel.kind})
