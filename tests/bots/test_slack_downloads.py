"""Downloads from Slack: the token goes only to Slack, and every refusal has a reason."""

import logging

import pytest
from aiohttp import web

from bots.slack.adapter import SlackAdapter
from bus.errors import DeliveryError
from bus.messages import Attachment
from tests.bots.slack_rig import QUICK, fast_slack, running
from tests.fakes.intake import RecordingIntake

LIMIT = 1_000_000


async def fetched(adapter: SlackAdapter, ref: str, limit: int = LIMIT) -> bytes:
    file = Attachment(name="a", ref=ref)
    async with adapter.download(file, max_bytes=limit) as chunks:
        return b"".join([chunk async for chunk in chunks])


def ref_of(file: dict[str, object]) -> str:
    return str(file["id"])


async def test_a_file_of_a_message_is_fetched() -> None:
    content = bytes(range(256)) * 1000
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        shared = slack.file("图.bin", content)
        slack.dm("see this", files=[shared], subtype="file_share")
        await slack.wait_for(lambda: intake.received)
        [attachment] = intake.received[0].attachments
        async with adapter.download(attachment, max_bytes=LIMIT) as chunks:
            assert b"".join([chunk async for chunk in chunks]) == content
    assert slack.violations == []


@pytest.mark.parametrize("error", ["unknown_method", "file_not_found"])
async def test_a_files_url_in_the_message_is_used_if_slack_returns_none(
    error: str,
) -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        slack.fail("files.info", error=error)
        file = slack.file("a.bin", b"content")
        file["url_private_download"] = f"{slack.server.url}/files-pri/{file['id']}"
        slack.dm("see this", files=[file], subtype="file_share")
        await slack.wait_for(lambda: intake.received)
        [attachment] = intake.received[0].attachments
        assert await fetched(adapter, attachment.ref) == b"content"


async def test_an_address_in_a_message_that_leads_elsewhere_is_not_used() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        slack.fail("files.info", error="unknown_method")
        with pytest.raises(DeliveryError, match="is not stored at Slack"):
            await fetched(adapter, "F1 https://evil.example/x")


async def test_a_shared_web_page_is_a_file_and_no_sign_in_page() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        file = slack.file("p.html", b"<html>hi</html>", "text/html")
        assert await fetched(adapter, ref_of(file)) == b"<html>hi</html>"


CANVAS = b"<div class='quip-canvas-content'><h1>Q3 plan</h1><p>Sign in to Slack first.</p></div>"


@pytest.mark.parametrize(
    ("mode", "mimetype"),
    [
        ("quip", "application/vnd.slack-docs"),
        ("space", "text/plain"),
        ("post", "text/plain"),
        ("email", "text/html"),
        ("canvas", "text/html"),
    ],
)
async def test_canvases_and_posts_are_downloaded_as_html(mode: str, mimetype: str) -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        file = slack.document(mode, "Q3 &amp; more", CANVAS * 2_000, mimetype=mimetype)
        slack.dm("see", files=[file], subtype="file_share")
        await slack.wait_for(lambda: intake.received)
        (attached,) = intake.received[0].attachments
        assert (attached.name, attached.mime) == ("Q3 & more.html", "text/html")
        assert await fetched(adapter, attached.ref) == CANVAS * 2_000
    assert slack.violations == []


async def test_a_list_comes_as_a_table_and_one_that_slack_keeps_says_so() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        known = slack.list_of_items("To-do", b"Name,Done\nFerry,false\n")
        kept = slack.list_of_items("Secret", None)
        slack.dm("see", files=[known, kept], subtype="file_share")
        await slack.wait_for(lambda: intake.received)
        first, second = intake.received[0].attachments
        assert (first.name, first.mime) == ("To-do.csv", "text/csv")
        assert await fetched(adapter, first.ref) == b"Name,Done\nFerry,false\n"
        with pytest.raises(
            DeliveryError, match="does not let apps read the items of this list"
        ) as caught:
            await fetched(adapter, second.ref)
        assert not caught.value.retryable
    assert slack.violations == []


@pytest.mark.parametrize(
    "page",
    [
        "<html>Sign in to Slack</html>",
        "<!DOCTYPE html><html lang='en'><head><title>Sign in | Slack</title>",
        "<html><head><title>Login | Slack</title>",
    ],
)
async def test_the_sign_in_page_is_no_canvas(page: str) -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        file = slack.document("quip", "Plan", CANVAS, mimetype="application/vnd.slack-docs")
        slack.fail("download", body=page)
        with pytest.raises(DeliveryError, match="files:read"):
            await fetched(adapter, ref_of(file))


@pytest.mark.parametrize(
    ("access", "says"),
    [("access_denied", "not allowed to see it"), ("file_not_found", "was deleted, or the app")],
)
async def test_files_that_the_app_may_not_see_say_so(access: str, says: str) -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        slack.dm("see", files=[{"id": "F2", "file_access": access}], subtype="file_share")
        await slack.wait_for(lambda: intake.received)
        with pytest.raises(DeliveryError, match=says):
            await fetched(adapter, intake.received[0].attachments[0].ref)


