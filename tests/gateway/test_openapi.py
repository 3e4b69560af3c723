"""The OpenAPI document is correct: every request that it allows gets an answer that it describes."""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from random import SystemRandom
from typing import Any
from urllib.parse import quote

import anyio
import httpx
import pytest
import requests  # type: ignore[import-untyped, unused-ignore]
import schemathesis
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import APIOperation, Case
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gateway.auth import OPEN_PATHS
from tests.gateway.composed import ComposedService, composed

ENDLESS = {
    ("GET", "/api/channels/terminal/{session}/events"),
    ("GET", "/api/threads/{thread_id}/stream"),
    ("GET", "/api/events"),
    ("POST", "/api/threads/{thread_id}/stream/events"),
}
"""Streams that last until the client leaves. Other tests read them."""

LONG = os.environ.get("PARLEY_TEST_LONG") == "1"
EXAMPLES = 150 if LONG else 3
GENERATED = settings(
    max_examples=EXAMPLES,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
SEED = int(os.environ.get("PARLEY_FUZZ_SEED") or SystemRandom().randrange(10**6))
MOST_PLACES = 20
"""Maximum number of changed variants of a generated request, for its path, its query and its body."""

ANSWER_S = 60.0  # converting a document starts a process whose imports take seconds
PARTS = {"method", "url", "params", "headers", "cookies", "json", "data", "files"}
TRUTHS = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
MAY_BE_5XX = {501, 503}
"""Requests that are unsupported on purpose, and requests that are not supported yet, with their documentation."""

WITHOUT_BODY = {
    "post /webhooks/{channel}",
    "post /api/channels/{name}/restart",
    "post /api/channels/outbox/{delivery_id}/resend",
    "post /api/channels/outbox/{delivery_id}/restore",
    "post /api/channels/outbox/resend",
    "post /api/channels/outbox/discard",
    "post /api/channels/outbox/restore",
    "post /api/channels/pairings/{code}/approve",
    "post /api/conversations/{thread_id}/takeover",
    "post /api/messages/refused/{row_id}/answer",
    "post /api/messages/refused/{row_id}/let-in",
    "post /api/tokens/{name}/rotate",
    "post /api/sessions",
    "post /api/sessions/links",
    "post /api/messages/{row_id}/stop",
    "post /api/models/{name}/test",
    "post /api/memory/reload",
    "post /api/schedules/{schedule_id}/run",
    "post /api/threads/{thread_id}/copy",
    "post /api/threads/{thread_id}/runs/{run_id}/cancel",
}
"""Operations that change something and describe no body."""

CONFIG = "agents_api: {enabled: true}"


class Network:
    """The running service, seen by a client with the token."""

    def __init__(self, portal: BlockingPortal, service: ComposedService) -> None:
        self._portal = portal
        self._client = service.client
        self.described = service.app.openapi()
        self.known = portal.call(self._made)

    async def _made(self) -> dict[str, str]:
        """Create one object of each kind. Return the values of path parameters."""
        thread = (await self._client.post("/api/threads", json={})).json()["thread_id"]
        said = {"messages": [{"role": "user", "content": "hi"}]}
        body = {"assistant_id": "lead_agent", "input": said}
        await self._client.post(f"/api/threads/{thread}/runs/wait", json=body)
        [run] = (await self._client.get(f"/api/threads/{thread}/runs")).json()
        state = (await self._client.get(f"/api/threads/{thread}/state")).json()
        made = await self._client.post("/api/assistants", json={"graph_id": "lead_agent"})
        return {
            "thread_id": thread,
            "run_id": run["run_id"],
            "checkpoint_id": state["checkpoint_id"],
            "assistant_id": made.json()["assistant_id"],
        }

    def send(self, case: Case[Any]) -> httpx.Response:
        asked: dict[str, Any] = case.as_transport_kwargs("http://127.0.0.1:8001")
        return self.ask({key: value for key, value in asked.items() if key in PARTS})

    def ask(self, asked: dict[str, Any]) -> httpx.Response:
        """Send a request, given in the parts that `requests` takes."""
        answer: httpx.Response = self._portal.call(self._send, asked)
        return answer

    async def _send(self, asked: dict[str, Any]) -> httpx.Response:
        wire: Any = requests.Request(**asked).prepare()
        request = self._client.build_request(
            wire.method, wire.url, headers=dict(wire.headers), content=wire.body
        )
        request.headers.update(self._client.headers)
        request.headers.pop("authorization", None)
        with anyio.fail_after(ANSWER_S):
            return await self._client.send(request)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    folder = tmp_path_factory.mktemp("openapi")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(composed(folder, CONFIG)) as service,
    ):
        yield Network(portal, service)


