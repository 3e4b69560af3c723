"""The console's deliveries, refusals and approvals in a real browser. Reversible actions need no confirmation."""

import json
from pathlib import Path

from bus.locales.en import ENGLISH
from tests.browser import BrowserPage, needs_chromium
from tests.eventually import eventually
from tests.journeys.console_views import sign_in
from tests.journeys.service import Service
from tests.journeys.test_console import HOSTILE, console
from tests.people.slack import SlackDirectUser
from tests.people.telegram import TelegramPrivateUser

pytestmark = needs_chromium

LONG = "\u202eevil " + "x" * 3000


async def go(page: BrowserPage, address: str) -> None:
    """Open an address of the console, with the pointer away from the rows."""
    await page.point_at("nav")
    await page.evaluate(f"location.hash = {json.dumps(address)}")


async def signed_in(page: BrowserPage, service: Service) -> None:
    await sign_in(page, (service.home / "admin_token").read_text().strip())
    await page.wait_for_text("connected", '[data-channel="slack"]')
    page.errors.clear()  # This is the refused request before the sign-in.


async def test_deliveries_are_discarded_restored_and_sent_again(tmp_path: Path) -> None:
    async with console(tmp_path) as (page, service, platforms, _):
        await signed_in(page, service)
        people = [SlackDirectUser(platforms.slack, user=f"U{number}USER") for number in (1, 2, 3)]
        platforms.slack.fail("chat.postMessage", times=3, error="channel_not_found")
        for number, person in enumerate(people):
            await person.send(f"{HOSTILE if number else LONG} {number}")
        await go(page, "#deliveries?state=failed")
        await page.wait_for_text("Discard all 3", "main")
        await _one_is_discarded_and_restored(page)
        await _all_that_match_are_discarded_and_restored(page, service)
        await _the_place_and_the_error_are_filters(page)
        await _a_phone_reaches_each_action(page)
        await _all_are_sent_again_after_a_question(page, people)
        assert page.errors == []
        assert await page.evaluate("document.title") == "Deliveries – Parley"


async def rows(page: BrowserPage) -> int:
    """Return the number of visible rows."""
    return int(await page.evaluate("document.querySelectorAll('main tbody tr:not(.gone)').length"))


async def _one_is_discarded_and_restored(page: BrowserPage) -> None:
    await page.click("Discard", "main td")
    await page.wait_for_text("The delivery is discarded.", "#notice")
    await page.wait_for_text("Discard all 2", "main")
    await page.click("Undo", "#notice")
    await page.wait_for_text("Restored, as before.", "#notice")
    await page.wait_for_text("Discard all 3", "main")
    await page.click("Discard", "main td")
    await page.wait_for_text("Discard all 2", "main")
    await go(page, "#deliveries?state=discarded")
    await page.wait_for_text("discarded", "main tbody .pill")
    await page.click("Restore", "main td")
    await page.wait_for_text("Restored, as before.", "#notice")
    await page.point_at("nav")
    await page.wait_for_text("Nothing found.", "main")


async def _all_that_match_are_discarded_and_restored(page: BrowserPage, service: Service) -> None:
    await go(page, "#deliveries?state=failed")
    await page.click("Discard all 3", "main")
    await page.wait_for_text("3 of 3 are discarded.", "#notice")
    await page.wait_for_text("Nothing found.", "main")
    await page.click("Undo", "#notice")
    await page.wait_for_text("Restored, as before.", "#notice")
    await page.wait_for_text("Discard all 3", "main")
    lines = [json.loads(line) for line in (service.home / "audit.log").read_text().splitlines()]
    (discarded,) = [line for line in lines if line["action"].endswith("/outbox/discard")]
    assert discarded["detail"] == "3 of 3 deliveries discarded"
    assert discarded["target"].endswith("?state=failed")


async def _the_place_and_the_error_are_filters(page: BrowserPage) -> None:
    await go(page, "#deliveries?state=failed&q=nothing+like+it")
    await page.wait_for_text("Nothing found.", "main")
    await go(page, "#deliveries?state=failed&channel=slack&q=DOES+NOT+KNOW")
    await eventually(lambda: rows(page), lambda count: count == 3)
    chat = (
        await page.evaluate("document.querySelector('main tbody td:nth-child(2) span').title")
    ).split(" · ")
    await go(page, f"#deliveries?state=failed&chat={chat[1]}")
    await eventually(lambda: rows(page), lambda count: count == 1)


