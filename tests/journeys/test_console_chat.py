"""The console's chat in a real browser with the real service: a person talks to an agent and a graph's questions."""

import json
from pathlib import Path

from agent.locales.en import ENGLISH
from agent.locales.zh import CHINESE
from tests.browser import BrowserPage, needs_chromium
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.chat_page import open_chat, say

pytestmark = needs_chromium

HOSTILE = '<img src=x onerror="document.title = 1"><script>document.title = 2</script>'
REPORT = "/mnt/user-data/outputs/report.txt"

PLANS: dict[str, tuple[ModelReply | ToolCall, ...]] = {
    "look around": (ToolCall("ls", {"path": "/mnt/user-data/uploads"}),),
    "write it": (
        ToolCall("write_file", {"path": REPORT, "content": "All is well."}),
        ToolCall("present_files", {"filepaths": [REPORT]}),
    ),
    "which color": (
        ToolCall(
            "ask_clarification",
            {
                "question": "Red or blue?",
                "clarification_type": "missing_info",
                "options": ["red", "blue"],
            },
        ),
    ),
    "make a plan": (
        ToolCall(
            "write_todos",
            {"todos": [{"id": "1", "title": "Ask a helper", "status": "in_progress"}]},
        ),
        ToolCall(
            "task",
            {
                "description": "ask around",
                "prompt": "find it",
                "subagent_type": "general-purpose",
            },
        ),
    ),
    "go on forever": (ModelReply(text="one two three four", hang_after=3),),
    "in bold": (ModelReply(text=f"This is **bold**. {HOSTILE}"),),
}
"""The model's actions, by words in the message."""


def answer(request: ModelRequest) -> ModelReply:
    """Take the steps that the last message requests, then repeat it."""
    said = request.last_user_text.rpartition("\n")[2]  # Earlier lines are about files.
    steps = next((one for words, one in PLANS.items() if words in said), ())
    roles = [message["role"] for message in reversed(request.messages)]
    taken = roles[: roles.index("user")].count("assistant")
    if taken >= len(steps):
        return ModelReply(text=f"You said: {said}")
    step = steps[taken]
    return ModelReply(calls=(step,)) if isinstance(step, ToolCall) else step


async def test_a_person_talks_to_the_agent_in_the_page(tmp_path: Path) -> None:
    """Check a whole conversation with one service and one browser, because they take seconds to start."""
    guarded = {"guardrails": {"enabled": True, "ask": ["write_file"]}}
    async with (
        FakeModelServer(answer=answer) as model,
        open_chat(tmp_path, model, guarded) as (page, _),
    ):
        await _an_answer_is_rendered_and_runs_no_script(page)
        await _a_tool_step_and_a_dropped_file_are_shown(page)
        await _an_approval_lets_a_file_be_written_and_linked(page)
        await _an_offered_answer_is_a_button(page)
        await _a_message_is_edited_and_forked(page)
        await _the_plan_and_a_subagent_are_shown(page)
        await _a_run_is_stopped_and_found_again(page)
        await _it_fits_on_a_phone(page)
        assert page.errors == []


async def test_a_chinese_page_asks_for_an_approval_in_chinese(tmp_path: Path) -> None:
    guarded = {"guardrails": {"enabled": True, "ask": ["write_file"]}}
    async with (
        FakeModelServer(answer=answer) as model,
        open_chat(tmp_path, model, guarded) as (page, _),
    ):
        await say(page, "write it")
        await page.wait_for_text(ENGLISH.approval_needed, ".asked")
        await page.evaluate("localStorage.setItem('parley.language', 'zh')")
        await page.evaluate("location.hash = '#chat'; location.reload()")
        await page.wait_for_text("给智能体写消息", ".log")
        await say(page, "write it")
        await page.wait_for_text(CHINESE.approval_needed, ".asked")
        assert ENGLISH.approval_needed not in await page.text(".asked")
        assert page.errors == []


async def _an_answer_is_rendered_and_runs_no_script(page: BrowserPage) -> None:
    await say(page, "in bold")
    await page.wait_for_text("bold", ".turn.ai .markdown strong")
    assert HOSTILE in await page.text(".turn.ai")
    await page.wait_for_text("in bold", ".threads [aria-current]")
    assert await page.evaluate("document.title") == "Chat – Parley"


