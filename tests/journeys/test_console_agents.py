"""The console's agents, models, tools and skills in a real browser with the real service, with hostile names."""

import base64
import io
import json
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.browser import BrowserPage, needs_chromium, open_browser
from tests.eventually import eventually
from tests.fakes.mcp_stdio import stdio_server
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.console_views import sign_in, sign_in_as_admin
from tests.journeys.service import Service, serving, with_model

pytestmark = needs_chromium

MARKUP = '<img src=x onerror="document.title = 1"><script>document.title = 2</script>'
HOSTILE = f"{MARKUP}\u202eeve"
LONG = f"{HOSTILE} {'W' * 2000}"
SENTENCE = "Your credit balance is too low."
SKILL = f"""---
name: hostile
description: >-
  \u202eeve {"W" * 900}
---
# Read me

[click](javascript:document.title=3) {HOSTILE}
"""


def answer(request: ModelRequest) -> ModelReply:
    """If told to, call a tool that a guardrail denies. Otherwise, repeat the message."""
    said = request.last_user_text
    if "bash" in said and request.messages[-1]["role"] != "tool":
        return ModelReply(calls=(ToolCall("bash", {"command": "ls"}),))
    return ModelReply(text=f"You said: {said}")


@asynccontextmanager
async def console(
    folder: Path,
) -> AsyncIterator[tuple[BrowserPage, Service, FakeModelServer]]:
    """Run the service with two models, two MCP servers and a guardrail, and sign in to its console."""
    async with FakeModelServer(answer=answer) as model:
        config = with_model(model.base_url)
        config["models"].append({**config["models"][0], "name": "second", "display_name": HOSTILE})
        config |= {"title": {"enabled": False}, "skills": {"scan": "none"}}
        denied = {"use": "allowlist", "config": {"denied_tools": ["bash"]}}
        config["guardrails"] = {"enabled": True, "provider": denied}
        broken = {"type": "http", "url": "http://127.0.0.1:1/mcp", "description": LONG}
        servers = {
            "hotel": stdio_server("mcp_interactive", "stdio"),
            HOSTILE[:60]: {**broken, "headers": {"X-Key": "hush-hush"}},
        }
        extensions = json.dumps({"mcpServers": servers})
        (folder / "extensions_config.json").write_text(extensions)
        async with serving(folder, config) as service, open_browser(folder) as page:
            await page.open(service.url)
            await sign_in_as_admin(page, service)
            yield page, service, model


async def fill(page: BrowserPage, **values: str) -> None:
    """Set the fields of the form that is shown."""
    for name, value in values.items():
        field = f"document.querySelector('[name={name}]')"
        await eventually(lambda field=field: page.evaluate(f"!!{field}"))  # type: ignore[misc]
        await page.evaluate(f"{field}.value = {json.dumps(value)}; 0")


async def click_in_row(page: BrowserPage, text: str, label: str) -> None:
    """Click a button in the row that contains a text."""
    row = f"[...document.querySelectorAll('main tr')].find((one) => one.innerText.includes({json.dumps(text)}))"
    button = f"[...{row}.querySelectorAll('button')].find((one) => one.innerText === {json.dumps(label)})"
    await eventually(lambda: page.evaluate(f"({button}).click(); true"))


async def until_saved(page: BrowserPage) -> None:
    """Wait until the dialog is closed, because it covers the page."""
    await eventually(lambda: page.evaluate("!document.querySelector('dialog')"))


async def test_an_administrator_looks_after_agents_models_tools_and_skills(tmp_path: Path) -> None:
    """Check all actions with one service and one browser, because they take seconds to start."""
    async with console(tmp_path) as (page, service, model):
        await _an_agent_is_tried_before_it_is_saved(page, service, model)
        await _its_changes_and_its_deletion_are_undone(page, service)
        await _a_model_answers_or_says_why_not(page, model)
        await _servers_and_their_tools_are_looked_after(page, service)
        await _decisions_of_guardrails_are_listed(page, service)
        await _a_skill_is_installed_read_and_changed(page, service)
        assert await page.evaluate("document.title") == "Skills – Parley"
        # On a loaded machine, the service may say that it is not ready.
        assert [one for one in page.errors if "health/ready" not in one] == []
        await _everything_fits_on_a_phone(page)
        await _a_token_that_may_only_read_has_no_buttons_that_change(page, service)


