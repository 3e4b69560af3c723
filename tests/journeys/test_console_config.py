"""The console's configuration, logs, audit and tokens in a real browser with the real service."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from tests.browser import BrowserPage, needs_chromium, open_browser
from tests.eventually import eventually
from tests.journeys.console_views import sign_in, sign_in_as_admin
from tests.journeys.service import Service, serving

pytestmark = needs_chromium

HOSTILE = '<img src=x onerror="document.title = 1"> \u202e' + "x" * 10_000
SECRET = "12345:written-into-the-file"
VARIABLE = "a-secret-of-the-environment"
DEMO = {"name": "a", "use": "agent.models.demo:DemoChatModel", "model": "a"}


@asynccontextmanager
async def console(folder: Path) -> AsyncIterator[tuple[BrowserPage, Service]]:
    """Run the service, and sign in to its console."""
    config = {
        "models": [{**DEMO, "description": HOSTILE}],
        "title": {"max_words": 6},
        "voice": {"api_key": "$SPEECH_KEY"},
        "channels": {"telegram": {"enabled": False, "bot_token": SECRET}},
    }
    async with (
        serving(folder, config, environment={"SPEECH_KEY": VARIABLE}) as service,
        open_browser(folder) as page,
    ):
        await page.open(f"{service.url}/console/")
        await sign_in_as_admin(page, service)
        yield page, service


async def go(page: BrowserPage, address: str) -> None:
    await page.evaluate(f"location.hash = {json.dumps(address)}")


async def enter(page: BrowserPage, selector: str, text: str) -> None:
    """Replace the content of a field, as a person does."""
    find = f"document.querySelector({json.dumps(selector)})"
    await eventually(lambda: page.evaluate(f"!!{find}"))
    await page.evaluate(f"({find}.focus(), {find}.select())")
    await page.type(text)


async def change_text(page: BrowserPage, expression: str) -> None:
    """Replace the text of the editor (`area`) with the result of a JavaScript expression."""
    change = f"area.value = {expression}; area.dispatchEvent(new Event('input'))"
    await page.evaluate(f"(area => {{ {change} }})(document.querySelector('main textarea'))")


async def text_of_editor(page: BrowserPage) -> str:
    return str(await page.evaluate("document.querySelector('main textarea')?.value ?? ''"))


async def nothing_ran(page: BrowserPage) -> None:
    """Check that no text ran as a script, no text shows a secret, and the page is not wider than the window."""
    shown = str(await page.evaluate("document.documentElement.innerHTML + document.title"))
    assert "written-into" not in shown
    assert VARIABLE not in shown
    assert await page.evaluate("document.querySelectorAll('main img').length") == 0
    assert str(await page.evaluate("document.title")).endswith("Parley")
    width = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]


async def test_the_configuration_is_looked_up_changed_and_undone(tmp_path: Path) -> None:
    async with console(tmp_path) as (page, service):
        before = service.config.read_text()
        await _sources_are_shown_and_secrets_are_not(page)
        await _one_key_is_changed_and_undone(page, service)
        assert yaml.safe_load(service.config.read_text()) == yaml.safe_load(before)
        await _a_misspelled_key_is_told_beside_its_line(page)
        await _a_file_that_changed_meanwhile_is_kept(page, service)
        await _the_editor_speaks_chinese(page, service)
        await page.resize(390, 800)
        await go(page, "configuration")
        await page.wait_for_text("channels.telegram.bot_token", "main")
        await nothing_ran(page)
        await page.click("Edit the file")
        await eventually(lambda: text_of_editor(page))
        await nothing_ran(page)
        refused = page.errors
        assert ["409 (Conflict)" in one for one in refused] == [True, True]


async def _sources_are_shown_and_secrets_are_not(page: BrowserPage) -> None:
    await page.click("Configuration", "nav")
    await page.wait_for_text("channels.telegram.bot_token", "main")
    await nothing_ran(page)
    await enter(page, "main input[name=key]", "voice.api_key")
    row = await eventually(
        lambda: page.text("main tbody"), lambda shown: "telegram" not in shown and "voice" in shown
    )
    assert "$SPEECH_KEY" in row
    assert "config.yaml:" in row
    await go(page, "configuration?key=channels.slack")
    await page.wait_for_text("channels.slack.streaming", "main")
    assert "default" in await page.text("main tbody")


async def _one_key_is_changed_and_undone(page: BrowserPage, service: Service) -> None:
    await go(page, "configuration?key=title.max_words")
    await page.wait_for_text("title.max_words", "main")
    await page.click("Edit", "main")
    await enter(page, "dialog input", "9")
    await page.click("Edit", "dialog")
    await eventually(lambda: text_of_editor(page), lambda text: "max_words: 9" in text)
    await page.click("Save", "main")
    await page.wait_for_text("+  max_words: 9", "dialog")
    assert "-  max_words: 6" in await page.text("dialog")
    await page.click("Save", "dialog")
    await page.wait_for_text("The file is saved. It is in force.", "#notice")
    assert yaml.safe_load(service.config.read_text())["title"] == {"max_words": 9}
    await page.click("Undo", "#notice")
    await page.wait_for_text("The previous version is back.", "#notice")
    await eventually(lambda: text_of_editor(page), lambda text: "max_words: 6" in text)
    await nothing_ran(page)


async def _a_misspelled_key_is_told_beside_its_line(page: BrowserPage) -> None:
    await go(page, "configuration")
    await page.click("Edit the file")
    await eventually(lambda: text_of_editor(page))
    await page.evaluate("document.querySelector('main textarea').setSelectionRange(0, 0)")
    await page.evaluate("document.querySelector('main textarea').focus()")
    await page.type("titel: {}\n")
    await page.wait_for_text("1 titel: unknown key, ignored; did you mean `title`?", ".notes")
    assert await page.evaluate("[...document.querySelectorAll('main button')].at(-1).disabled")


async def _a_file_that_changed_meanwhile_is_kept(page: BrowserPage, service: Service) -> None:
    await go(page, "overview")
    await page.wait_for_text("Overview", "main")
    await go(page, "configuration/file")
    await eventually(lambda: text_of_editor(page))
    changed = service.config.read_text() + "# by somebody else\n"
    service.config.write_text(changed)
    await page.evaluate("document.querySelector('main textarea').focus()")
    await page.type("# mine\n")
    await page.click("Save", "main")
    await page.click("Save", "dialog")
    await page.wait_for_text("The file has changed: load it again.", "dialog")
    assert service.config.read_text() == changed
    await page.click("Cancel", "dialog")


async def _the_editor_speaks_chinese(page: BrowserPage, service: Service) -> None:
    await page.evaluate("localStorage.setItem('parley.language', 'zh')")
    await page.open(f"{service.url}/console/?zh#configuration/file")
    await eventually(lambda: text_of_editor(page))
    changed = service.config.read_text() + "# by somebody else\n"
    service.config.write_text(changed)
    await change_text(page, "area.value + '# mine'")
    await page.click("保存", "main")
    await page.click("保存", "dialog")
    await page.wait_for_text("文件在此期间被改动，请重新加载。", "dialog")
    await page.click("取消", "dialog")
    await page.open(f"{service.url}/console/?again#configuration/file")
    await eventually(lambda: text_of_editor(page), lambda text: "# by somebody else" in text)
    await change_text(page, "area.value + 'titel: {}'")
    await page.wait_for_text("titel: 未知的配置项，会被忽略；是否想写 `title`？", ".notes")
    await change_text(page, "area.value.replace('titel: {}', '# mine')")
    await page.click("保存", "main")
    await page.click("保存", "dialog")
    await page.wait_for_text("文件已保存。 现已生效。", "#notice")
    await page.evaluate("localStorage.setItem('parley.language', 'en')")
    await page.open(f"{service.url}/console/?en")
    await page.wait_for_text("Overview", "nav")


async def test_logs_audit_and_tokens_are_looked_after(tmp_path: Path) -> None:
    async with console(tmp_path) as (page, service):
        await _a_token_is_created_rotated_and_deleted(page)
        await _the_log_grows_while_it_is_shown(page, service)
        await _the_audit_names_who_did_what(page, service)
        for view in ("tokens", "logs", "audit"):
            await page.resize(390, 800)
            await go(page, view)
            own = {"tokens": "New token", "logs": "Download jsonl", "audit": "Download csv"}
            await page.wait_for_text(own[view], "main")
            await nothing_ran(page)
        assert page.errors == []
        await _a_token_that_may_only_read_sees_the_log_alone(page, service)


async def _a_token_is_created_rotated_and_deleted(page: BrowserPage) -> None:
    await page.click("Tokens", "nav")
    values = []
    for name in ("robot", "other"):
        await page.click("New token", "main")
        await enter(page, "dialog input[name=name]", name)
        await page.click("New token", "dialog")
        values.append(await _shown_token(page))
    # A new row moves the rows that the test clicks.
    await eventually(
        lambda: page.text("main tbody"), lambda text: "robot" in text and "other" in text
    )
    await page.click("Rotate", "main tbody")
    await page.click("Rotate", "dialog")
    values.append(await _shown_token(page))
    assert len(set(values)) == 3
    await page.click("Delete", "main tbody")  # the first one by name
    await page.click("Delete", "dialog")
    await page.point_at("nav")
    await eventually(lambda: page.text("main tbody"), lambda text: "other" not in text)
    assert "robot" in await page.text("main tbody")


async def _shown_token(page: BrowserPage) -> str:
    value = "document.querySelector('dialog.wide input')?.value ?? ''"
    token = str(await eventually(lambda: page.evaluate(value)))
    assert token.startswith("parley_")
    await page.click("✕", "dialog.wide")
    return token


async def _the_log_grows_while_it_is_shown(page: BrowserPage, service: Service) -> None:
    await page.click("Logs", "nav")
    await page.wait_for_text("info", "main tbody")
    tree = yaml.safe_load(service.config.read_text())
    service.config.write_text(yaml.safe_dump({**tree, HOSTILE[:200]: 1}))
    await page.wait_for_text(f"{HOSTILE[:30]}", "main tbody")
    await nothing_ran(page)
    await go(page, "logs?level=warning&since=PT1H&q=unknown+key")
    await eventually(
        lambda: page.text("main tbody"), lambda text: "unknown key" in text and "info" not in text
    )


async def _the_audit_names_who_did_what(page: BrowserPage, service: Service) -> None:
    async with service.client() as client:
        headers = {"X-Request-Id": "of-a-wrong-token", "Authorization": "Bearer wrong"}
        await client.get(f"/api/channels?{HOSTILE[:40]}", headers=headers)
    await page.click("Audit", "nav")
    await page.wait_for_text("POST /api/tokens/{name}/rotate", "main tbody")
    assert "admin token" in await page.text("main tbody")
    await go(page, "audit?outcome=refused")
    await eventually(
        lambda: page.text("main tbody"),
        lambda text: "(wrong token)" in text and "rotate" not in text,
    )
    await nothing_ran(page)
    await page.click("of-a-wrong-token", "main")
    await page.wait_for_text("wrong admin token from", "main tbody")
    await go(page, "audit")
    await page.click("Download csv", "main")
    await page.wait_for_text("POST /api/tokens/{name}/rotate", "main tbody")


async def _a_token_that_may_only_read_sees_the_log_alone(
    page: BrowserPage, service: Service
) -> None:
    async with service.client() as client:
        created = await client.post("/api/tokens", json={"name": "reader", "scope": "read"})
    await page.click("Sign out")
    await sign_in(page, created.json()["token"])
    shown = await page.wait_for_text("Logs", "nav")
    assert not {"Configuration", "Audit", "Tokens"} & set(shown.split())
    await go(page, "configuration")
    await page.wait_for_text("does not permit this request", "main")
