"""The playground in a real browser: the platforms are simulated, the adapters and the service are real."""

import json
from functools import partial
from pathlib import Path
from subprocess import STDOUT
from typing import Any

import anyio
import httpx
import yaml

from tests.browser import BrowserPage, needs_chromium, open_browser
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply
from tests.fork_server import forked_program
from tests.journeys.playground import (
    START_WITHIN_S,
    RunningPlayground,
    environment,
    playground,
    read_link,
    run_command,
)
from tests.journeys.service import with_model
from tests.journeys.test_terminal import CTRL_C, CTRL_D, PROMPT, at_a_terminal, write_config

PLATFORMS = ("slack", "telegram", "feishu")
HOSTILE = '<img src=x onerror="document.title = 1"><script>document.title = 2</script>'


async def choose(page: BrowserPage, selector: str, value: str) -> None:
    """Choose an option of a select element."""
    await page.evaluate(
        f"""(() => {{
            const one = document.querySelector({json.dumps(selector)});
            one.value = {json.dumps(value)};
            one.dispatchEvent(new Event("change", {{ bubbles: true }}));
        }})()"""
    )


async def go_to(page: BrowserPage, place: str) -> None:
    """Open a place. This puts the cursor into the text field."""
    selector = f'#places [data-place="{place}"]'
    await eventually(
        lambda: page.evaluate(f"document.querySelector({json.dumps(selector)}) !== null")
    )
    await page.evaluate(f"document.querySelector({json.dumps(selector)}).click()")


async def write(page: BrowserPage, text: str) -> None:
    """Write a message."""
    await page.evaluate("document.querySelector('#text').focus()")
    await page.type(text)
    await page.press_enter()


@needs_chromium
async def test_people_talk_to_the_bot_on_all_platforms(tmp_path: Path) -> None:
    """Check what people can do with one playground and one browser, because they take seconds to start."""
    async with playground(tmp_path) as running, open_browser(tmp_path) as page:
        await page.open(running.link)
        await _a_private_chat_in_telegram(page)
        await _a_button_is_pressed(page, running)
        await _a_mention_is_completed_in_slack_and_answered_in_its_thread(page)
        await _slack_refuses_a_command_that_no_app_has(page)
        page.errors.clear()  # This is the refused request.
        await _a_feishu_card_grows_and_a_file_comes(page, running)
        await _a_stranger_is_approved(page, running)
        await _calls_and_decisions_are_listed_without_secrets(page, running)
        await _an_answer_arrives_once_in_spite_of_the_weather(page, running)
        await _a_message_to_a_killed_service_is_answered_later(page, running)
        assert page.errors == []
        await _the_page_is_chinese_and_fits_a_phone(page)
        assert (await running.state())["violations"] == []


async def _a_private_chat_in_telegram(page: BrowserPage) -> None:
    await go_to(page, "telegram:1001")
    await write(page, HOSTILE)
    shown = await page.wait_for_text("You said", "#messages article[data-author=parley]")
    assert HOSTILE in shown
    await page.wait_for_text(HOSTILE, "#messages article.own")
    assert await page.evaluate("document.title") == "Parley playground"


async def _a_button_is_pressed(page: BrowserPage, running: RunningPlayground) -> None:
    await write(page, "ask me something")
    await page.click("Green", "#messages")
    await running.wait_for("telegram:1001", "You said: Green")


async def _a_mention_is_completed_in_slack_and_answered_in_its_thread(page: BrowserPage) -> None:
    await go_to(page, "slack:C1")
    await page.evaluate("document.querySelector('#text').focus()")
    await page.type("@Par")
    await page.wait_for_text("@Parley", "#completion")
    await page.press_tab()
    await page.type("*hello*")
    await page.press_enter()
    await page.wait_for_text("@Parley *hello*", "#messages article.own")
    await page.wait_for_text("You said: hello", "#messages article.in-thread[data-author=parley]")
    await page.wait_for_text("hello", "#messages article.in-thread em")


