"""The console's chat in harder cases: questions, several approvals, reloads, a killed service, readers, graphs."""

import json
from pathlib import Path

from tests.browser import BrowserPage, needs_chromium
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.chat_page import count, open_chat, say
from tests.journeys.console_views import show_view, sign_in, until_shown
from tests.journeys.service import Service

pytestmark = needs_chromium

FIRST, SECOND = "/mnt/user-data/outputs/first.txt", "/mnt/user-data/outputs/second.txt"
QUESTION = {"question": "Which **city**?", "clarification_type": "missing_info"}
HOSTILE = '<img src=x onerror="document.title = 1">' + "W" * 10_000

PIPELINE = """
from operator import add
from typing import Annotated

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict


class Topic(TypedDict):
    topic: str


class State(Topic):
    lines: Annotated[list[str], add]
    todos: str
    artifacts: int


def ask(state: State):
    answer = interrupt({
        "action_requests": [{"name": "print", "args": {"topic": state["topic"]}}],
        "review_configs": [{"action_name": "print", "allowed_decisions": ["approve", "edit", "reject"]}],
    })
    decision = answer["decisions"][0]
    if decision["type"] == "edit":
        decision = decision["edited_action"]["args"]
    return {"lines": [str(decision)], "todos": "none", "artifacts": 3}


graph = StateGraph(State, input_schema=Topic).add_node(ask).add_edge(START, "ask").compile()
"""


def write(path: str) -> ToolCall:
    return ToolCall(
        "write_file", {"path": path, "content": f"In {path}."}, id=f"call_{path[-9:-4]}"
    )


def answer(request: ModelRequest) -> ModelReply:
    """Ask a question, write two files, or repeat the message."""
    said = request.last_user_text.rpartition("\n")[2]
    is_after_tools = request.messages[-1]["role"] == "tool"
    if "where" in said:
        return ModelReply(calls=(ToolCall("ask_clarification", QUESTION),))
    if "both" in said and not is_after_tools:
        return ModelReply(calls=(write(FIRST), write(SECOND)))
    if "slowly" in said:
        return ModelReply(text="one two three four", hang_after=3)
    return ModelReply(text=f"You said: {said}")


async def test_a_question_is_answered_in_words(tmp_path: Path) -> None:
    async with FakeModelServer(answer=answer) as model, open_chat(tmp_path, model) as (page, _):
        await say(page, "where")
        await page.wait_for_text("city", ".log strong")
        assert await count(page, ".offered button") == 0
        await say(page, HOSTILE)
        await page.wait_for_text("You said: <img", ".log")
        assert await page.evaluate("document.title") == "Chat – Parley"
        await page.resize(390, 800)
        assert await page.evaluate("document.documentElement.scrollWidth") == 390


async def test_of_two_actions_one_is_approved_and_one_refused(tmp_path: Path) -> None:
    guarded = {"guardrails": {"enabled": True, "ask": ["write_file"]}}
    async with (
        FakeModelServer(answer=answer) as model,
        open_chat(tmp_path, model, guarded) as (page, service),
    ):
        await say(page, "both")
        await eventually(lambda: count(page, ".asked"), lambda found: found == 2)
        await page.evaluate("location.reload()")
        await until_shown(page)
        await eventually(lambda: count(page, ".asked"), lambda found: found == 2)
        await _decide(page, "first.txt", "Approve")
        await eventually(lambda: count(page, ".asked"), lambda found: found == 1)
        await _decide(page, "second.txt", "Reject")
        await page.wait_for_text("You said: both", ".log")
        steps = "[...document.querySelectorAll('.step .pill')].map(one => one.dataset.state)"
        assert await page.evaluate(steps) == ["done", "failed"]
        thread = (await page.evaluate("location.hash")).rpartition("/")[2]
        async with service.client() as client:
            for path, status in ((FIRST, 200), (SECOND, 404)):
                found = await client.get(f"/api/threads/{thread}/artifacts{path}")
                assert found.status_code == status


async def _decide(page: BrowserPage, file: str, label: str) -> None:
    """Press a button of an approval, using only the keyboard."""
    card = f"[...document.querySelectorAll('.asked')].find(one => one.innerText.includes('{file}'))"
    button = f"[...{card}.querySelectorAll('button')].find(one => one.innerText === '{label}')"
    await eventually(lambda: page.evaluate(f"({button}.focus(), true)"))
    await page.press_enter()


