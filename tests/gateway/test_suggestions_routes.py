"""Suggested questions over HTTP."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.scripted import ScriptedChatModel, registered
from tests.gateway.composed import composed

PATH = "/api/threads/6f8a1a6e-25a6-4a6f-8a63-3e3a2c1f0d11/suggestions"
TALK = [
    {"role": "user", "content": "How do tides work?"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "The moon pulls."}]},
]


@asynccontextmanager
async def asking(folder: Path, model: ScriptedChatModel) -> AsyncIterator[httpx.AsyncClient]:
    with registered(model) as keys:
        async with composed(folder, json.dumps({"models": [keys]})) as service:
            yield service.client


async def test_the_first_list_of_texts_is_what_is_suggested(tmp_path: Path) -> None:
    said = '<think>[“x”]</think>Sure [1]:\n```json\n["And the sun?", "Why twice a day?", "And lakes?"]\n```'
    model = ScriptedChatModel.playing(said)
    async with asking(tmp_path, model) as client:
        answer = await client.post(PATH, json={"messages": TALK, "n": 2})
    assert (answer.status_code, answer.json()) == (
        200,
        {"suggestions": ["And the sun?", "Why twice a day?"]},
    )
    system, shown = model.prompts[0]
    assert "exactly 2 strings" in system.text
    assert json.loads(shown.text) == [
        {"role": "user", "content": "How do tides work?"},
        {"role": "assistant", "content": "The moon pulls."},
    ]


@pytest.mark.parametrize("said", [RuntimeError("key sk-1 is wrong"), "I have none.", "[1, 2]", ""])
async def test_a_failure_suggests_nothing(tmp_path: Path, said: Exception | str) -> None:
    async with asking(tmp_path, ScriptedChatModel.playing(said)) as client:
        answer = await client.post(PATH, json={"messages": TALK})
        assert (answer.status_code, answer.json()) == (200, {"suggestions": []})


async def test_no_suggestions_are_requested_without_a_count_or_messages(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing('["a"]')
    async with asking(tmp_path, model) as client:
        empty = await client.post(PATH, json={"messages": [{"role": "user", "content": []}]})
        assert empty.json() == {"suggestions": []}
        unknown = await client.post(PATH, json={"messages": TALK, "model_name": "nobody"})
        assert unknown.json() == {"suggestions": []}
    assert model.prompts == []


@pytest.mark.parametrize("wrong", [{"n": 0}, {"n": 6}, {"messages": "hello"}, {"messages": [{}]}])
async def test_errors_of_malformed_requests_name_the_field(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    async with asking(tmp_path, ScriptedChatModel.playing()) as client:
        answer = await client.post(PATH, json={"messages": TALK, **wrong})
        assert answer.status_code == 422
        assert next(iter(wrong)) in answer.json()["detail"][0]["loc"]
        assert (await client.post("/api/threads/x/suggestions", json={})).status_code == 422