async def _slack_refuses_a_command_that_no_app_has(page: BrowserPage) -> None:
    await write(page, "/nope")
    await page.wait_for_text("Slack does not know the command /nope", "#notice")
    await page.evaluate("document.querySelector('#text').value = ''")
    await write(page, "/parley help")
    await page.wait_for_text("only visible to ann")


async def _a_feishu_card_grows_and_a_file_comes(
    page: BrowserPage, running: RunningPlayground
) -> None:
    await go_to(page, "feishu:oc_dm_ou_ann")
    await write(page, "write a file notes.txt saying hello")
    await page.wait_for_text("Done: here is your file.", "#messages")
    await page.wait_for_text("notes.txt", "#messages .file")
    address = await page.evaluate(
        "document.querySelector('#messages .file a').getAttribute('href')"
    )
    assert (await running.client.get(address)).text == "hello\n"
    titles = [one["title"] for one in (await running.state())["entries"]]
    assert [one for one in titles if one.endswith("/elements/answer/content")]


async def _a_stranger_is_approved(page: BrowserPage, running: RunningPlayground) -> None:
    await choose(page, "#person", "sam")
    await go_to(page, "telegram:1003")
    await write(page, "let me in")
    await page.wait_for_text("pairing code", "#messages article[data-author=parley]")
    await page.evaluate("document.querySelector('#messages .operator').click()")
    await eventually(
        running.state,
        lambda state: any(entry["title"] == "approve" for entry in state["entries"]),
    )
    await write(page, "now?")
    await page.wait_for_text("You said: now?", "#messages")
    await choose(page, "#person", "ann")


async def _calls_and_decisions_are_listed_without_secrets(
    page: BrowserPage, running: RunningPlayground
) -> None:
    await choose(page, "#source", "service")
    await page.wait_for_text("message of telegram in private chat '1003': pairing", "#entries")
    await choose(page, "#source", "telegram")
    await page.wait_for_text("POST sendMessage", "#entries")
    assert "chat.postMessage" not in await page.text("#entries")
    await choose(page, "#source", "")
    entries = (await running.state())["entries"]
    commands = [one["curl"] for one in entries if one["title"] == "POST sendMessage"]
    assert all(one.startswith("curl -X POST http://127.0.0.1:") for one in commands)
    assert all("/bot***/sendMessage" in one for one in commands)
    assert "fake-token" not in json.dumps(entries)
    kinds = {(one["source"], one["kind"]) for one in entries}
    events = {(name, kind) for name in PLATFORMS for kind in ("event", "acknowledged", "call")}
    assert events | {("person", "action"), ("service", "decision"), ("model", "call")} <= kinds


async def _an_answer_arrives_once_in_spite_of_the_weather(
    page: BrowserPage, running: RunningPlayground
) -> None:
    await go_to(page, "feishu:oc_room")
    await choose(page, "[data-weather=feishu] select", "server error")
    await eventually(running.state, lambda state: state["weather"] == {"feishu": "server error"})
    await write(page, "@Parley in the rain")

    async def failures() -> int:
        entries = (await running.state())["entries"]
        return sum(one["failed"] and one["outcome"].startswith("502") for one in entries)

    await eventually(failures, lambda number: number > 1)
    await choose(page, "[data-weather=feishu] select", "")
    found = await running.wait_for("feishu:oc_room", "You said: in the rain")
    assert len(found) == 1


async def _a_message_to_a_killed_service_is_answered_later(
    page: BrowserPage, running: RunningPlayground
) -> None:
    await go_to(page, "telegram:1001")
    await page.click("Kill the service")
    await page.wait_for_text("killed", "#service")
    await write(page, "are you there?")
    await page.click("Start the service")
    found = await running.wait_for("telegram:1001", "You said: are you there?")
    assert len([one for one in found if "are you there?" in one]) == 1


