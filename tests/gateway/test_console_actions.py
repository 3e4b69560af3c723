"""Every request of the console except GET is documented, permitted only to its scope, and in the audit log."""

import json
import re
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from bus.messages import InboundMessage, ReplyTarget, Sender
from bus.platform import Disposition
from store.api_tokens import TokenScope
from store.conversations import ConversationKey
from tests.agent.test_skill_installer import version
from tests.eventually import eventually
from tests.fakes.mcp_stdio import stdio_server
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.gateway.composed import ComposedService
from tests.gateway.test_configuration_routes import edited
from tests.gateway.test_delivery_routes import failed_rows
from tests.gateway.test_sessions import browser, sign_in
from tests.gateway.test_skills_routes import sent
from tests.journeys.service import with_model

JS = Path(__file__).parent / "js"
NODE = shutil.which("node")
SCOPES: tuple[TokenScope, ...] = ("read", "operator", "admin")
NOWHERE = "http://127.0.0.1:1"
CHAT = {"channel": "terminal", "chat": "c1"}
FACTS = "/api/memory/facts?scope=default"
OUTBOX = "/api/channels/outbox"
RUN = {"assistant_id": "lead_agent", "input": {"messages": [{"role": "user", "content": "hi"}]}}

Request = dict[str, Any]
"""Arguments of httpx: `url`, and the body as `json` or `files`."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """The running service, with an answered message of `u1` in a private chat and in a group."""

    service: ComposedService
    thread: str = ""
    last_number: int = 0

    def number(self) -> int:
        """Return a new unique number."""
        self.last_number += 1
        return self.last_number

    async def make(self, method: str, url: str, **more: Any) -> Any:  # noqa: ANN401 - JSON
        """Send a request as administrator. Return the answer."""
        response = await self.service.client.request(method, url, **more)
        assert response.status_code < 400, f"{method} {url}: {response.text}"
        return response.json() if response.content else None

    async def receive(
        self, user: str, chat: str, *, is_private: bool = True, text: str = "hello"
    ) -> Disposition:
        """Receive a message from a person."""
        bus, number = self.service.services.bus, self.number()
        assert bus is not None
        message = InboundMessage(
            event_id=f"e{number}",
            message_id=f"i{number}",
            key=ConversationKey(channel="terminal", workspace="local", chat=chat),
            reply_target=ReplyTarget(chat=chat),
            sender=Sender(user_id=user, name=user),
            text=text,
            is_private=is_private,
            is_addressed=True,
        )
        return await bus.intake.receive(message)

    async def rows(self, url: str) -> list[dict[str, Any]]:
        """Return the rows of a list."""
        return list((await self.make("GET", url))["rows"])

    async def stranger(self) -> dict[str, Any]:
        """Let a person ask for access. Return the access request."""
        user = f"stranger{self.number()}"
        assert await self.receive(user, user) is Disposition.PAIRING
        [asked] = [
            row for row in await self.rows("/api/channels/pairings") if row["user_id"] == user
        ]
        return asked

    async def new_thread(self) -> str:
        """Create a thread of the API."""
        return str((await self.make("POST", "/api/threads", json={}))["thread_id"])

    async def new(self, url: str, key: str, body: object) -> str:
        """Create an object. Return the value of `key`."""
        return str((await self.make("POST", url, json=body))[key])


@dataclass(frozen=True, slots=True)
class Action:
    """A request of the console.

    Attributes:
        scope: The lowest scope that permits it.
        prepare: Prepares what the request changes, and returns the request.
        changes: Whether it changes something and so is in the audit log.
    """

    scope: TokenScope
    prepare: Callable[[Stage], Awaitable[Request]]
    changes: bool = True


def always(url: str, **more: object) -> Callable[[Stage], Awaitable[Request]]:
    """Return the same request each time."""

    async def prepare(_: Stage) -> Request:
        return {"url": url, **more}

    return prepare


def in_conversation(part: str, **more: object) -> Callable[[Stage], Awaitable[Request]]:
    """Return a request for the conversation."""

    async def prepare(stage: Stage) -> Request:
        return {"url": f"/api/conversations/{stage.thread}/{part}", **more}

    return prepare


def in_thread(part: str = "", **more: object) -> Callable[[Stage], Awaitable[Request]]:
    """Return a request for a new thread."""

    async def prepare(stage: Stage) -> Request:
        return {"url": f"/api/threads/{await stage.new_thread()}{part}", **more}

    return prepare


async def answered_message(stage: Stage) -> Request:
    [row, *_] = await stage.rows("/api/messages?state=answered&person=u1")
    return {"url": f"/api/messages/{row['id'].removeprefix('m')}/repeat", "json": {}}


async def running_message(stage: Stage) -> Request:
    assert await stage.receive("u1", "c2", text="slowly") is Disposition.ACCEPTED
    [row] = await eventually(lambda: stage.rows("/api/messages?state=running"))
    return {"url": f"/api/messages/{row['id'].removeprefix('m')}/stop"}


def with_failed(part: str) -> Callable[[Stage], Awaitable[Request]]:
    """Return a request for a delivery that failed."""

    async def prepare(stage: Stage) -> Request:
        [number] = await failed_rows(stage.service, 1, error=f"lost {stage.number()}")
        return {"url": f"{OUTBOX}/{number}{part}"}

    return prepare


async def discarded_delivery(stage: Stage) -> Request:
    found = await with_failed("")(stage)
    await stage.make("DELETE", found["url"])
    return {"url": f"{found['url']}/restore"}


async def discarded_batch(stage: Stage) -> Request:
    await with_failed("")(stage)
    done = await stage.make("POST", f"{OUTBOX}/discard?channel=gone")
    return {"url": f"{OUTBOX}/restore?batch={done['batch']}"}


async def asked_access(stage: Stage) -> Request:
    return {"url": f"/api/channels/pairings/{(await stage.stranger())['code']}/approve"}


async def approved_access(stage: Stage) -> Request:
    asked = await stage.stranger()
    await stage.make("POST", f"/api/channels/pairings/{asked['code']}/approve")
    return {"url": f"/api/channels/pairings/terminal/{asked['user_id']}"}


async def refused_message(stage: Stage) -> Request:
    asked = await stage.stranger()
    [row] = await eventually(
        lambda: stage.rows(f"/api/messages?state=refused&person={asked['user_id']}")
    )
    return {"url": f"/api/messages/refused/{row['id'].removeprefix('r')}/let-in"}


async def answerable_message(stage: Stage) -> Request:
    let_in = (await refused_message(stage))["url"]
    await stage.make("POST", let_in)
    return {"url": let_in.replace("/let-in", "/answer")}


async def waiting_broadcast(stage: Stage) -> Request:
    key = f"b{stage.number()}"
    await stage.make("POST", "/api/channels/broadcast", json={"text": "x", "key": key})
    return {"url": f"/api/channels/broadcast/{key}"}


async def fact(stage: Stage) -> Request:
    made = await stage.make("POST", FACTS, json={"content": f"fact {stage.number()}"})
    return {"url": FACTS.replace("?", f"/{made['facts'][-1]['id']}?")}


async def changed_fact(stage: Stage) -> Request:
    return {**await fact(stage), "json": {"content": "another"}}


async def schedule(stage: Stage) -> Request:
    return {"url": f"/api/schedules/{await stage.new('/api/schedules', 'id', SCHEDULE)}"}


async def changed_schedule(stage: Stage) -> Request:
    return {**await schedule(stage), "json": {"enabled": False}}


async def schedule_to_run(stage: Stage) -> Request:
    return {"url": f"{(await schedule(stage))['url']}/run"}


async def running_run(stage: Stage) -> Request:
    path = f"/api/threads/{await stage.new_thread()}/runs"
    said = {"messages": [{"role": "user", "content": "slowly"}]}
    return {"url": f"{path}/{await stage.new(path, 'run_id', {**RUN, 'input': said})}/cancel"}


async def archive(stage: Stage) -> Request:
    return {"url": "/api/skills/install", "json": await sent(stage.service)}


async def changed_skill(stage: Stage) -> Request:
    body = {"content": version(f"{stage.number()}.")}
    await stage.make("PUT", "/api/skills/custom/poems", json=body)
    return {"url": "/api/skills/custom/poems/rollback", "json": {"history_index": -1}}


async def token(stage: Stage) -> Request:
    name = await stage.new("/api/tokens", "name", {**TOKEN, "name": f"t{stage.number()}"})
    return {"url": f"/api/tokens/{name}"}


async def token_to_rotate(stage: Stage) -> Request:
    return {"url": f"{(await token(stage))['url']}/rotate"}


async def session(stage: Stage) -> Request:
    await stage.make("POST", "/api/sessions/links")
    [link, *_] = [row for row in await stage.rows("/api/sessions") if row["is_link"]]
    return {"url": f"/api/sessions/{link['id']}"}


async def changed_configuration(stage: Stage) -> Request:
    shown = await stage.make("GET", "/api/configuration/file")
    body = {"text": f"{shown['text']}\n# {stage.number()}\n", "version": shown["version"]}
    return {"url": "/api/configuration/file", "json": body}


async def saved_configuration(stage: Stage) -> Request:
    saved = await stage.make("PUT", **await changed_configuration(stage))
    return {"url": "/api/configuration/undo", "json": {"version": saved["version"]}}


AGENT = {"name": "poet"}
SCHEDULE = {**CHAT, "prompt": "the news", "kind": "cron", "expression": "0 9 * * *"}
SERVER = {"type": "http", "url": f"{NOWHERE}/mcp"}
TOKEN = {"name": "ci", "scope": "read"}
CHECKED = {"text": "{}\n"}

# The order matters: some actions need what earlier ones created.
ACTIONS = {
    "POST /api/sessions": Action("read", always("/api/sessions")),
    "DELETE /api/sessions/current": Action("read", always("/api/sessions/current")),
    "POST /api/assistants/search": Action(
        "read", always("/api/assistants/search", json={}), changes=False
    ),
    "POST /api/threads/search": Action(
        "read", always("/api/threads/search", json={}), changes=False
    ),
    "POST /api/threads/{thread_id}/history": Action(
        "read", in_thread("/history", json={}), changes=False
    ),
    "POST /api/markdown": Action(
        "read", always("/api/markdown", json={"texts": ["x"]}), changes=False
    ),
    "POST /api/threads": Action("operator", always("/api/threads", json={})),
    "PATCH /api/threads/{thread_id}": Action(
        "operator", in_thread(json={"metadata": {"source": "console"}})
    ),
    "DELETE /api/threads/{thread_id}": Action("operator", in_thread()),
    "POST /api/threads/{thread_id}/copy": Action("operator", in_thread("/copy")),
    "POST /api/threads/{thread_id}/uploads": Action(
        "operator", in_thread("/uploads", files={"files": ("a.txt", b"x")})
    ),
    "POST /api/threads/{thread_id}/runs": Action("operator", in_thread("/runs", json=RUN)),
    "POST /api/threads/{thread_id}/runs/{run_id}/cancel": Action("operator", running_run),
    "POST /api/messages/{row_id}/stop": Action("operator", running_message),
    "POST /api/messages/{row_id}/repeat": Action("operator", answered_message),
    "POST /api/messages/refused/{row_id}/let-in": Action("operator", refused_message),
    "POST /api/messages/refused/{row_id}/answer": Action("operator", answerable_message),
    "POST /api/conversations/{thread_id}/takeover": Action("operator", in_conversation("takeover")),
    "POST /api/conversations/{thread_id}/takeover/messages": Action(
        "operator", in_conversation("takeover/messages", json={"text": "Ann here"})
    ),
    "DELETE /api/conversations/{thread_id}/takeover": Action(
        "operator", in_conversation("takeover")
    ),
    "POST /api/channels/{name}/restart": Action(
        "operator", always("/api/channels/telegram/restart")
    ),
    "POST /api/channels/broadcast": Action(
        "operator", always("/api/channels/broadcast", json={"text": "x"})
    ),
    "DELETE /api/channels/broadcast/{key}": Action("operator", waiting_broadcast),
    "POST /api/channels/outbox/{delivery_id}/resend": Action("operator", with_failed("/resend")),
    "DELETE /api/channels/outbox/{delivery_id}": Action("operator", with_failed("")),
    "POST /api/channels/outbox/{delivery_id}/restore": Action("operator", discarded_delivery),
    "POST /api/channels/outbox/resend": Action("operator", always(f"{OUTBOX}/resend?channel=gone")),
    "POST /api/channels/outbox/discard": Action(
        "operator", always(f"{OUTBOX}/discard?channel=gone")
    ),
    "POST /api/channels/outbox/restore": Action("operator", discarded_batch),
    "POST /api/channels/pairings/{code}/approve": Action("operator", asked_access),
    "DELETE /api/channels/pairings/{channel}/{user_id}": Action("operator", approved_access),
    "POST /api/memory/facts": Action("operator", always(FACTS, json={"content": "one"})),
    "PATCH /api/memory/facts/{fact_id}": Action("operator", changed_fact),
    "DELETE /api/memory/facts/{fact_id}": Action("operator", fact),
    "DELETE /api/memory": Action("operator", always("/api/memory?scope=default")),
    "PATCH /api/people/{channel}/{user_id}": Action(
        "operator", always("/api/people/terminal/u1", json={"timezone": "UTC"})
    ),
    "PATCH /api/rooms/{channel}/{chat}": Action(
        "operator", always("/api/rooms/terminal/g1", json={"model": None})
    ),
    "POST /api/schedules": Action("operator", always("/api/schedules", json=SCHEDULE)),
    "PATCH /api/schedules/{schedule_id}": Action("operator", changed_schedule),
    "DELETE /api/schedules/{schedule_id}": Action("operator", schedule),
    "POST /api/schedules/{schedule_id}/run": Action("operator", schedule_to_run),
    "POST /api/models/{name}/test": Action("operator", always("/api/models/fake/test")),
    "POST /api/agents": Action("admin", always("/api/agents", json=AGENT)),
    "PUT /api/agents/{name}": Action("admin", always("/api/agents/poet", json={"soul": "Rhyme."})),
    "DELETE /api/agents/{name}": Action("admin", always("/api/agents/poet")),
    "POST /api/mcp/tools/{tool}/call": Action(
        "admin", always("/api/mcp/tools/hotel_link/call", json={"arguments": {}})
    ),
    "PUT /api/mcp/config/{name}": Action("admin", always("/api/mcp/config/inn", json=SERVER)),
    "PATCH /api/mcp/config/{name}": Action(
        "admin", always("/api/mcp/config/inn", json={"enabled": False})
    ),
    "DELETE /api/mcp/config/{name}": Action("admin", always("/api/mcp/config/inn")),
    "POST /api/skills/install": Action("admin", archive),
    "PUT /api/skills/{name}": Action("admin", always("/api/skills/poems", json={"enabled": True})),
    "PUT /api/skills/custom/{name}": Action(
        "admin", always("/api/skills/custom/poems", json={"content": version("Two.")})
    ),
    "POST /api/skills/custom/{name}/rollback": Action("admin", changed_skill),
    "POST /api/tokens": Action("admin", always("/api/tokens", json=TOKEN)),
    "POST /api/tokens/{name}/rotate": Action("admin", token_to_rotate),
    "DELETE /api/tokens/{name}": Action("admin", token),
    "POST /api/sessions/links": Action("admin", always("/api/sessions/links")),
    "DELETE /api/sessions/{session_id}": Action("admin", session),
    "POST /api/configuration/check": Action(
        "admin", always("/api/configuration/check", json=CHECKED), changes=False
    ),
    "POST /api/configuration/check/key": Action(
        "admin",
        always("/api/configuration/check/key", json={**CHECKED, "key": "log_level", "value": "x"}),
        changes=False,
    ),
    "PUT /api/configuration/file": Action("admin", changed_configuration),
    "POST /api/configuration/undo": Action("admin", saved_configuration),
}
"""All actions of the console, by method and path in the OpenAPI document."""


@pytest.mark.skipif(NODE is None, reason="needs node (Debian, Ubuntu: apt-get install nodejs)")
@pytest.mark.skipif(
    not (JS / "node_modules" / ".ready").exists(), reason="needs `make peers-js` (npm)"
)
async def test_the_actions_are_all_that_the_page_can_send() -> None:
    assert NODE is not None
    with anyio.fail_after(300):
        read = await anyio.run_process([NODE, str(JS / "console_requests.mjs")])
    found = {f"{method} /{path}": where for method, path, where in json.loads(read.stdout)}
    known = {re.sub(r"\{\w+\}", "{}", action) for action in ACTIONS}
    assert {action: where for action, where in found.items() if action not in known} == {}
    assert known - found.keys() == set()


def hang_if_slow(request: ModelRequest) -> ModelReply:
    is_slow = "slowly" in request.last_user_text
    return ModelReply(text="one two", hang_after=1 if is_slow else None)


async def test_each_action_is_described_needs_its_scope_and_is_audited(tmp_path: Path) -> None:
    """Try all actions with one service, because some of them depend on others."""
    async with FakeModelServer(answer=hang_if_slow) as model:
        config = {
            **with_model(model.base_url),
            "title": {"enabled": False},
            "skills": {"scan": "none"},
            "channels": {
                "terminal": {"dm_policy": "pairing", "allowed_users": ["u1"]},
                "telegram": {"enabled": True, "bot_token": "1:x", "base_url": f"{NOWHERE}/bot"},
            },
        }
        servers = {"mcpServers": {"hotel": stdio_server("mcp_interactive", "stdio")}}
        (tmp_path / "extensions_config.json").write_text(json.dumps(servers))
        async with edited(tmp_path, json.dumps(config)) as (service, _):
            described = service.app.openapi()["paths"]
            stage = Stage(service=service)
            for chat in ("c1", "g1"):
                received = await stage.receive("u1", chat, is_private=chat == "c1")
                assert received is Disposition.ACCEPTED
            rows = await eventually(
                lambda: stage.rows("/api/messages?state=answered"), lambda found: len(found) == 2
            )
            [stage.thread] = [row["thread_id"] for row in rows if row["chat"] == "c1"]
            await eventually(lambda: stage.rows("/api/rooms?kind=group"))
            await eventually(lambda: stage.rows("/api/people"))
            tokens = {
                scope: await stage.new("/api/tokens", "token", {"name": scope, "scope": scope})
                for scope in SCOPES
            }
            for name, action in ACTIONS.items():
                method, _, path = name.partition(" ")
                assert method.lower() in described[path], name
                await _try(stage, name, action, tokens)


async def _try(stage: Stage, name: str, action: Action, tokens: dict[TokenScope, str]) -> None:
    """Send an action's request with each scope that does not permit it, then with the scope that does."""
    request = await action.prepare(stage)
    log = stage.service.services.config.audit_file
    method = name.partition(" ")[0]
    for scope in SCOPES[: SCOPES.index(action.scope) + 1]:
        async with browser(stage.service) as client:
            client.headers["X-CSRF-Token"] = await sign_in(client, tokens[scope])
            if name == "POST /api/sessions":
                client.headers["Authorization"] = f"Bearer {tokens[scope]}"
            before = len(log.read_bytes().splitlines())
            response = await client.request(method, **request)
        if scope != action.scope:
            assert response.status_code == 403, f"{name}: {response.text}"
            assert f"scope `{scope}`" in response.json()["detail"], name
            continue
        assert response.status_code < 400, f"{name}: {response.text}"
        assert '"success":false' not in response.text, f"{name}: {response.text}"
        entries = [json.loads(line) for line in log.read_bytes().splitlines()[before:]]
        assert len(entries) == action.changes, name
        for entry in entries:
            assert entry["who"].endswith(f"token {scope}"), name
            target = response.request.url.raw_path.decode()
            assert (entry["action"], entry["target"]) == (name, target)
            assert entry["status"] == response.status_code, name