async def _an_agent_is_tried_before_it_is_saved(
    page: BrowserPage, service: Service, model: FakeModelServer
) -> None:
    await page.click("Agents", "nav")
    await page.wait_for_text("Nothing found.", "main")
    await page.click("New agent", "main")
    await fill(page, name="Poet", description=LONG[:1000], soul="Rhyme always.")
    await page.evaluate("document.querySelector('.compose textarea').focus()")
    await page.type("hi there")
    await page.press_enter()
    await page.wait_for_text("You said: hi there", ".log")
    assert "Rhyme always." in str(model.requests[-1].messages[0]["content"])
    async with service.client() as client:
        assert (await client.get("/api/agents")).json() == {"agents": []}
    await fill(page, soul="Never rhyme.")
    await eventually(
        lambda: page.evaluate("!document.querySelector('.compose [type=submit]').disabled")
    )
    await page.evaluate("document.querySelector('.compose textarea').focus()")
    await page.type("and now")
    await page.press_enter()
    await page.wait_for_text("You said: and now", ".log")
    assert "Never rhyme." in str(model.requests[-1].messages[0]["content"])
    await page.click("Save", "main")
    await page.wait_for_text("poet", "main h2")
    await page.click("Prompt", "main")
    await page.wait_for_text("soul", "dialog")
    await page.click("✕", "dialog")


async def _its_changes_and_its_deletion_are_undone(page: BrowserPage, service: Service) -> None:
    async with service.client() as client:

        async def soul() -> str:
            agent = (await client.get("/api/agents/poet")).json()
            return str(agent.get("soul", "(gone)"))

        await fill(page, soul="Be brief.", skills="-")
        await page.click("Save", "main")
        await eventually(soul, lambda shown: shown == "Be brief.")
        await page.click("Undo", "#notice")
        await eventually(soul, lambda shown: shown == "Never rhyme.")
        field = "document.querySelector('[name=soul]')?.value"
        await eventually(lambda: page.evaluate(field), lambda shown: shown == "Never rhyme.")
        await page.click("Delete", "main")
        await page.wait_for_text("Deleted.", "#notice")
        assert await soul() == "(gone)"
        await page.click("Undo", "#notice")
        await eventually(soul, lambda shown: shown == "Never rhyme.")
        await page.wait_for_text("poet", "main h2")
        # The threads in which it was tried are gone.
        await page.click("Models", "nav")
        wanted = {"metadata": {"source": "try-out"}}

        async def tried() -> list[object]:
            return list((await client.post("/api/threads/search", json=wanted)).json())

        await eventually(tried, lambda found: found == [])


async def _a_model_answers_or_says_why_not(page: BrowserPage, model: FakeModelServer) -> None:
    await page.wait_for_text(HOSTILE, "main table")
    await click_in_row(page, "(default)", "Test")
    await page.wait_for_text("You said: Answer with the single word: ok", "main table")
    model.reply(ModelReply(status=402, error_text=SENTENCE))
    await click_in_row(page, HOSTILE, "Test")
    await page.wait_for_text(SENTENCE, "main table")


async def _servers_and_their_tools_are_looked_after(page: BrowserPage, service: Service) -> None:
    await page.click("Tools", "nav")
    await page.wait_for_text("hotel_link", "main")
    await page.wait_for_text("failed", "main")
    assert HOSTILE[:60] in await page.text("main")
    await page.evaluate("location.hash = 'tools?q=hotel_'")
    await eventually(lambda: page.text("main tbody"), lambda shown: "str_replace" not in shown)
    await click_in_row(page, "hotel_link", "Call")
    await fill(page, given="no JSON")
    await page.click("Call", "dialog")
    await page.wait_for_text("JSON", "dialog .error")
    await fill(page, given="{}")
    await page.click("Call", "dialog")
    await page.wait_for_text("report", "dialog pre")
    await page.click("✕", "dialog")
    await _a_server_is_disabled_changed_and_removed(page, service)


async def _a_server_is_disabled_changed_and_removed(page: BrowserPage, service: Service) -> None:
    await click_in_row(page, HOSTILE[:60], "Disable")
    await page.wait_for_text("Done.", "#notice")
    await page.wait_for_text("disabled", "main")
    await page.click("Undo", "#notice")
    await click_in_row(page, HOSTILE[:60], "Edit")
    await page.wait_for_text("*** keeps a stored secret.", "dialog")
    await page.evaluate(
        "document.querySelector('[name=entry]').value = document.querySelector('[name=entry]').value"
        ".replace('127.0.0.1:1', '127.0.0.1:2'); 0"
    )
    await page.click("Save", "dialog")
    await until_saved(page)
    async with service.client() as client:
        path = service.config.parent / "extensions_config.json"

        async def stored() -> str:
            return path.read_text()

        await eventually(stored, lambda text: "127.0.0.1:2" in text and "hush-hush" in text)
        await page.point_at("nav")
        await click_in_row(page, HOSTILE[:60], "Delete")
        await page.click("Delete", "dialog")
        await until_saved(page)

        async def names() -> list[str]:
            return list((await client.get("/api/mcp/config")).json()["mcp_servers"])

        await eventually(names, lambda found: found == ["hotel"])