async def _the_page_is_chinese_and_fits_a_phone(page: BrowserPage) -> None:
    await choose(page, "#language", "zh")
    await page.wait_for_text("发送", "#composer")
    await page.resize(390, 800)
    await page.click("幕后", "#panes")
    await page.wait_for_text("sendMessage", "#entries")
    await page.click("会话", "#panes")
    await page.wait_for_text("Team", "#places")
    await page.click("Team", "#places")
    await page.wait_for_text("Team", "#chat h2")
    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390


async def test_a_recording_is_replayed_as_a_test(tmp_path: Path) -> None:
    file = tmp_path / "recording.json"
    async with playground(tmp_path) as running:
        here = {"place": "telegram:1001", "person": "ann"}
        await running.act(do="send", text="ask me something", **here)
        question = await eventually(running.state, lambda state: _buttons(state, "telegram:1001"))
        message = question["seen"]["telegram:1001"]["messages"][-1]
        await running.act(do="press", message=message["id"], label="Green", **here)
        await running.wait_for("telegram:1001", "You said: Green")
        await running.act(do="weather", target="slack", kind="dropped connections")
        await running.act(do="send", place="slack:C1", person="ben", text="@Parley hello")
        await running.wait_for("slack:C1", "You said: hello")
        await eventually(
            running.state,
            lambda state: "✅" in json.dumps(state["seen"]["slack:C1"], ensure_ascii=False),
        )
        await eventually(running.state, lambda state: not _buttons(state, "telegram:1001"))
        file.write_text((await running.client.get("/api/recording")).text, "utf-8")
    code, said = await run_command(tmp_path, "replay", str(file))
    assert (code, said) == (0, "No difference after 4 actions.\n")
    recording = file.read_text("utf-8").replace("You said: hello", "You said: hullo")
    file.write_text(recording, "utf-8")
    code, said = await run_command(tmp_path, "replay", str(file))
    assert code == 1
    assert "-  You said: hullo" in said.splitlines()
    assert "+  You said: hello" in said.splitlines()


def _buttons(state: dict[str, Any], place: str) -> list[str]:
    return [label for one in state["seen"][place]["messages"] for label in one["buttons"]]


async def test_people_react_and_events_are_repeated_by_curl(tmp_path: Path) -> None:
    async with playground(tmp_path) as running:
        here = {"place": "telegram:1001", "person": "ann"}
        await _say(running, "telegram:1001", "hello")
        await running.wait_for("telegram:1001", "You said: hello")
        message = (await running.state())["seen"]["telegram:1001"]["messages"][0]
        for emoji, shown in (("👍", True), ("❤️", True), ("❤️", False)):
            reacted = await running.act(do="react", message=message["id"], emoji=emoji, **here)
            assert reacted.status_code == 200
            found = (await running.state())["seen"]["telegram:1001"]["messages"][0]
            assert (emoji in found["reactions"]) is shown
            assert "👍" not in found["reactions"] or emoji == "👍"
        wrong = await running.act(do="react", message="999", emoji="👍", **here)
        assert wrong.status_code == 409
        for odd in ({"do": "weather"}, {"do": "event"}, {"do": "send", "text": 5, **here}):
            assert (await running.act(**odd)).status_code == 409

        for platform, place in (*PLACES.items(), ("telegram", "telegram:1001")):
            mention = "" if platform == "telegram" else "@Parley "
            await _say(running, place, f"{mention}tides")
            await running.wait_for(place, "You said: tides")
            entries = (await running.state())["entries"]
            event = next(
                one["curl"]
                for one in entries
                if (one["source"], one["kind"]) == (platform, "event") and "tides" in one["curl"]
            )
            token = running.client.headers["Authorization"].removeprefix("Bearer ")
            assert token not in event
            command = ["sh", "-c", event.replace("***", token)]
            done = await anyio.run_process(command, check=False)
            assert b'"success": true' in done.stdout, done.stderr
            await eventually(
                partial(_outcomes, running, "service", "decision", after=entries[-1]["number"]),
                partial(_is_duplicate, platform),
            )
            assert len([one for one in await running.texts(place) if "You said: tides" in one]) == 1