# The service draws random numbers on its own thread, which Hypothesis attributes to the strategy.
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")
@pytest.mark.timeout(7200 if LONG else 300)
def test_every_answer_is_one_that_is_described(network: Network) -> None:
    schema = schemathesis.openapi.from_dict(network.described)
    tried = 0
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]
        if (operation.method.upper(), operation.path) not in ENDLESS:
            try_out(network, operation)
            tried += 1
    assert tried > 100


def try_out(network: Network, operation: APIOperation[Any, Any, Any, Any]) -> None:
    """Send some requests that the description allows, with existing ids. `SEED` reproduces them."""
    kept = network.known.keys() if operation.method.upper() == "DELETE" else set()

    @seed(SEED)
    @GENERATED
    @given(case=operation.as_strategy())
    def one(case: Case[Any]) -> None:
        for name in case.path_parameters.keys() & network.known.keys() - kept:
            case.path_parameters[name] = network.known[name]
        answer = network.send(case)
        asked = f"PARLEY_FUZZ_SEED={SEED} {case.method} {case.formatted_path} {case.body!r:.500}: {answer.text:.500}"
        assert answer.status_code < 500 or answer.status_code in MAY_BE_5XX, asked
        case.validate_response(answer, checks=TRUTHS)

    one()


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")
@pytest.mark.timeout(7200 if LONG else 300)
def test_no_value_that_no_database_holds_is_an_error_of_the_server(network: Network) -> None:
    """Puts half a surrogate pair, and integers beyond 64 bits, into each place of a request in turn."""
    schema = schemathesis.openapi.from_dict(network.described)
    tried = 0
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]
        if (operation.method.upper(), operation.path) not in ENDLESS:
            tried += put_odd_values(network, operation)
    assert tried > 500


def put_odd_values(network: Network, operation: APIOperation[Any, Any, Any, Any]) -> int:
    """Send requests with odd values. Return their number."""
    kept = network.known.keys() if operation.method.upper() == "DELETE" else set()
    tried = 0

    @seed(SEED)
    @GENERATED
    @given(case=operation.as_strategy())
    def one(case: Case[Any]) -> None:
        nonlocal tried
        for name in case.path_parameters.keys() & network.known.keys() - kept:
            case.path_parameters[name] = network.known[name]
        for asked in _with_odd_values(case):
            tried += 1
            answer = network.ask(asked)
            told = f"PARLEY_FUZZ_SEED={SEED} {asked!r:.700}: {answer.text:.500}"
            assert answer.status_code < 500 or answer.status_code in MAY_BE_5XX, told
            assert "The database is not available" not in answer.text, told

    one()
    return tried