@pytest.mark.parametrize("mimetype", ["image/png", "text/html"])
async def test_the_sign_in_page_is_no_file(mimetype: str) -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        file = slack.file("a.png", b"content", mimetype)
        slack.server.bot_token = "xoxb-renewed"
        with pytest.raises(DeliveryError):
            await fetched(adapter, ref_of(file))
        slack.server.bot_token = slack.bot_token
    async with fast_slack() as slack, running(slack) as adapter:
        file = slack.file("a.png", b"content", mimetype)
        slack.fail("download", body="<html>Sign in to Slack</html>")
        with pytest.raises(DeliveryError, match="files:read") as caught:
            await fetched(adapter, ref_of(file))
        assert not caught.value.retryable


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"mode": "external", "is_external": True}, "outside Slack"),
        ({"url_private_download": "", "mode": "tombstone"}, "no longer provides the file"),
        ({"url_private_download": "https://evil.example/x"}, "is not stored at Slack"),
        ({"url_private_download": "file:///etc/passwd"}, "is not stored at Slack"),
        ({"size": LIMIT + 1}, "it is larger than 1 MB"),
    ],
    ids=str,
)
async def test_files_that_cannot_be_downloaded_are_reported(
    extra: dict[str, object], says: str
) -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        file = slack.file("a", b"content", "text/plain", **extra)
        with pytest.raises(DeliveryError, match=says) as caught:
            await fetched(adapter, ref_of(file))
        assert not caught.value.retryable
        assert "http" not in caught.value.user_message


async def test_a_body_longer_than_announced_is_cut_off() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        file = slack.file("a", bytes(2000), size=10)
        with pytest.raises(DeliveryError, match="it is larger"):
            await fetched(adapter, ref_of(file), limit=1000)


async def test_a_redirect_elsewhere_gets_no_token() -> None:
    seen: list[str] = []

    async def other(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.Response(body=b"x")

    app = web.Application()
    app.router.add_get("/{any:.*}", other)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        async with fast_slack() as slack, running(slack) as adapter:
            file = slack.file("a", b"content")
            slack.fail("download", status=302, headers={"Location": f"http://127.0.0.1:{port}/x"})
            with pytest.raises(DeliveryError, match="is not stored at Slack"):
                await fetched(adapter, ref_of(file))
            slack.fail("download", status=302, headers={"Location": f"/files-pri/{file['id']}"})
            assert await fetched(adapter, ref_of(file)) == b"content"
    finally:
        await runner.cleanup()
    assert seen == []


@pytest.mark.parametrize(
    ("method", "trouble", "retryable", "wait_s"),
    [
        ("files.info", {"error": "file_not_found"}, False, None),
        ("files.info", {"status": 429, "headers": {"Retry-After": "7"}}, True, 7.0),
        ("download", {"status": 429, "headers": {"Retry-After": "7"}}, True, 7.0),
        ("download", {"status": 503}, True, None),
        ("download", {"status": 404}, False, None),
        (
            "download",
            {"drop": "before", "times": 2},
            True,
            None,
        ),  # aiohttp retries once by itself
        ("download", {"delay_s": 1.0}, True, None),
    ],
    ids=str,
)
async def test_failures_are_mapped_to_errors_with_decisions(
    caplog: pytest.LogCaptureFixture,
    method: str,
    trouble: dict[str, object],
    *,
    retryable: bool,
    wait_s: float | None,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with fast_slack() as slack, running(slack, timeouts=QUICK) as adapter:
        file = slack.file("a", b"content")
        slack.fail(method, **trouble)  # type: ignore[arg-type]
        with pytest.raises(DeliveryError) as caught:
            await fetched(adapter, ref_of(file))
        error = caught.value
        assert (error.retryable, error.retry_after_s) == (retryable, wait_s)
        assert not error.ambiguous
        assert slack.bot_token not in f"{error} {caplog.text}"
        assert await fetched(adapter, ref_of(file)) == b"content"


async def test_a_missing_permission_names_itself() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        file = slack.file("a", b"content")
        slack.server.scopes.discard("files:read")
        with pytest.raises(DeliveryError, match="files:read"):
            await fetched(adapter, ref_of(file))


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("tombstone", "it was deleted"),
        ("hidden_by_limit", "limit of its plan"),
        ("external", "outside Slack"),
    ],
)
async def test_files_that_have_no_content_come_with_the_reason(mode: str, says: str) -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        good = slack.file("a.txt", b"content")
        slack.dm("", files=[good, {"id": "F2", "mode": mode}, good], subtype="file_share")
        await slack.wait_for(lambda: intake.received)
        (one,) = intake.received  # Several files of one message are one turn.
        assert [attachment.name for attachment in one.attachments] == ["a.txt", "F2", "a.txt"]
        with pytest.raises(DeliveryError, match=says) as caught:
            async with adapter.download(one.attachments[1], max_bytes=LIMIT):
                pass
        assert not caught.value.retryable
        assert slack.asked("files.info") == []
    assert slack.violations == []


async def test_a_file_that_the_event_does_not_describe_is_asked_about() -> None:
    """In channels shared with another company, Slack sends only the file's ID (`file_access: check_file_info`)."""
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake):
        file = slack.file("plan.pdf", b"pdf", "application/pdf")
        bare = {"id": file["id"], "file_access": "check_file_info"}
        slack.mention(
            "what is this?", files=[bare, {"id": "F404", "file_access": "check_file_info"}]
        )
        await slack.wait_for(lambda: intake.received)
        named, unknown = intake.received[0].attachments
        assert (named.name, named.mime, named.size_bytes) == ("plan.pdf", "application/pdf", 3)
        assert (unknown.name, unknown.mime) == ("F404", "application/octet-stream")