def _is_duplicate(platform: str, titles: list[str]) -> bool:
    return any(platform in title and "duplicate" in title for title in titles)


async def test_a_file_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recording.json").write_text('{"version": 7}')
    code, said = await run_command(tmp_path, "replay", str(tmp_path / "recording.json"))
    assert code == 1
    assert "cannot be read as a recording: it is not a recording of version 1" in said


async def test_the_page_needs_its_token_and_its_host(tmp_path: Path) -> None:
    async with playground(tmp_path) as running:
        base = str(running.client.base_url)
        async with httpx.AsyncClient(base_url=base, trust_env=False) as stranger:
            assert (await stranger.get("/api/state")).status_code == 401
            assert (await stranger.get("/?token=wrong")).status_code == 401
        assert (await running.client.get("/", headers={"Host": "evil.test"})).status_code == 421
        form = await running.client.post("/api/actions", data={"do": "kill"})
        assert form.status_code == 415
        page = await running.client.get("/")
        assert "default-src 'self'" in page.headers["Content-Security-Policy"]


async def test_the_operators_models_are_used_and_have_weather(tmp_path: Path) -> None:
    async with FakeModelServer() as model:
        entry = with_model("$MODEL_URL")["models"][0]
        config = {
            "models": [entry],
            "channels": {"slack": {"enabled": True, "bot_token": "$UNSET"}},
        }
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
        (tmp_path / ".env").write_text(f"MODEL_URL={model.base_url}\n")
        here = {"place": "telegram:1001", "person": "ann"}
        async with playground(tmp_path) as running:
            model.reply(ModelReply(text="from the operator's model"))
            await running.act(do="send", text="hello", **here)
            await running.wait_for("telegram:1001", "from the operator's model")
            assert model.requests[-1].last_user_text.endswith("hello")
            assert model.requests[-1].headers["Authorization"] == "Bearer sk-test"

            await running.act(do="weather", target="model", kind="model broken")
            asked = len(model.requests)
            await running.act(do="send", text="and now?", **here)
            entries = await eventually(
                running.state, lambda state: _failed(state, source="model", outcome="500")
            )
            assert len(model.requests) == asked
            assert "sk-test" not in json.dumps(entries)
            await running.act(do="weather", target="model", kind="")
            await running.wait_for("telegram:1001", "You said: and now?")


WEATHER = (
    # Platform, weather, and the entry that the inspector shows: its source, kind and outcome.
    ("telegram", "rate limit", ("telegram", "call", "429")),
    ("slack", "server error", ("slack", "call", "503")),
    ("slack", "lost answer", ("slack", "call", "the connection broke")),
    ("feishu", "slow", ("feishu", "call", "200")),
    ("telegram", "outage", ("weather", "action", "")),
    ("slack", "dropped connections", ("slack", "call", "opens its connection")),
    ("slack", "redelivery", ("slack", "redelivery", "")),
    ("model", "model slow", ("model", "call", "200")),
    ("model", "model broken", ("model", "call", "500")),
    ("model", "model cut off", ("model", "call", "200")),
    ("model", "model overflowing", ("model", "call", "400")),
)
PLACES = {"slack": "slack:C1", "feishu": "feishu:oc_room"}


