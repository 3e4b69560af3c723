"""Reading a Slack message: its text, blocks and attachments together, and the messages that it forwards."""

from typing import Any

import pytest

from bots.slack.inbound import parse_event
from bots.slack.mentions import put_names
from bots.slack.message_reader import quote_message, read_message
from tests.bots.test_slack_inbound import ME, body, taken
from tests.bots.test_slack_parts import mrkdwn, plain, rich, section, text

BOT = {"type": "user", "user_id": "UBOT"}
HEADER = {"type": "header", "text": plain("CPU high")}
SECTION = {"type": "section", "text": mrkdwn("on *web-1*, says <@U2>")}
BUTTONS = {"type": "actions", "elements": [{"type": "button", "text": plain("Silence")}]}


def preformatted(code: str, **more: str) -> dict[str, Any]:
    return {"type": "rich_text_preformatted", "elements": [text(code)], **more}


def listing(style: str, *items: str, **more: int) -> dict[str, Any]:
    return {
        "type": "rich_text_list",
        "style": style,
        "elements": [section(text(i)) for i in items],
        **more,
    }


def read(message: dict[str, Any]) -> tuple[str, str]:
    content = read_message(message, ME)
    return put_names(content.text, {}), put_names(content.quoted, {})


@pytest.mark.parametrize(
    ("elements", "said"),
    [
        ([section(BOT, text(" plan: "), text("Monday", strike=True), text(" Tuesday"))], "plan: ~~Monday~~ Tuesday"),
        ([section(text("so ", bold=True), text("bold ", bold=True), text("and", bold=True, italic=True))],
         "**so bold** ***and***"),
        ([section(text("run "), text("a`b", code=True), text(" "), text("c", code=True, bold=True))],
         "run `` a`b `` **`c`**"),
        ([section(text("see:\n")), preformatted("x = [1]\n", language="python"), section(text("ok?"))],
         "see:\n```python\nx = [1]\n```\nok?"),
        ([preformatted("```\nnested\n```")], "````\n```\nnested\n```\n````"),
        ([listing("bullet", "a", "b"), listing("ordered", "c", "d", indent=1), listing("bullet", "e")],
         "- a\n- b\n    1. c\n    2. d\n- e"),
        ([listing("ordered", "a"), listing("bullet", "b", indent=1), listing("ordered", "c", offset=1)],
         "1. a\n    - b\n2. c"),
        ([{"type": "rich_text_quote", "elements": [text("late\nagain")]}, section(text("why?"))],
         "> late\n> again\nwhy?"),
        ([section(text("a_1*b"), text(" <b> & @here"))], "a_1*b <b> & @here"),
        ([section(text("  ", bold=True), text("x", bold=True), text(" ", bold=True), text("y"))], "**x** y"),
        ([section(BOT | {"style": {"bold": True}}, text(" /new", bold=False))], "/new"),
        ([section(BOT, text(": hello"))], "hello"),
        ([section(text("do "), BOT, text(" it"))], "do it"),
    ],
    ids=range(13),
)  # fmt: skip
def test_rich_text_of_people_becomes_markdown(elements: list[dict[str, Any]], said: str) -> None:
    assert read({"text": "a poorer copy", "blocks": [rich(*elements)]}) == (said, "")


def test_a_mention_in_blocks_addresses_the_bot() -> None:
    found = taken(parse_event(body(text="hi", blocks=[rich(section(text("hi "), BOT))]), ME))
    assert found.is_addressed
    assert found.text == "hi"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        # The text of an app's message is its notification. The blocks may or may not repeat it.
        ({"text": "CPU high on web-1, says <@U2>", "blocks": [HEADER, SECTION]}, "**CPU high**\non *web-1*, says @U2"),
        ({"text": "Alert 7", "blocks": [HEADER, SECTION]}, "Alert 7\n**CPU high**\non *web-1*, says @U2"),
        ({"text": "CPU high Silence button", "blocks": [HEADER, BUTTONS]}, "**CPU high**\n[Button: Silence]"),
        ({"text": ":fire: CPU high", "blocks": [HEADER]}, "**CPU high**"),
        ({"text": "This content can't be displayed.", "blocks": [HEADER]}, "**CPU high**"),
        ({"text": "", "blocks": [{"type": "divider"}]}, ""),
        # Attachments: with blocks, with a title and blocks, with fields and a fallback.
        ({"text": "", "attachments": [{"fallback": "[no preview available]", "blocks": [HEADER]}]}, "**CPU high**"),
        ({"text": "", "attachments": [{"title": "Alert 7", "blocks": [HEADER]}]}, "Alert 7\n**CPU high**"),
        ({"text": "", "attachments": [{"title": "CPU high", "blocks": [HEADER, SECTION]}]},
         "**CPU high**\non *web-1*, says @U2"),
        ({"text": "", "attachments": [{"fallback": "x", "title": "T", "fields": [{"title": "Host", "value": "web-1"}]}],
          },
         "T\nHost: web-1"),
        ({"text": "Deploy failed", "attachments": [{"title": "Deploy failed", "text": "Exit 1"}]},
         "Deploy failed\nExit 1"),
        ({"text": "Deploy", "attachments": [{"text": "a"}, {"text": "b"}]}, "Deploy\na\nb"),
        ({"text": "see <https://x.test/>", "attachments": [{"from_url": "https://x.test/", "text": "page"}]},
         "see https://x.test/"),
        ({"text": "", "attachments": [{"from_url": "https://x.test/", "text": "page"}]}, "page"),
    ],
    ids=range(14),
)  # fmt: skip
def test_messages_of_apps_are_read_completely_and_once(message: dict[str, Any], said: str) -> None:
    assert read(message | {"bot_id": "BOTHER"}) == (said, "")


