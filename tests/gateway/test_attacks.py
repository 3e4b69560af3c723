"""Malicious requests to every route: answers have no 5xx status, stack trace, host path or secret."""

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
from httpx import Response

from gateway.langgraph.route import MAX_CONTAINERS
from gateway.runtime.request import MAX_MESSAGES
from tests.gateway.composed import TOKEN, ComposedService, composed
from tests.gateway.langgraph_server import serving

CONFIG = """
agents_api: {enabled: true}
models: [{name: m, use: "agent.models.demo:DemoChatModel", model: demo, api_key: sk-very-secret-0123456789}]
"""
ENDLESS = {"/api/channels/terminal/{session}/events", "/api/threads/{thread_id}/stream"}
MAY_BE = {501, 503}
NAMES = (
    "..",
    "../../../../etc/passwd",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "a%00b",
    "%0d%0aSet-Cookie:%20x=1",
    "' OR 1=1 --",
    "<script>alert(1)</script>",
    "x" * 3000,
)
DEEP = b'{"a":' * 2000 + b"1" + b"}" * 2000
BODIES = (
    b"",
    b"{",
    b"null",
    b"[]",
    b'"x"',
    b"\xff\xfe\x00",
    b'{"a": 1e999}',
    DEEP,
    b'{"messages":' + DEEP + b',"metadata":' + DEEP + b',"content":' + DEEP + b"}",
)
TRACES = re.compile(r"Traceback|File \\?\"|site-packages|/root/|/home/|\.py\b")


def is_harmless(answer: Response, home: Path) -> bool:
    assert answer.status_code != 429, "a rate limit interferes with this test"
    if answer.status_code >= 500 and answer.status_code not in MAY_BE:
        return False
    signs_in = (answer.request.method, answer.request.url.path) == ("POST", "/api/sessions")
    if "set-cookie" in answer.headers and not signs_in:
        return False
    if "very-secret" in answer.text or TOKEN in answer.text:
        return False
    return str(home) not in answer.text and TRACES.search(answer.text) is None


async def routes(service: ComposedService) -> list[tuple[str, str]]:
    described = service.app.openapi()["paths"]
    return [
        (method.upper(), path)
        for path, methods in described.items()
        for method in methods
        if path not in ENDLESS and not path.endswith("/stream/events")
    ]


async def asked(service: ComposedService, method: str, path: str, **more: Any) -> Response:  # noqa: ANN401 - a request
    with anyio.fail_after(20):
        return await service.client.request(method, path, **more)


async def test_no_name_in_a_path_leads_anywhere(tmp_path: Path) -> None:
    async with composed(tmp_path, CONFIG) as service:
        for method, path in await routes(service):
            if "{" not in path:
                continue
            for name in NAMES:
                spoilt = name.join(re.split(r"\{[^}]*\}", path))
                answer = await asked(service, method, spoilt, json={})
                assert is_harmless(answer, tmp_path), f"{method} {spoilt}: {answer.text[:300]}"
                assert "root:x:0:0" not in answer.text


async def test_no_request_body_breaks_a_route(tmp_path: Path) -> None:
    async with composed(tmp_path, CONFIG) as service:
        for method, path in await routes(service):
            if method in {"GET", "DELETE"}:
                continue
            real = re.sub(r"\{[^}]*\}", str(uuid4()), path)
            for body in BODIES:
                answer = await asked(
                    service,
                    method,
                    real,
                    content=body,
                    headers={"Content-Type": "application/json"},
                )
                assert is_harmless(answer, tmp_path), (
                    f"{method} {path} {body[:30]!r}: {answer.text[:300]}"
                )


async def test_tokens_in_queries_and_other_headers_are_refused(tmp_path: Path) -> None:
    async with composed(tmp_path, CONFIG) as service:
        thread = (await service.client.post("/api/threads", json={})).json()["thread_id"]
        nasty = {"limit": "9" * 30, "offset": "-1", "status": "'; DROP TABLE run; --"}
        nasty |= {"select": "__class__", "include": "ttl,../x", "before": "\x00", "action": "x"}
        nasty |= {"subgraphs": "maybe", "xray": "1e9", "namespace": "\x00.a", "key": "\x00"}
        for method, path in await routes(service):
            if method != "GET" or ("{" not in path and path != "/api/store/items"):
                continue
            real = re.sub(r"\{[^}]*\}", thread, path)
            answer = await asked(
                service, method, real, params=nasty, headers={"Last-Event-ID": "9" * 400}
            )
            assert is_harmless(answer, tmp_path), f"{method} {real}: {answer.text[:300]}"


