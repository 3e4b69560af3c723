"""Every request of the stock SDK gets an answer, never a 404 for the route or a 5xx other than 501."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import orjson

from tests.gateway.langgraph_server import ApiServer, serving

REQUESTS = Path(__file__).parents[1] / "data" / "langgraph-sdk-requests.txt"
LINE = re.compile(
    r"^(?P<name>\S+)\s+(?P<method>GET|POST|PUT|PATCH|DELETE)\s+(?P<path>/\S*)"
    r"(?:\s+\?(?P<query>\{.*?\}))?(?:\s+body=(?P<body>.*?))?(?:\s+hdr=(?P<headers>\{.*\}))?$"
)


@dataclass(frozen=True)
class SdkRequest:
    name: str
    method: str
    path: str
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


def surface() -> Iterator[SdkRequest]:
    for line in REQUESTS.read_text().splitlines():
        match = LINE.match(line)
        if match:
            yield SdkRequest(
                match["name"],
                match["method"],
                match["path"],
                ast.literal_eval(match["query"] or "{}"),
                orjson.loads(match["body"]) if match["body"] else None,
                ast.literal_eval(match["headers"] or "{}"),
            )


def filled(value: Any, names: dict[str, str]) -> Any:  # noqa: ANN401 - JSON
    """Replace the recorded placeholders with real ids."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [filled(one, names) for one in value]
    if isinstance(value, dict):
        return {key: filled(one, names) for key, one in value.items()}
    return value


async def test_every_recorded_request_has_its_route(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        answered = {asked.name: await status_of(api, asked) for asked in surface()}
    assert len(answered) > 60
    assert not {name: s for name, s in answered.items() if s in {405, 500, 502, 503}}
    assert not {name for name, status in answered.items() if status == 501}
    refused = {name: s for name, s in answered.items() if 400 <= s < 500}
    assert refused == {
        "client.assistants.set_latest": 404,  # version 3 of an assistant that has two
        "client.assistants.delete": 409,  # the graph's default assistant
        "assistants.delete(threads)": 409,
        "client.crons.delete": 422,  # the recorded ID is invalid
        "client.crons.update": 422,
        "client.runs.cancel_many": 422,  # neither run ids nor a status
        "runs.cancel_many": 422,  # run ids and a status
        "runs.create(None)": 400,  # a resume without a thread
        "runs.stream(thread_id=None)": 422,  # its webhook is not a public address
        "threads.create(full)": 400,  # there is no node "n"
        "threads.update_state(full)": 400,  # no node "n" either
    }, "; ".join(f"{n}={s}" for n, s in refused.items())


async def status_of(api: ApiServer, asked: SdkRequest) -> int:
    """Send the request with its own new thread, run and checkpoint. Return the status."""
    thread = (await api.sdk.threads.create())["thread_id"]
    run = await api.sdk.runs.create(thread, "agent", input={"n": 1})
    await api.sdk.runs.join(thread, run["run_id"])
    if "cancel" in asked.path:
        run = await api.sdk.runs.create(thread, "slow", input={"n": 1})
    state = await api.sdk.threads.get_state(thread)
    names = {
        "TID": str(uuid4()) if asked.name == "threads.create(full)" else thread,
        "RID": run["run_id"],
        "C": state["checkpoint_id"],
        "CK": state["checkpoint_id"],
    }
    path = "/".join(names.get(step, step) for step in asked.path.split("/"))
    with anyio.fail_after(20):
        async with api.http.stream(
            asked.method,
            path,
            params=filled(asked.query, names),
            json=filled(asked.body, names) if asked.body is not None else None,
            headers=asked.headers,
        ) as response:
            return response.status_code