async def _decisions_of_guardrails_are_listed(page: BrowserPage, service: Service) -> None:
    async with service.client() as client:
        thread = (await client.post("/api/threads", json={})).json()["thread_id"]
        body = {
            "assistant_id": "lead_agent",
            "input": {"messages": [{"role": "user", "content": "use bash"}]},
            "config": {"configurable": {"user_id": f"slack:T:{HOSTILE}"}},
        }
        await client.post(f"/api/threads/{thread}/runs/wait", json=body)
    await page.click("Overview", "nav")
    await page.evaluate("location.hash = 'tools?outcome=denied'")
    await page.wait_for_text(HOSTILE, "main a[href^='#person/slack']")
    await page.wait_for_text("tool 'bash' is denied by policy", "main")


async def _a_skill_is_installed_read_and_changed(page: BrowserPage, service: Service) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("hostile/SKILL.md", SKILL)
    await page.click("Skills", "nav")
    await page.wait_for_text("data-report", "main")
    content = base64.b64encode(archive.getvalue()).decode()
    await page.evaluate(
        f"""(() => {{
          const bytes = Uint8Array.from(atob({json.dumps(content)}), (one) => one.charCodeAt(0));
          const given = new DataTransfer();
          given.items.add(new File([bytes], "hostile.skill"));
          const picker = document.querySelector("main input[type=file]");
          picker.files = given.files;
          picker.dispatchEvent(new Event("change"));
        }})()"""
    )
    await page.wait_for_text("The skill hostile is installed", "#notice")
    await click_in_row(page, "hostile", "Read")
    await page.wait_for_text(MARKUP, "dialog")
    assert (
        await page.evaluate("document.querySelectorAll('dialog a[href^=javascript]').length") == 0
    )
    await page.click("✕", "dialog")
    await _a_skill_is_switched_edited_and_rolled_back(page, service)


async def _a_skill_is_switched_edited_and_rolled_back(page: BrowserPage, service: Service) -> None:
    await page.point_at("nav")
    await click_in_row(page, "data-report", "Disable")
    await page.wait_for_text("disabled", "main")
    await page.click("Undo", "#notice")
    async with service.client() as client:

        async def text() -> str:
            return str((await client.get("/api/skills/hostile")).json()["content"])

        async def is_enabled() -> bool:
            return bool((await client.get("/api/skills/data-report")).json()["enabled"])

        await eventually(is_enabled)
        await click_in_row(page, "hostile", "Edit")
        await fill(page, content=SKILL.replace("Read me", "Read me again"))
        await page.click("Save", "dialog")
        await until_saved(page)
        await eventually(text, lambda shown: "Read me again" in shown)
        await click_in_row(page, "hostile", "History")
        await page.wait_for_text("update", "dialog")
        await page.evaluate(
            "document.querySelectorAll('dialog details').forEach((one) => { one.open = true; })"
        )
        await page.click("Undo this change", "dialog")
        await eventually(text, lambda shown: "Read me again" not in shown)
        await page.click("✕", "dialog")


async def _everything_fits_on_a_phone(page: BrowserPage) -> None:
    await page.resize(390, 800)
    for view in ("agents", "agents/poet", "models", "tools", "skills"):
        await page.evaluate(f"location.hash = {json.dumps(view)}")
        await eventually(
            lambda: page.evaluate("!document.getElementById('view').hasAttribute('aria-busy')")
        )
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390, view


async def _a_token_that_may_only_read_has_no_buttons_that_change(
    page: BrowserPage, service: Service
) -> None:
    async with service.client() as client:
        made = await client.post("/api/tokens", json={"name": "screen", "scope": "read"})
    await page.click("Sign out")
    await sign_in(page, made.json()["token"])
    await page.wait_for_text("Read", "main")
    labels = (
        "[...new Set([...document.querySelectorAll('main button')]"
        ".filter((one) => one.offsetParent).map((one) => one.innerText))]"
    )
    assert set(await page.evaluate(labels)) <= {"Read", "History", ""}
    await page.evaluate("location.hash = 'agents/poet'")
    await page.wait_for_text("SOUL.md", "main")
    assert await page.evaluate(f"{labels}.filter((one) => one)") == ["Prompt"]
    assert await page.evaluate("document.querySelector('.compose')") is None