async def test_a_clients_data_does_not_become_an_option_of_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = (await api.sdk.threads.create())["thread_id"]
        other = (await api.sdk.threads.create())["thread_id"]
        evil = {
            "thread_id": other,
            "run_id": str(uuid4()),
            "checkpoint_ns": "x",
            "__pregel_checkpointer": "x",
            "__take_injected": "x",
            "langgraph_auth_user": "root",
        }
        for where in ({"config": {"configurable": evil}}, {"context": evil}):
            body = {"assistant_id": "looking", "input": {"n": 1}, **where}
            answer = await api.http.post(f"/threads/{thread}/runs/wait", json=body)
            seen = answer.json()["seen"]
            assert seen["context"].keys() == {"thread_id", "run_id"}
            assert seen["context"]["thread_id"] == thread
        assert (await api.sdk.threads.get(other))["values"] is None


async def test_a_request_has_a_limited_number_of_messages(tmp_path: Path) -> None:
    """Each message is converted in the event loop. Without a limit, 3.3 million empty ones (10 MB) took a minute."""
    most: list[object] = [""] * MAX_MESSAGES
    many = {"messages": [*most, ""]}
    async with serving(tmp_path) as api:
        thread = (await api.http.post("/threads", json={})).json()["thread_id"]
        fits = {"assistant_id": "agent", "input": {"messages": most}}
        assert (await api.http.post(f"/threads/{thread}/runs/wait", json=fits)).status_code == 200
        for path, body in (
            ("runs", {"input": many}),
            ("runs", {"command": {"update": many}}),
            ("runs", {"command": {"update": [["messages", [*most, ""]]]}}),
            ("runs", {"command": {"goto": [{"node": "agent", "input": many}]}}),
            ("state", {"values": many}),
        ):
            whole = {"assistant_id": "agent", **body}
            refused = await api.http.post(f"/threads/{thread}/{path}", json=whole)
            assert (refused.status_code, "10,000 messages" in refused.text) == (422, True), path


async def test_filters_of_events_and_states_are_limited(tmp_path: Path) -> None:
    """Without a limit, a filter of a million namespaces took a third of a second for each event."""
    many = ["values"] * 101
    async with serving(tmp_path) as api:
        thread = (await api.http.post("/threads", json={})).json()["thread_id"]
        filters: list[dict[str, Any]] = [
            {"channels": many},
            {"namespaces": [[]] * 101},
            {"namespaces": [many]},
        ]
        for wanted in filters:
            body = {"channels": ["values"], **wanted}
            refused = await api.http.post(f"/threads/{thread}/stream/events", json=body)
            assert (refused.status_code, "at most 100" in refused.text) == (400, True), wanted
        bodies: dict[str, dict[str, Any]] = {"history": {}, "state/checkpoint": {"checkpoint": {}}}
        for path, body in bodies.items():
            whole = {"select": many, **body}
            refused = await api.http.post(f"/threads/{thread}/{path}", json=whole)
            assert refused.status_code == 422, path
        body = {"select": many[:100]}
        assert (await api.http.post(f"/threads/{thread}/history", json=body)).status_code == 200


async def test_json_has_a_limited_number_of_lists_and_objects(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        for part in (b"[]", b"{}"):
            body = b'{"metadata":{"a":[' + b",".join([part] * MAX_CONTAINERS) + b"]}}"
            refused = await api.http.post("/threads", content=body)
            assert (refused.status_code, "1,000,000" in refused.text) == (422, True)


async def test_json_may_be_nested_so_deep_and_no_deeper(tmp_path: Path) -> None:
    def nested(levels: int) -> bytes:
        return b'{"metadata":' + b'{"a":' * levels + b"1" + b"}" * levels + b"}"

    async with serving(tmp_path) as api:
        fine = await api.http.post("/threads", content=nested(99))
        assert fine.status_code == 200
        deep = await api.http.post("/threads", content=nested(100))
        assert deep.status_code == 422
        assert "deeper than 100" in deep.json()["detail"]
        wide = b'{"metadata":{"a":[' + b",".join([b"{}"] * 500) + b"]}}"
        assert (await api.http.post("/threads", content=wide)).status_code == 200
        thread = fine.json()["thread_id"]
        command = b'{"id":1,"method":"run.start","params":' + nested(100) + b"}"
        assert (
            await api.http.post(f"/threads/{thread}/commands", content=command)
        ).status_code == 422