async def test_a_stream_goes_on_after_reloads_other_threads_and_a_kill(tmp_path: Path) -> None:
    async with (
        FakeModelServer(answer=answer) as model,
        open_chat(tmp_path, model) as (page, service),
    ):
        await say(page, "slowly")
        await _is_told_once(page)
        talk = await page.evaluate("location.hash")
        await page.evaluate("location.reload()")
        await until_shown(page)
        await _is_told_once(page)
        await show_view(page, "#chat")
        await say(page, "another one")
        await page.wait_for_text("You said: another one", ".log")
        await show_view(page, talk)
        await _is_told_once(page)
        await service.kill()
        await page.wait_for_text("Parley does not answer", ".working")
        assert "one two three" in await page.text(".log")
        model.answer = lambda _: ModelReply(text="one two three four")
        await service.start()
        await page.wait_for_text("one two three four", ".turn.ai .markdown")
        await eventually(lambda: count(page, ".working"), lambda found: found == 0)
        assert await count(page, ".turn.ai") == await count(page, ".turn.human") == 1
        await say(page, "still there?")
        await eventually(lambda: count(page, ".turn.ai"), lambda found: found == 2)


async def _is_told_once(page: BrowserPage) -> None:
    await page.wait_for_text("one two three", ".turn.ai")
    assert (await page.text(".log")).count("one two three") == 1
    assert await count(page, ".turn.human") == 1
    assert await page.text(".working") != ""


async def test_what_could_not_be_sent_stays_and_runs_of_others_appear(tmp_path: Path) -> None:
    async with (
        FakeModelServer(answer=answer) as model,
        open_chat(tmp_path, model) as (page, service),
    ):
        await say(page, "hello")
        await page.wait_for_text("You said: hello", ".log")
        thread = (await page.evaluate("location.hash")).rpartition("/")[2]
        async with service.client() as client:
            said = {"messages": [{"role": "user", "content": "from a script"}]}
            body = {"assistant_id": "lead_agent", "input": said}
            (await client.post(f"/api/threads/{thread}/runs/wait", json=body)).raise_for_status()
        await page.wait_for_text("You said: from a script", ".log")
        await service.kill()
        await say(page, "do not lose me")
        await page.wait_for_text("Parley does not answer", ".log .error")
        typed = "document.querySelector('.compose textarea').value"
        await eventually(lambda: page.evaluate(typed), lambda text: text == "do not lose me")
        await service.start()
        await page.evaluate("document.querySelector('.compose').requestSubmit()")
        await page.wait_for_text("You said: do not lose me", ".log")
        assert await count(page, ".turn.human") == 3


async def test_a_token_that_reads_sees_the_stream_and_no_composer(tmp_path: Path) -> None:
    async with (
        FakeModelServer(answer=answer) as model,
        open_chat(tmp_path, model) as (page, service),
    ):
        await say(page, "where")
        await page.wait_for_text("city", ".log")
        await say(page, "slowly")
        await page.wait_for_text("one two three", ".log")
        talk = await page.evaluate("location.hash")
        await _become_reader(page, service)
        await show_view(page, talk)
        await page.wait_for_text("one two three", ".log")
        await page.wait_for_text("You may only read here.", ".talk")
        assert await count(page, "main button, main textarea, main select, main form") == 0
        await show_view(page, "#chat")
        await page.wait_for_text("You may only read here.", ".talk")
        assert "Write to the agent" not in await page.text("main")


async def _become_reader(page: BrowserPage, service: Service) -> None:
    async with service.client() as client:
        body = {"name": "reader", "scope": "read"}
        made = (await client.post("/api/tokens", json=body)).raise_for_status().json()
    await page.click("Sign out", "#foot")
    await sign_in(page, made["token"])
    await page.wait_for_text("Overview", "nav")


async def test_a_graph_without_messages_is_given_values_and_shows_its_own(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    graphs = {"graphs": {"pipeline": "./pipeline.py:graph"}}
    async with (
        FakeModelServer(answer=answer) as model,
        open_chat(tmp_path, model, graphs) as (page, _),
    ):
        await page.evaluate(
            "(() => { const one = document.querySelector('.compose select');"
            " one.value = [...one.options].find(option => option.text === 'pipeline').value;"
            " one.dispatchEvent(new Event('change')); })()"
        )
        asked = "document.querySelector('.compose textarea').placeholder"
        await eventually(lambda: page.evaluate(asked), lambda text: "topic" in text)
        await say(page, json.dumps({"topic": HOSTILE[:200]}))
        await page.wait_for_text("print", ".asked")
        edited = json.dumps({"topic": "roses"})
        await page.evaluate(
            f"document.querySelector('.asked textarea').value = {json.dumps(edited)}"
        )
        await page.resize(390, 800)
        assert await page.evaluate("document.documentElement.scrollWidth") == 390
        await page.click("Approve", ".asked")
        await eventually(lambda: count(page, ".asked"), lambda found: found == 0)
        values = "document.querySelector('.step[data-call=values] pre')?.textContent ?? ''"
        await eventually(lambda: page.evaluate(values), lambda shown: "roses" in shown)
        assert '"artifacts": 3' in await page.evaluate(values)