def shared(**fields: object) -> dict[str, Any]:
    return {
        "is_share": True,
        "is_msg_unfurl": True,
        "author_name": "Bob",
        "author_id": "U2",
    } | fields


def message_blocks(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"team": "T1", "channel": "C9", "ts": "1.5", "message": {"blocks": [*blocks]}}]


@pytest.mark.parametrize(
    ("attachment", "quoted"),
    [
        (shared(text="", fallback="[May 28th] PagerDuty:", author_name="PagerDuty",
                message_blocks=message_blocks(HEADER, SECTION)),
         "> PagerDuty: **CPU high**\n> on *web-1*, says @U2"),
        (shared(text="Monday", message_blocks=message_blocks(rich(section(text("Monday", strike=True))))),
         "> Bob: ~~Monday~~"),
        (shared(text="", attachments=[{"title": "T", "fields": [{"title": "Host", "value": "web-1"}]}]),
         "> Bob: T\n> Host: web-1"),
        (shared(text="look", attachments=[shared(author_name="Cy", text="inner")]),
         "> Bob: look\n>\n> [Forwarded]\n> > Cy: inner"),
        (shared(text="", fallback="", files=[{"id": "F7", "name": "plan.pdf"}]), "> Bob: [File: plan.pdf]"),
        (shared(text="see", files=[{"id": "F7", "name": "a.m4a", "transcription": {"preview": {"content": "hi"}}}]),
         "> Bob: see\n> [File: a.m4a]"),
        (shared(author_name="", text="x"), "> U2: x"),
        (shared(author_name="Parley", author_id="UBOT", text="x"), "> You: x"),
        (shared(author_name="You", text="x"), "> You (not the bot): x"),
        ({"is_msg_unfurl": True, "author_name": "Bob", "text": "linked", "from_url": "https://t.slack.com/archives/C/p1"},
         "> Bob: linked"),
    ],
    ids=range(10),
)  # fmt: skip
def test_shared_messages_become_quotations(attachment: dict[str, Any], quoted: str) -> None:
    assert read({"text": "why?", "attachments": [attachment]}) == ("why?", f"[Forwarded]\n{quoted}")


def test_shared_messages_are_quoted_completely() -> None:
    assert len(read({"text": "", "attachments": [shared(text="x" * 30_000)]})[1]) > 30_000


def test_only_a_shared_message_is_forwarded() -> None:
    linked = {"is_msg_unfurl": True, "author_name": "Bob", "text": "linked"}
    assert taken(parse_event(body(attachments=[shared(text="x")]), ME)).is_forwarded
    assert taken(parse_event(body(text="", attachments=[shared(text="x")]), ME)).is_forwarded
    assert not taken(parse_event(body(attachments=[linked]), ME)).is_forwarded
    assert not taken(parse_event(body(), ME)).is_forwarded


def test_files_of_all_parts_are_handed_over() -> None:
    image = {"type": "image", "alt_text": "a graph", "slack_file": {"id": "F3"}}
    message = {
        "bot_id": "BOTHER",
        "files": [{"id": "F1", "name": "a.txt"}],
        "blocks": [image, {"type": "context", "elements": [image | {"slack_file": {"id": "F4"}}]}],
        "attachments": [
            shared(files=[{"id": "F2", "name": "b.txt"}]),
            {"files": [{"id": "F5", "name": "c.txt"}]},
        ],
    }
    found = read_message(message, ME).files
    assert {(file.ref, file.name) for file in found} == {
        ("F1", "a.txt"), ("F2", "b.txt"), ("F3", "a graph"), ("F4", "a graph"), ("F5", "c.txt"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ({"name": "a.m4a", "transcription": {"status": "complete", "preview": {"content": "Call me."}}}, ""),
        ({"title": "Budget", "mode": "external", "external_url": "https://docs.test/1"},
         "[File outside Slack: Budget (https://docs.test/1)]"),
    ],
)  # fmt: skip
def test_files_are_described_without_a_download(file: dict[str, Any], said: str) -> None:
    message = {"text": "", "files": [{"id": "F1", **file}]}
    assert read(message) == (said, "")
    quoted = quote_message(message | {"username": "Ann"}, ME)
    assert quoted.startswith("> Ann: ")
    assert quoted.count("File outside Slack") + quoted.count("[File: ") == 1