async def _a_tool_step_and_a_dropped_file_are_shown(page: BrowserPage) -> None:
    await page.evaluate(
        "(() => { const data = new DataTransfer(); data.items.add(new File(['1,2'], 'numbers.csv'));"
        " document.querySelector('.talk').dispatchEvent(new DragEvent('drop',"
        " {dataTransfer: data, bubbles: true, cancelable: true})); })()"
    )
    await page.wait_for_text("numbers.csv", ".compose .files")
    await say(page, "look around")
    await page.wait_for_text("You said: look around", ".log")
    assert "numbers.csv" in await page.text(".turn.human:nth-of-type(3) .files")
    assert "done" in await page.text(".step summary")
    await page.evaluate("document.querySelector('.step').open = true")
    await page.wait_for_text("numbers.csv", ".step .result")


async def _an_approval_lets_a_file_be_written_and_linked(page: BrowserPage) -> None:
    await say(page, "write it")
    await page.wait_for_text("All is well.", ".asked")
    await page.click("Approve", ".asked")
    await page.wait_for_text("You said: write it", ".log")
    await page.wait_for_text("report.txt", ".artifacts")
    fetched = "fetch(document.querySelector('.artifacts a').href).then(one => one.text())"
    assert await page.evaluate(fetched) == "All is well."


async def _an_offered_answer_is_a_button(page: BrowserPage) -> None:
    await say(page, "which color")
    await page.wait_for_text("Red or blue?", ".log")
    await page.click("blue", ".offered")
    await page.wait_for_text("You said: blue", ".log")


async def _a_message_is_edited_and_forked(page: BrowserPage) -> None:
    before = await page.evaluate("location.hash")
    await _edit(page, "blue", "green")
    await page.wait_for_text("You said: green", ".log")
    assert "You said: blue" not in await page.text(".log")
    assert await page.evaluate("location.hash") == before
    await _edit(page, "green", "violet", fork=True)
    await page.wait_for_text("You said: violet", ".log")
    assert "You said: green" not in await page.text(".log")
    assert await page.evaluate("location.hash") != before
    await page.evaluate(f"location.hash = {json.dumps(before)}")
    await page.wait_for_text("You said: green", ".log")
    to_end = "(log => log.scrollHeight - log.scrollTop - log.clientHeight)(document.querySelector('.log'))"
    await eventually(lambda: page.evaluate(f"{to_end} < 60"))


async def _edit(page: BrowserPage, old: str, new: str, *, fork: bool = False) -> None:
    last = "[...document.querySelectorAll('.turn.human')].at(-1)"
    await eventually(lambda: page.evaluate(f"{last}.innerText.includes({json.dumps(old)})"))
    await eventually(lambda: page.evaluate(f"({last}.querySelector('button').click(), true)"))
    await page.wait_for_text("Edit the message", ".turn form")
    await page.evaluate("document.querySelector('.turn textarea').select()")
    await page.type(new)
    if fork:
        await page.evaluate("document.querySelector('.turn input[type=checkbox]').click()")
    await page.click("Send", ".turn")


async def _the_plan_and_a_subagent_are_shown(page: BrowserPage) -> None:
    await say(page, "make a plan")
    await page.wait_for_text("You said: make a plan", ".log")
    assert "Ask a helper" in await page.text(".plan")
    steps = "[...document.querySelectorAll('.step summary')].map(one => one.innerText).join()"
    assert "task ask around done" in " ".join((await page.evaluate(steps)).split())
    results = "[...document.querySelectorAll('.step .result')].map(one => one.textContent).join()"
    assert "You said: find it" in await page.evaluate(results)


async def _a_run_is_stopped_and_found_again(page: BrowserPage) -> None:
    await page.click("New conversation", "main")
    await page.wait_for_text("Write to the agent.", ".log")
    await say(page, "go on forever")
    await page.wait_for_text("one two three", ".turn.ai")
    talk = await page.evaluate("location.hash")
    await page.click("Overview", "nav")
    await page.wait_for_text("Overview", "main")
    await page.evaluate(f"location.hash = {json.dumps(talk)}")
    await page.wait_for_text("one two three", ".turn.ai")
    await page.click("Stop", ".compose")
    await eventually(lambda: page.evaluate("!document.querySelector('.working')"))
    await say(page, "still there?")
    await page.wait_for_text("You said: still there?", ".log")


async def _it_fits_on_a_phone(page: BrowserPage) -> None:
    await page.resize(390, 800)
    assert await page.evaluate("document.documentElement.scrollWidth") == 390
