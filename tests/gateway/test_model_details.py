"""Models over REST: who uses them, what they cost, and a test call with the provider's own error message."""

import json
from pathlib import Path
from typing import Any

from tests.fakes.model import FakeModelServer, ModelReply
from tests.gateway.composed import ComposedService, composed

SENTENCE = "Your credit balance is too low."


def config(model: FakeModelServer) -> str:
    entry = {
        "use": "langchain_openai:ChatOpenAI",
        "api_key": "sk-secret-key",
        "base_url": model.base_url,
        "max_retries": 0,
    }
    return json.dumps(
        {
            "models": [
                {**entry, "name": "big", "model": "gpt-4o", "price": {"input": 2.5, "output": 10}},
                {**entry, "name": "small", "model": "small-1"},
                {**entry, "name": "broken", "model": "x", "use": "nowhere:Model"},
            ],
            "channels": {
                "slack": {
                    "enabled": True,
                    "bot_token": "xoxb-1",
                    "app_token": "xapp-1",
                    "base_url": "http://127.0.0.1:1",
                },
                "telegram": {
                    "enabled": True,
                    "bot_token": "1:a",
                    "base_url": "http://127.0.0.1:1",
                    "session": {"context": {"agent_name": "poet"}},
                },
            },
        }
    )


async def details(service: ComposedService) -> dict[str, Any]:
    answer = await service.client.get("/api/model-details")
    assert answer.status_code == 200, answer.text
    assert "sk-secret" not in answer.text
    return {one["name"]: one for one in answer.json()["models"]}


async def test_each_model_shows_its_size_price_and_users(tmp_path: Path) -> None:
    async with FakeModelServer() as model, composed(tmp_path, config(model)) as service:
        await service.client.post("/api/agents", json={"name": "poet", "model": "small"})
        await service.client.post("/api/agents", json={"name": "clerk"})
        found = await details(service)
        assert found["big"]["price"] == {"input": 2.5, "cached_input": None, "output": 10.0}
        assert found["big"]["context_tokens"] == 128_000
        assert (found["big"]["agents"], found["big"]["channels"]) == (
            ["clerk"],
            ["slack", "terminal"],
        )
        assert (found["small"]["agents"], found["small"]["channels"]) == (["poet"], ["telegram"])
        assert (found["small"]["price"], found["small"]["context_tokens"]) == (None, None)
        assert "nowhere" in found["broken"]["problem"]
        assert [one["is_default"] for one in found.values()] == [True, False, False]
        assert model.requests == []


async def test_a_test_call_shows_the_answer_or_the_providers_sentence(tmp_path: Path) -> None:
    async with FakeModelServer() as model, composed(tmp_path, config(model)) as service:
        model.reply("ok")
        answered = (await service.client.post("/api/models/small/test")).json()
        assert (answered["answer"], answered["error"]) == ("ok", "")
        assert answered["input_tokens"] > 0
        usage = (await service.client.get("/api/usage", params={"by": "model"})).json()
        assert [one["model"] for one in usage["totals"]] == ["small"]
        model.reply(ModelReply(status=402, error_text=SENTENCE))
        refused = (await service.client.post("/api/models/small/test")).json()
        assert refused["answer"] is None
        assert SENTENCE in refused["error"]
        broken = (await service.client.post("/api/models/broken/test")).json()
        assert "nowhere" in broken["error"]
        assert (await service.client.post("/api/models/none/test")).status_code == 404
        audit = (service.services.config.audit_file).read_text()
        assert "POST /api/models/{name}/test" in audit
        assert SENTENCE in audit
