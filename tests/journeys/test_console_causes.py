"""Why a message got no answer: an operator finds each cause in three clicks and repeats the message."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.browser import BrowserPage, needs_chromium, open_browser
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.console_views import sign_in_as_admin
from tests.journeys.service import serving, with_model
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackDirectUser
from tests.people.telegram import TelegramPrivateUser

pytestmark = needs_chromium

MAX_CLICKS = 3
BROKEN, TOOL = "what does it cost?", "list the files"


def answer(request: ModelRequest) -> ModelReply:
    """Call a tool for one message, and answer all others."""
    said = request.last_user_text
    if said == TOOL and request.messages[-1]["role"] != "tool":
        return ModelReply(calls=(ToolCall("ls", {"path": "/mnt/user-data"}),))
    return ModelReply(text=f"Done: {said}")


def broken(request: ModelRequest) -> ModelReply:
    """Fail for one message."""
    return ModelReply(status=500) if request.last_user_text == BROKEN else answer(request)


@asynccontextmanager
async def operator(
    folder: Path,
) -> AsyncIterator[tuple["Operator", PlatformServers, FakeModelServer]]:
    """Run a service that limits Telegram to one message an hour and asks before it lists files, and sign in."""
    async with PlatformServers() as platforms, FakeModelServer(answer=answer) as model:
        telegram = {k: v for k, v in platforms.channels["telegram"].items() if k != "dm_policy"}
        limit = {"rate_limit": {"messages": 1, "per_seconds": 3600}}
        config = {
            **with_model(model.base_url),
            "guardrails": {"enabled": True, "ask": ["ls"]},
            "channels": {"slack": platforms.channels["slack"], "telegram": {**telegram, **limit}},
        }
        names = ("slack", "telegram")
        async with serving(folder, config, *names) as service, open_browser(folder) as page:
            await page.open(service.url)
            await sign_in_as_admin(page, service)
            yield Operator(page), platforms, model
            assert page.errors == []


class Operator:
    """A person at the console who counts clicks.

    Attributes:
        clicks: Number of clicks since the overview was opened.
    """

    def __init__(self, page: BrowserPage) -> None:
        self.page = page
        self.clicks = 0

    async def open_overview(self) -> None:
        """Begin at the overview."""
        await self.page.evaluate("location.hash = 'overview'")
        await self.page.wait_for_text("All checks", "main")
        self.clicks = 0

    async def open_number(self, label: str, count: int) -> None:
        """Click on a number of the overview, once it is `count`."""
        numbers = "[...document.querySelectorAll('a.number')]"
        shown = f"{numbers}.map(one => one.innerText.replaceAll('\\n', ' '))"
        found = await eventually(
            lambda: self.page.evaluate(shown),
            lambda texts: any(text.startswith(f"{count} {label}") for text in texts),
        )
        (text,) = [text for text in found if text.startswith(f"{count} {label}")]
        await self.page.click(text.replace(f"{count} ", f"{count}\n", 1), "main")
        self.clicks += 1

    async def reads(self, reason: str, words: str) -> None:
        """Check that a row of the view has a message and its reason, and that it took few enough clicks."""
        assert self.clicks <= MAX_CLICKS
        rows = "[...document.querySelectorAll('main tbody tr')].map(one => one.innerText)"
        await eventually(
            lambda: self.page.evaluate(rows),
            lambda texts: any(reason in text and words in text for text in texts),
        )

    async def press(self, *labels: str) -> None:
        """Press a button of the view, and those of the dialogs that it opens."""
        for number, label in enumerate(labels):
            await self.page.click(label, "dialog" if number else "main tbody")


async def test_each_cause_is_found_in_three_clicks_and_the_message_repeated(tmp_path: Path) -> None:
    """Check all causes with one service and one browser, because they take seconds to start."""
    async with operator(tmp_path) as (someone, platforms, model):
        await _the_model_fails(someone, platforms, model)
        await _the_platform_refuses_the_answer(someone, platforms)
        await _a_stranger_is_refused(someone, platforms)
        await _a_person_writes_too_often(someone, platforms)
        await _a_tool_waits_for_approval(someone, platforms)


async def _the_model_fails(
    someone: Operator, platforms: PlatformServers, model: FakeModelServer
) -> None:
    ann = SlackDirectUser(platforms.slack)
    model.answer = broken
    await ann.send(BROKEN)
    await ann.wait_for_message("The model's server had a problem")
    model.answer = answer
    await someone.open_overview()
    await someone.open_number("failed turns", 1)
    await someone.reads("The model's server failed. OpenAIAPIError: HTTP 500", BROKEN)
    await someone.press("Answer again", "Answer again")
    await ann.wait_for_message(f"Done: {BROKEN}")


async def _the_platform_refuses_the_answer(someone: Operator, platforms: PlatformServers) -> None:
    """Find the message among the messages, where it does not count as answered, and among the deliveries."""
    ben, cat = (SlackDirectUser(platforms.slack, user=user) for user in ("U2BEN", "U3CAT"))
    platforms.slack.fail("chat.postMessage", times=2, error="channel_not_found")
    for person in (ben, cat):
        await person.send(f"the agenda, {person.chat}?")
    reason = "Slack does not know this channel, or the bot is not in it: invite the bot."
    await someone.open_overview()
    await someone.open_number("not delivered", 2)
    await someone.reads(reason, f"Done: the agenda, {ben.chat}?")
    await someone.open_overview()
    await someone.page.click("Messages", "nav")
    await someone.reads(reason, f"the agenda, {ben.chat}?")
    await _only_this_is_listed(someone, "answered", BROKEN, not_this="the agenda")
    cats = f"the agenda, {cat.chat}?"
    await _only_this_is_listed(someone, "undelivered", cats, not_this=BROKEN)
    await _open_message(someone, f"the agenda, {cat.chat}?")
    await someone.reads(reason, f"the agenda, {cat.chat}?")
    await someone.press("Send again")
    await cat.expect_messages(f"Done: the agenda, {cat.chat}?")
    await someone.page.evaluate("location.hash = 'messages?state=undelivered'")
    await someone.reads("not delivered", f"the agenda, {ben.chat}?")
    await someone.press("Send again")
    await ben.expect_messages(f"Done: the agenda, {ben.chat}?")


async def _only_this_is_listed(someone: Operator, state: str, this: str, *, not_this: str) -> None:
    await someone.page.evaluate(f"location.hash = 'messages?state={state}'")
    await eventually(
        lambda: someone.page.text("main tbody"),
        lambda shown: this in shown and not_this not in shown,
    )


async def _open_message(someone: Operator, words: str) -> None:
    row = f"[...document.querySelectorAll('main tr.opens')].find(one => one.innerText.includes({json.dumps(words)}))"
    await eventually(lambda: someone.page.evaluate(f"!!{row}"))
    await someone.page.evaluate(f"{row}.click()")
    await someone.page.wait_for_text("Take over", "main")


async def _a_stranger_is_refused(someone: Operator, platforms: PlatformServers) -> None:
    sam = TelegramPrivateUser(platforms.telegram, user=7001)
    await sam.send("can you help me?")
    await sam.wait_for_message("code")
    await someone.open_overview()
    await someone.open_number("refused", 1)
    await someone.reads("The person has to be approved.", "can you help me?")
    await someone.press("Let this person in")
    await someone.press("Answer")
    await sam.wait_for_message("Done: can you help me?")


async def _a_person_writes_too_often(someone: Operator, platforms: PlatformServers) -> None:
    sam = TelegramPrivateUser(platforms.telegram, user=7001)
    await sam.send("first")
    await sam.wait_for_message("Done: first")
    await sam.send("and then?")
    await sam.wait_for_message("too fast")
    await someone.open_overview()
    await someone.open_number("refused", 1)
    await someone.reads("The person sent too many messages.", "and then?")
    await someone.press("Answer")
    await sam.wait_for_message("Done: and then?")


async def _a_tool_waits_for_approval(someone: Operator, platforms: PlatformServers) -> None:
    ann = SlackDirectUser(platforms.slack, user="U4DAN")
    await ann.send(TOOL)
    await eventually(ann.button_labels, lambda labels: "Approve" in labels)
    await someone.open_overview()
    await someone.open_number("wait for a person", 1)
    await someone.reads("A tool waits for an approval in the chat.", TOOL)
    await someone.press("Answer again", "Answer again")
    await eventually(lambda: len([one for one in ann.shown() if "Approve" in one.buttons]))
    await eventually(
        ann.shown,
        lambda shown: len([one for one in shown if "need your approval" in one.text]) == 2,
    )
    await ann.wait_and_press("Approve")
    await ann.wait_for_message(f"Done: {TOOL}")