async def _a_phone_reaches_each_action(page: BrowserPage) -> None:
    await page.resize(390, 800)
    await go(page, "#deliveries?state=failed")
    await page.wait_for_text("Discard all 3", "main")
    assert await page.evaluate("document.documentElement.scrollWidth") == 390
    right = "one.getBoundingClientRect().right > 390"
    outside = f"[...document.querySelectorAll('main button')].filter(one => {right}).length"
    assert await page.evaluate(outside) == 0
    await page.resize(1280, 800)


async def _all_are_sent_again_after_a_question(
    page: BrowserPage, people: list[SlackDirectUser]
) -> None:
    await page.click("Send all 3 again", "main")
    await page.wait_for_text("This cannot be undone.", "dialog")
    await page.click("Send again", "dialog")
    await page.wait_for_text("3 of 3 are sent again.", "#notice")
    for person in people:
        await person.wait_for_message("You said: ")


async def test_refused_people_are_let_in_and_told_and_approvals_are_undone(tmp_path: Path) -> None:
    async with console(tmp_path) as (page, service, platforms, _):
        await signed_in(page, service)
        ann, bob = (TelegramPrivateUser(platforms.telegram, user=user) for user in (7001, 7002))
        await ann.send(HOSTILE)
        await ann.wait_for_message("code")
        await _somebody_is_let_in_beside_the_refusal(page, ann)
        await bob.send("first words of Bob")
        await bob.wait_for_message("code")
        await _an_approval_is_undone_before_the_person_is_told(page, bob)
        await _a_revocation_is_undone(page, service)
        assert page.errors == []


async def _somebody_is_let_in_beside_the_refusal(
    page: BrowserPage, ann: TelegramPrivateUser
) -> None:
    await go(page, "#messages?state=refused")
    await page.wait_for_text(HOSTILE, "main tbody")
    await page.click("Let this person in", "main")
    await page.wait_for_text("is approved.", "#notice")
    await page.wait_for_text("The bot answers them now.", "main tbody")
    await ann.wait_for_message(ENGLISH.pairing_approved)
    await ann.send("now?")
    await ann.wait_for_message("You said: now?")


async def _an_approval_is_undone_before_the_person_is_told(
    page: BrowserPage, bob: TelegramPrivateUser
) -> None:
    await go(page, "#people")
    await page.wait_for_text("first words of Bob", "main")
    assert "7002" in await page.text("main")
    await page.click("Approve", "main")
    await page.wait_for_text("is approved.", "#notice")
    await page.click("Undo", "#notice")
    await page.wait_for_text("no longer has access.", "#notice")
    await bob.send("again")
    await eventually(
        lambda: [text for text in bob.bot_messages() if "code" in text], lambda said: len(said) == 2
    )
    assert ENGLISH.pairing_approved not in bob.bot_messages()


async def _a_revocation_is_undone(page: BrowserPage, service: Service) -> None:
    async with service.client() as client:

        async def approved() -> list[str]:
            listed = (await client.get("/api/channels/pairings")).json()["rows"]
            return [row["code"] for row in listed if row["approved_at"]]

        (code,) = await approved()
        await page.click("Revoke", "main")
        # The notice of the previous approval has the same text.
        await eventually(approved, lambda codes: codes == [])
        # The service is done before the page shows it. Until then, the page still shows Bob's notice.
        await page.wait_for_text("User7001 no longer has access.", "#notice")
        await page.click("Undo", "#notice")
        await page.wait_for_text("is approved.", "#notice")
        assert await approved() == [code]


async def test_a_setting_is_named_where_no_approval_helps(tmp_path: Path) -> None:
    async with console(tmp_path, telegram={"dm_policy": "disabled"}) as (
        page,
        service,
        platforms,
        _,
    ):
        await signed_in(page, service)
        await TelegramPrivateUser(platforms.telegram, user=7001).send("hello?")
        await go(page, "#messages?state=refused")
        sentence = "Setting: channels.telegram.dm_policy"
        await page.wait_for_text(sentence, "main tbody a")
        assert await page.evaluate("document.querySelectorAll('main td button').length") == 0