async def test_each_message_is_answered_once_in_each_weather(tmp_path: Path) -> None:
    async with playground(tmp_path) as running:
        for number, (target, kind, shown) in enumerate(WEATHER):
            is_overflowing = kind == "model overflowing"
            place = PLACES.get("slack" if is_overflowing else target, "telegram:1001")
            mention = "" if place.startswith("telegram") else "@Parley "
            text = f"weather {chr(ord('a') + number)}"
            if kind == "redelivery":  # of an event that has been delivered
                await _say(running, place, f"{mention}{text}")
                await running.wait_for(place, f"You said: {text}")
            before = (await running.state())["entries"][-1]["number"]
            done = await running.act(do="weather", target=target, kind=kind)
            assert done.status_code == 200, done.text
            if kind != "redelivery":
                filler = " tide" * 4000 if is_overflowing else ""
                await _say(running, place, f"{mention}{text}{filler}")
            await eventually(
                partial(_outcomes, running, *shown[:2], after=before),
                partial(_has_outcome, shown[2]),
            )
            await running.act(do="weather", target=target, kind="")
            if kind in {"model broken", "model cut off", "model overflowing"}:
                text = f"{text} again"  # The attempts may already have ended.
                await _say(running, place, f"{mention}{text}")
            found = await running.wait_for(place, f"You said: {text}")
            assert len([one for one in found if f"You said: {text}" in one]) == 1, kind
        assert (await running.state())["violations"] == []


async def _say(running: RunningPlayground, place: str, text: str) -> None:
    done = await running.act(do="send", place=place, person="ann", text=text)
    assert done.status_code == 200, done.text


async def _outcomes(running: RunningPlayground, source: str, kind: str, *, after: int) -> list[str]:
    return [
        entry["outcome"] or entry["title"]
        for entry in (await running.state())["entries"]
        if entry["number"] > after and (entry["source"], entry["kind"]) == (source, kind)
    ]


def _has_outcome(begin: str, outcomes: list[str]) -> bool:
    return any(outcome.startswith(begin) for outcome in outcomes)


async def test_a_killed_playground_leaves_no_service_running(tmp_path: Path) -> None:
    command = forked_program("gateway", "playground")
    process = await anyio.open_process(
        command, env=environment(tmp_path), cwd=tmp_path, stderr=STDOUT
    )
    try:
        base, token = (await read_link(process)).split("/?token=")
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(headers=headers, timeout=30, trust_env=False) as client:

            async def service() -> dict[str, Any]:
                return dict((await client.get(f"{base}/api/state")).json()["service"])

            found = await eventually(
                service, lambda one: one["state"] == "running", within_s=START_WITHIN_S
            )
            assert (await client.get(f"{found['url']}/health")).status_code == 200
            process.kill()

            async def is_gone() -> bool:
                try:
                    await client.get(f"{found['url']}/health")
                except httpx.TransportError:
                    return True
                return False

            await eventually(is_gone)
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()


def _failed(state: dict[str, Any], *, source: str, outcome: str) -> list[dict[str, Any]]:
    return [
        one
        for one in state["entries"]
        if one["source"] == source and one["failed"] and one["outcome"].startswith(outcome)
    ]


async def test_a_service_without_platforms_offers_the_playground_in_its_terminal(
    tmp_path: Path,
) -> None:
    config = write_config(tmp_path, {})
    async with at_a_terminal(config, tmp_path / "home", "serve") as terminal:
        await terminal.sees("playground http://")
        rest = await terminal.sees(PROMPT)
        link = f"http://{rest.split()[0]}"
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            first, second = [(await client.get(link)).headers["Location"] for _ in range(2)]
            assert first == second
            wrong = await client.get(link[:-3])
            assert wrong.status_code in {401, 404}
            opened = await client.get(first, follow_redirects=True)
            assert "Parley playground" in opened.text
            terminal.type(CTRL_D)
            assert await terminal.leaves() == 0

            async def is_gone() -> bool:
                try:
                    await client.get(first)
                except httpx.TransportError:
                    return True
                return False

            await eventually(is_gone)


async def test_a_service_with_platforms_offers_no_playground(tmp_path: Path) -> None:
    channels = {
        "telegram": {"enabled": True, "bot_token": "1:a", "base_url": "http://127.0.0.1:9/bot"}
    }
    config = write_config(tmp_path, {"channels": channels})
    async with at_a_terminal(config, tmp_path / "home", "serve") as terminal:
        assert "playground" not in await terminal.sees("Parley is running", "logs", "token")
        terminal.type(CTRL_C)
        assert await terminal.leaves() == 0
