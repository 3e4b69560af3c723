"""The fake Telegram server is as strict as Telegram."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx
import pytest

from gateway.playground.telegram.chats import TelegramUpload, Wire
from gateway.playground.telegram.checks import violations
from gateway.playground.telegram.server import TelegramServer

GROUP = -1001234567890


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as server:
        server.dm("hello")
        yield server


@pytest.fixture
async def client(telegram: TelegramServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=f"{telegram.base_url}{telegram.token}/", timeout=5.0
    ) as client:
        yield client


async def ask(client: httpx.AsyncClient, method: str, **arguments: Wire) -> dict[str, Any]:
    form = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in arguments.items()
    }
    answer: dict[str, Any] = (await client.post(method, data=form)).json()
    return answer


@pytest.mark.parametrize(
    ("method", "arguments", "problem"),
    [
        ("sendMesage", {}, "sendMesage: unknown method"),
        ("sendMessage", {"chat_id": "1"}, "missing argument text"),
        ("sendMessage", {"chat_id": "1", "text": "x", "silent": "true"}, "unknown argument silent"),
        ("getUpdates", {"timeout": "1.5"}, "timeout: 1.5 is not Integer"),
        ("getUpdates", {"timeout": "soon"}, "timeout: not Integer"),
        ("getUpdates", {"allowed_updates": '["message", 7]'}, "allowed_updates[1]: 7"),
        (
            "sendMessage",
            {"chat_id": 1, "text": "x", "reply_parameters": '{"message_id": "7"}'},
            "reply_parameters.message_id: '7' is not Integer",
        ),
        (
            "sendMessage",
            {"chat_id": 1, "text": "x", "entities": '[{"type": "bold", "offset": 0}]'},
            "entities[0]: length is missing",
        ),
        (
            "sendMessage",
            {"chat_id": 1, "text": "x", "link_preview_options": '{"off": true}'},
            "unknown field off",
        ),
        (
            "setMyCommands",
            {"commands": "[]", "scope": '{"type": "chat", "chat": 7}'},
            "scope: none of",
        ),
        ("sendDocument", {"chat_id": 1}, "missing argument document"),
    ],
)
def test_invalid_calls_are_violations(method: str, arguments: dict[str, Any], problem: str) -> None:
    assert any(problem in found for found in violations(method, arguments, ()))


@pytest.mark.parametrize(
    ("method", "arguments", "files"),
    [
        ("getMe", {}, ()),
        ("sendMessage", {"chat_id": "-100", "text": "12"}, ()),
        ("sendMessage", {"chat_id": -100, "text": "x", "protect_content": True}, ()),
        ("sendDocument", {"chat_id": "1"}, ("document",)),
        ("setMyCommands", {"commands": '[{"command": "a", "description": "b"}]'}, ()),
    ],
)
def test_valid_calls_pass(method: str, arguments: dict[str, Any], files: tuple[str, ...]) -> None:
    assert violations(method, arguments, files) == []


async def test_violations_are_collected(
    telegram: TelegramServer, client: httpx.AsyncClient
) -> None:
    await ask(client, "sendMessage", chat_id=1001, text="x", colour="red")
    assert telegram.violations == ["sendMessage: unknown argument colour"]


@pytest.mark.parametrize(
    ("arguments", "description"),
    [
        ({"chat_id": 31337, "text": "x"}, "Bad Request: chat not found"),
        ({"chat_id": 1001, "text": " \n"}, "Bad Request: message text is empty"),
        ({"chat_id": 1001, "text": "😀" * 2049}, "Bad Request: message is too long"),
        (
            {
                "chat_id": 1001,
                "text": "ab",
                "entities": [{"type": "bold", "offset": 1, "length": 2}],
            },
            "Bad Request: can't parse entities: entity is out of the text",
        ),
        (
            {
                "chat_id": 1001,
                "text": "😀",
                "entities": [{"type": "bold", "offset": 1, "length": 1}],
            },
            "Bad Request: can't parse entities: entity splits a character",
        ),
        (
            {"chat_id": 1001, "text": "x", "message_thread_id": 5},
            "Bad Request: message thread not found",
        ),
        (
            {"chat_id": 1001, "text": "x", "reply_parameters": {"message_id": 77}},
            "Bad Request: message to be replied not found",
        ),
    ],
)
async def test_limits_are_kept(
    telegram: TelegramServer,
    client: httpx.AsyncClient,
    arguments: dict[str, Any],
    description: str,
) -> None:
    answer = await ask(client, "sendMessage", **arguments)
    assert (answer["ok"], answer["error_code"]) == (False, 400)
    assert answer["description"] == description
    assert telegram.answers(1001) == []


async def test_updates_stay_until_confirmed(
    telegram: TelegramServer, client: httpx.AsyncClient
) -> None:
    first = await ask(client, "getUpdates")
    again = await ask(client, "getUpdates")
    assert first == again
    update_id = first["result"][0]["update_id"]
    after = await ask(client, "getUpdates", offset=update_id + 1)
    assert after["result"] == []
    assert telegram.confirmed == [update_id]


async def test_the_older_poller_is_ended(
    telegram: TelegramServer, client: httpx.AsyncClient
) -> None:
    telegram.confirm(10**9)
    answers: list[dict[str, Any]] = []

    async def older() -> None:
        answers.append(await ask(client, "getUpdates", timeout=30))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(older)
        await telegram.wait_for(lambda: telegram.calls("getUpdates"))
        newer = await ask(client, "getUpdates", timeout=0)
    assert answers[0]["error_code"] == 409
    assert newer["ok"]


async def test_a_webhook_refuses_polls(client: httpx.AsyncClient) -> None:
    await ask(client, "setWebhook", url="https://example.org/hook")
    assert (await ask(client, "getUpdates"))["error_code"] == 409
    await ask(client, "deleteWebhook")
    assert (await ask(client, "getUpdates"))["ok"]


@pytest.mark.parametrize(("token", "status"), [("1:wrong", 401), ("nonsense", 404)])
async def test_wrong_tokens_are_refused(
    telegram: TelegramServer, client: httpx.AsyncClient, token: str, status: int
) -> None:
    answer = await client.post(f"{telegram.base_url}{token}/getMe")
    assert (answer.status_code, answer.json()["ok"]) == (status, False)


async def test_privacy_hides_what_is_not_for_the_bot(telegram: TelegramServer) -> None:
    before = telegram.backlog
    telegram.say(GROUP, "just chatting about @parley_bot_fan")
    telegram.say(GROUP, "/roll@other_bot")
    assert telegram.backlog == before
    telegram.mention(GROUP, "hi")
    telegram.say(GROUP, "/help")
    telegram.say(GROUP, "/help@parley_bot")
    assert telegram.backlog == before + 3
    telegram.privacy = False
    telegram.say(GROUP, "just chatting")
    assert telegram.backlog == before + 4


async def test_groups_take_so_many_a_minute(
    telegram: TelegramServer, client: httpx.AsyncClient
) -> None:
    telegram.mention(GROUP, "hi")
    answers = [await ask(client, "sendMessage", chat_id=GROUP, text="x") for _ in range(21)]
    assert [answer["ok"] for answer in answers] == [True] * 20 + [False]
    assert answers[-1]["parameters"]["retry_after"] > 0


async def test_own_messages_can_be_edited_and_deleted(
    telegram: TelegramServer, client: httpx.AsyncClient
) -> None:
    sent = (await ask(client, "sendMessage", chat_id=1001, text="one"))["result"]["message_id"]
    this = {"chat_id": 1001, "message_id": sent}
    same = await ask(client, "editMessageText", text="one", **this)
    assert "message is not modified" in same["description"]
    assert (await ask(client, "editMessageText", text="two", **this))["ok"]
    assert (telegram.answers(1001)[0].text, telegram.answers(1001)[0].history) == ("two", ["one"])
    reaction = [{"type": "emoji", "emoji": "👀"}]
    assert (await ask(client, "setMessageReaction", reaction=reaction, **this))["ok"]
    assert telegram.answers(1001)[0].reactions == ["👀"]
    assert (await ask(client, "deleteMessage", **this))["ok"]
    assert telegram.answers(1001) == []
    gone = await ask(client, "editMessageText", text="three", **this)
    assert gone["description"] == "Bad Request: message to edit not found"
    assert telegram.violations == []


async def test_files_can_be_fetched(telegram: TelegramServer, client: httpx.AsyncClient) -> None:
    telegram.send_file(1001, TelegramUpload(name="a.txt", content=b"words"))
    update = (await ask(client, "getUpdates"))["result"][-1]
    file_id = update["message"]["document"]["file_id"]
    path = (await ask(client, "getFile", file_id=file_id))["result"]["file_path"]
    fetched = await client.get(f"{telegram.base_file_url}{telegram.token}/{path}")
    assert fetched.content == b"words"
    wrong = await client.get(f"{telegram.base_file_url}1:wrong/{path}")
    assert wrong.status_code == 404


async def test_breaks_on_demand(telegram: TelegramServer, client: httpx.AsyncClient) -> None:
    telegram.fail("getMe", status=503, times=2)
    telegram.fail("*", drop="before")
    telegram.fail("sendMessage", drop="after")
    assert [(await ask(client, "getMe"))["error_code"] for _ in range(2)] == [503, 503]
    for _ in range(2):
        with pytest.raises(httpx.TransportError):
            await ask(client, "sendMessage", chat_id=1001, text="x")
    assert len(telegram.answers(1001)) == 1
    assert (await ask(client, "getMe"))["ok"]


async def test_missing_updates_are_reported(telegram: TelegramServer) -> None:
    with pytest.raises(AssertionError, match="nothing came within"):
        await telegram.wait_for(lambda: telegram.answers(1001), timeout_s=0.05)


KEYS = [[{"text": "Yes", "callback_data": "yes"}, {"text": "No", "callback_data": "no"}]]


async def test_buttons_are_pressed_and_the_press_waits_for_its_answer(
    telegram: TelegramServer, client: httpx.AsyncClient
) -> None:
    markup = {"inline_keyboard": KEYS}
    sent = await ask(client, "sendMessage", chat_id=1001, text="?", reply_markup=markup)
    assert sent["result"]["reply_markup"] == markup
    query = telegram.press(1001, "No")
    update = (await ask(client, "getUpdates"))["result"][-1]["callback_query"]
    assert (update["id"], update["data"], update["message"]["text"]) == (query, "no", "?")
    telegram.press(1001, "Yes", inaccessible=True)
    old = (await ask(client, "getUpdates"))["result"][-1]["callback_query"]["message"]
    assert set(old) == {"chat", "message_id", "date"}
    assert old["date"] == 0
    assert (await ask(client, "answerCallbackQuery", callback_query_id=query, text="ok"))["ok"]
    assert telegram.queries[query].answer == "ok"
    telegram.queries[query].asked_at -= 60.0
    for late in (query, "nonsense"):
        answer = await ask(client, "answerCallbackQuery", callback_query_id=late)
        assert answer["description"].startswith("Bad Request: query is too old")
    this = {"chat_id": 1001, "message_id": sent["result"]["message_id"]}
    assert (await ask(client, "editMessageReplyMarkup", **this))["ok"]
    assert telegram.labels(1001) == []
    assert telegram.violations == []


@pytest.mark.parametrize(
    "rows",
    [
        [[{"text": "x", "callback_data": ""}]],
        [[{"text": "x", "callback_data": "é" * 33}]],
        [[{"text": "", "callback_data": "x"}]],
        [[{"text": "x", "callback_data": "x"}] * 9],
        [[{"text": "x", "callback_data": "x"}]] * 101,
    ],
)
async def test_wrong_buttons_are_refused(client: httpx.AsyncClient, rows: Wire) -> None:
    answer = await ask(
        client, "sendMessage", chat_id=1001, text="?", reply_markup={"inline_keyboard": rows}
    )
    assert answer["error_code"] == 400


async def test_drafts_are_for_private_chats_and_have_numbers(
    telegram: TelegramServer, client: httpx.AsyncClient
) -> None:
    telegram.mention(GROUP, "hi")
    draft = {"chat_id": 1001, "draft_id": 7, "text": "Hm", "can_stop": True}
    assert (await ask(client, "sendMessageDraft", **draft))["ok"]
    assert [(d.number, d.text, d.can_stop) for d in telegram.drafts] == [(7, "Hm", True)]
    for wrong in ({"draft_id": 0}, {"chat_id": GROUP}, {"text": "x" * 4097}):
        assert (await ask(client, "sendMessageDraft", **(draft | wrong)))["error_code"] == 400
    telegram.stop_draft()
    update = (await ask(client, "getUpdates"))["result"][-1]
    assert update["stopped_message_generation"]["draft_id"] == 7
    assert telegram.answers(1001) == []


@pytest.mark.parametrize(
    "rich",
    [
        {},
        {"markdown": "# x"},
        {"blocks": []},
        {"blocks": [{"type": "divider"}]},
        {"blocks": [{"type": "heading", "text": "x"}]},
        {"blocks": [{"type": "photo", "photo": "x"}]},
        {"blocks": [{"type": "paragraph", "text": {"type": "mention", "text": "x"}}]},
        {"blocks": [{"type": "paragraph", "text": "x" * 32_769}]},
        {"blocks": [{"type": "paragraph", "text": "x"}] * 501},
        {"blocks": [{"type": "table", "cells": [[{"text": "x"}]]}]},
        {"blocks": [{"type": "list", "items": [{"label": "-", "blocks": []}]}]},
    ],
)
async def test_wrong_blocks_are_refused(client: httpx.AsyncClient, rich: Wire) -> None:
    answer = await ask(client, "sendRichMessage", chat_id=1001, rich_message=rich)
    assert answer["error_code"] == 400


async def test_a_classic_server_has_neither_drafts_nor_blocks() -> None:
    async with TelegramServer(classic=True) as telegram:
        url = f"{telegram.base_url}{telegram.token}/"
        async with httpx.AsyncClient(base_url=url) as client:
            for method in ("sendMessageDraft", "sendRichMessage"):
                answer = await ask(client, method, chat_id=1001, draft_id=1)
                assert (answer["error_code"], answer["ok"]) == (404, False)


async def test_an_album_is_as_many_messages(
    telegram: TelegramServer, client: httpx.AsyncClient
) -> None:
    uploads = [TelegramUpload(name=f"{n}.pdf", content=b"%PDF") for n in range(2)]
    telegram.send_album(1001, uploads, caption="both", kind="document")
    first, second = (u["message"] for u in (await ask(client, "getUpdates"))["result"][-2:])
    assert first["media_group_id"] == second["media_group_id"]
    assert (first["caption"], "caption" in second) == ("both", False)


async def test_edits_count_in_groups(telegram: TelegramServer, client: httpx.AsyncClient) -> None:
    telegram.mention(GROUP, "hi")
    sent = await ask(client, "sendMessage", chat_id=GROUP, text="0")
    this = {"chat_id": GROUP, "message_id": sent["result"]["message_id"]}
    edits = [await ask(client, "editMessageText", text=f"{n + 1}", **this) for n in range(20)]
    assert [edit["ok"] for edit in edits] == [True] * 19 + [False]
    assert edits[-1]["error_code"] == 429