def _with_odd_values(case: Case[Any]) -> Iterator[dict[str, Any]]:
    """Yield requests, each of which differs in one place."""
    sound: dict[str, Any] = case.as_transport_kwargs("http://127.0.0.1:8001")
    sound = {key: value for key, value in sound.items() if key in PARTS}
    for params in islice(_odd(case.path_parameters, ()), MOST_PLACES):
        path = case.path.format_map({key: quote(str(one), "") for key, one in params.items()})
        yield {**sound, "url": f"http://127.0.0.1:8001{path}"}
    # A URL cannot contain half a surrogate pair, because it consists of bytes that are read as UTF-8.
    for query in islice(_odd(case.query, ()), MOST_PLACES):
        yield {**sound, "params": query}
    if case.media_type == "application/json":
        for body in islice(_odd(case.body, ("a\ud800",)), MOST_PLACES):
            yield {**sound, "json": body, "data": None}


def _odd(value: Any, texts: Sequence[str]) -> Iterator[Any]:  # noqa: ANN401 - JSON
    """Yield copies of a JSON value, each with an odd value in one place. `texts`: values that replace texts."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from ({**value, key: odd} for odd in _odd(one, texts))
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from ([*value[:place], odd, *value[place + 1 :]] for odd in _odd(one, texts))
    else:
        yield from () if isinstance(value, bool | int | float) else texts
        yield from () if isinstance(value, bool | str) else (2**63, -(2**63) - 1)


def test_the_token_and_the_guards_answers_are_described_everywhere(network: Network) -> None:
    assert network.described["security"] == [{"bearer": []}, {"key": []}]
    for path, operations in network.described["paths"].items():
        for method, operation in operations.items():
            answers = set(operation["responses"])
            assert {"413", "421", "429", "503"} <= answers, f"{method} {path}"
            assert "404" in answers or "{" not in path, f"{method} {path}"
            assert ("401" in answers) == (operation.get("security") != []), f"{method} {path}"
            assert (operation.get("security") == []) == (path in OPEN_PATHS), f"{method} {path}"
            assert operation.get("summary"), f"{method} {path}"


def test_errors_of_malformed_requests_name_fields_but_no_values(network: Network) -> None:
    async def put() -> httpx.Response:
        body = {"mcp_servers": {"x": {"env": {"KEY": ["hush-hush"]}}}}
        return await network._client.put("/api/mcp/config", json=body)

    answer = network._portal.call(put)
    assert answer.status_code == 422
    (field,) = answer.json()["detail"]
    assert field["loc"] == ["body", "mcp_servers", "x", "env", "KEY"]
    assert set(field) == {"loc", "msg", "type"}
    assert "hush-hush" not in answer.text


def test_numbers_that_no_database_holds_are_refused(network: Network) -> None:
    paths = [
        "/api/channels/conversations?offset=9223372036854775808",
        "/api/channels/inbox?before=9223372036854775808",
        "/api/channels/outbox?limit=1001",
    ]
    for path in paths:
        answer = network._portal.call(network._client.get, path)
        assert answer.status_code == 422, path
    huge = {"offset": 2**63}
    for path in ("/api/threads/search", "/api/store/items/search", "/api/assistants/search"):
        answer = network._portal.call(partial(network._client.post, path, json=huge))
        assert answer.status_code == 422, path
        assert "offset" in answer.text


def test_bodies_and_answers_of_the_langgraph_api_are_described(network: Network) -> None:
    document = network.described
    run = document["paths"]["/api/threads/{thread_id}/runs/stream"]["post"]
    body = run["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/RunCreate"}
    assert "assistant_id" in document["components"]["schemas"]["RunCreate"]["required"]
    assert list(run["responses"]["200"]["content"]) == ["text/event-stream"]
    assert run["responses"]["200"]["headers"].keys() == {"Location", "Content-Location"}
    command = document["paths"]["/api/threads/{thread_id}/commands"]["post"]
    assert command["requestBody"]["required"]
    listing = document["paths"]["/api/threads/{thread_id}/runs"]["get"]["parameters"]
    assert {one["name"] for one in listing} == {"thread_id", "limit", "offset", "status", "select"}
    undescribed = {
        f"{method} {path}"
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if method in {"post", "put", "patch"} and not operation.get("requestBody")
    }
    assert undescribed == WITHOUT_BODY
