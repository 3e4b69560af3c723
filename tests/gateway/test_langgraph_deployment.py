"""The factory and application that `langgraph.json` names, on a server that opens and closes the application."""

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

ROOT = Path(__file__).parents[2]
ADMIN_TOKEN = "the-token-of-the-operator"

CHILD = """
import anyio, httpx, importlib, json, sys
from langgraph.checkpoint.memory import InMemorySaver

named = json.load(open("langgraph.json"))

def found(path):
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)

async def ask(factory, saver, words):
    config = {"configurable": {"thread_id": "0b63b403-e0ed-40b2-9589-e740f38a62a3"}}
    async with factory(config) as graph:
        graph = graph.copy(update={"checkpointer": saver})
        state = await graph.ainvoke({"messages": [{"role": "user", "content": words}]}, config)
    return len(state["messages"]), str(state["messages"][-1].content)

async def list_models(app, token):
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        headers = {"Authorization": f"Bearer {token}"}
        response = await client.get("/api/models", headers=headers)
        return response.status_code, response.json()

async def main(has_server):
    factory, app = found(named["graphs"]["lead_agent"]), found(named["http"]["app"])
    saver, answers, responses = InMemorySaver(), [], []
    if has_server:
        async with app.router.lifespan_context(app):
            answers.append(await ask(factory, saver, "hello"))
            answers.append(await ask(factory, saver, "and again"))
            responses = [await list_models(app, token) for token in (sys.argv[2], "wrong")]
    else:
        answers.append(await ask(factory, saver, "hello"))
    print(json.dumps([answers, responses]))

anyio.run(main, sys.argv[1] == "server")
"""


@pytest.mark.parametrize("kind", ["server", "alone"])
async def test_another_server_can_serve_the_agent(tmp_path: Path, kind: str) -> None:
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("PARLEY_")},
        "PARLEY_HOME": str(tmp_path),
        "PARLEY_ADMIN_TOKEN": ADMIN_TOKEN,
        "PYTHONPATH": str(ROOT),
    }
    with anyio.fail_after(150):
        done = await anyio.run_process(
            [sys.executable, "-c", CHILD, kind, ADMIN_TOKEN],
            cwd=ROOT,
            env=environment,
            check=False,
            stderr=subprocess.PIPE,
        )
    assert done.returncode == 0, done.stderr.decode()
    answers, responses = json.loads(done.stdout)
    assert [count for count, _ in answers] == ([2, 4] if kind == "server" else [2])
    assert all("demo" in text for _, text in answers[:1])
    if kind == "server":
        (status, models), (refused, _) = responses
        assert (status, refused) == (200, 401)
        assert [model["name"] for model in models["models"]] == ["demo"]