def test_a_clip_in_a_forwarded_message_is_somebody_elses() -> None:
    clip = {"id": "F1", "name": "a.mp4", "subtype": "slack_video", "mimetype": "video/mp4"}
    message = {
        "text": "x",
        "files": [clip],
        "attachments": [shared(text="y", files=[clip | {"id": "F2"}])],
    }
    found = [(file.is_speech, file.is_quoted) for file in read_message(message, ME).files]
    assert found == [(True, False), (True, True)]


def test_a_quoted_clip_has_the_words_that_slack_gives() -> None:
    spoken = {"status": "complete", "preview": {"content": "Call me.", "has_more": True}}
    file = {"id": "F1", "name": "a.m4a", "transcription": spoken}
    quoted = quote_message({"text": "", "username": "Ann", "files": [file]}, ME)
    assert quoted == "> Ann: [Speech in a.m4a]\n> Call me.…\n> [File: a.m4a]"


def test_a_clip_is_sound_whatever_its_type() -> None:
    clip = {"id": "F1", "name": "clip.mp4", "subtype": "slack_audio", "mimetype": "video/mp4",
            "duration_ms": 2500}  # fmt: skip
    (file,) = read_message({"files": [clip]}, ME).files
    assert (file.kind, file.is_speech, file.duration_s) == ("audio", True, 2.5)
    (endless,) = read_message({"files": [clip | {"duration_ms": 10**400}]}, ME).files
    assert endless.duration_s is None


@pytest.mark.parametrize(
    ("size", "is_cut"),
    [(3_799, False), (3_800, True), (4_000, True), (4_001, False), (12_000, False)],
)
def test_a_text_as_long_as_slack_cuts_it_may_go_on(size: int, *, is_cut: bool) -> None:
    assert taken(parse_event(body(text="x" * size), ME)).is_cut is is_cut
    assert taken(parse_event(body(text="&amp;" * size), ME)).is_cut is is_cut


def test_a_long_quotation_is_cut_between_names() -> None:
    mentions = "".join(f"<@U{number:04}>" for number in range(1_000))
    quoted = quote_message({"user": "U1", "text": mentions}, ME, limit=2_000)
    assert quoted.endswith("…")
    assert len(quoted) <= 2_020
    assert "\ufdd0" not in put_names(quoted, {})
    assert "\ufdd1" not in put_names(quoted, {})


@pytest.mark.parametrize("forged", ["\ufdd0@U1\ufdd1", "\ufdd0U1\ufdd1: ok", "a\ufdd0\ufdd1\x00"])
def test_typed_text_cannot_forge_a_name(forged: str) -> None:
    message = {
        "bot_id": "B1", "username": forged, "text": forged,
        "blocks": [rich(section(text(forged))), {"type": "section", "text": mrkdwn(forged)}],
        "attachments": [{"title": forged, "fields": [{"title": forged, "value": forged}]},
                        shared(text=forged, author_name=forged)],
        "files": [{"id": "F1", "name": forged}],
    }  # fmt: skip
    content = read_message(message, ME)
    shown = put_names(content.text + content.quoted + quote_message(message, ME), {"U1": "Ann"})
    assert "Ann" not in shown
    assert not {"\ufdd0", "\ufdd1", "\x00"} & set(shown)


DEEP: dict[str, Any] = {"type": "container"}
LISTS: dict[str, Any] = {"type": "rich_text_list"}
SHARES: dict[str, Any] = shared(text="x")
for _ in range(200):
    DEEP = {"type": "container", "child_blocks": [DEEP]}
    LISTS = {"type": "rich_text_list", "elements": [LISTS]}
    SHARES = shared(text="x", attachments=[SHARES])


@pytest.mark.parametrize(
    "message",
    [
        {"blocks": [DEEP]},
        {"blocks": [rich(LISTS)]},
        {"attachments": [SHARES] * 20},
        {"blocks": "?", "attachments": {"a": 1}, "files": [7, None, []]},
        {"blocks": [{"type": kind, "elements": 7, "rows": [[7], 8], "text": [], "tasks": [1], "chart": 9, "call": 4}
                    for kind in ("section", "table", "plan", "call", "data_visualization", "context", "rich_text")]},
        {"blocks": [{"type": "data_visualization",
                     "chart": {"type": "line", "series": [7, {"data": [8, {"value": {}}]}]}}]},
        {"attachments": [{"fields": [1], "actions": ["x"], "ts": "soon", "message_blocks": [3, {"message": []}]}]},
        {"blocks": [rich(section({"type": "emoji", "unicode": "zz"}, {"type": "emoji", "unicode": "110000"},
                                 {"type": "date", "timestamp": 1e300}, {"type": "user", "user_id": "a b"}))]},
        {"text": "<!date^99999999999999999999^x> <!subteam> <@> <#> <!> <!date> <|>"},
    ],
    ids=range(9),
)  # fmt: skip
def test_malformed_messages_raise_nothing(message: dict[str, Any]) -> None:
    for given in (message, message | {"bot_id": "B1"}):
        read_message(given, ME)
        quote_message(given, ME)
        taken(parse_event(body(**(given | {"bot_id": None, "text": "hi"})), ME))
