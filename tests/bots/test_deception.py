"""Deceptive links and texts are exposed on every platform."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bots.feishu.cards import CardFooter, final_card, note_card
from bots.feishu.format import render as render_feishu
from bots.slack.buttons import action_blocks
from bots.slack.format import render as render_slack
from bots.slack.format import render_note as render_slack_note
from bots.slack.stream_text import escape_stream_text
from bots.telegram.format import render as render_telegram
from bots.telegram.format import render_note as render_telegram_note
from bots.telegram.keyboard import keyboard
from bots.telegram.rich_blocks import rich_blocks
from bots.text.links import is_deceptive
from bus.inbound.clean import clean_message
from bus.messages import Button, ReplyTarget, Sender
from bus.platform import OutgoingFile
from tests.bots.slack_rig import fast_slack, running
from tests.bus.harness import attachment, inbound_message

BIDI = [chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))]


def slack(markdown: str) -> str:
    shown = render_slack(markdown)
    return f"{shown.text} {shown.blocks}"


def telegram(markdown: str) -> str:
    shown = render_telegram(markdown)
    return f"{shown.text} {shown.entities}"


def rich(markdown: str) -> str:
    return json.dumps(rich_blocks(f"# x\n\n{markdown}"), ensure_ascii=False)


PLATFORMS = pytest.mark.parametrize(
    "render", [slack, telegram, rich, render_feishu, escape_stream_text]
)


@pytest.mark.parametrize(
    ("label", "url"),
    [
        ("https://bank.example", "https://evil.example"),
        ("**https://bank.example**/login", "https://evil.example/bank.example"),
        ("www.bank.com", "https://evil.com"),
        ("bank.com", "https://bank.com.evil.com"),
        ("bank.com", "https://bank.com@evil.com"),
        ("bank\u2060.com", "https://evil.com"),
        ("bank。com", "https://evil.com"),
        ("Log in at bank.com", "https://evil.com"),
        ("HTTPS://BANK.COM", "https://evil.com"),
        ("https:/bank.com", "https://evil.com"),
        ("bank.com", "https://b\u0430nk.com"),
        ("a@bank.com", "mailto:a@evil.com"),
        ("bank.example/login", "https://evil.com"),
        ("mybank.gr", "https://evil.com"),
        ("bank.ai", "https://evil.com"),
    ],
)
def test_a_label_that_is_another_address_deceives(label: str, url: str) -> None:
    assert is_deceptive(label.replace("*", ""), url)


@pytest.mark.parametrize(
    ("label", "url"),
    [
        ("the docs", "https://x.example"),
        ("https://bank.com/a", "https://bank.com/b"),
        ("bank.com", "http://www.bank.com"),
        ("login.bank.com", "https://bank.com"),
        ("README.md", "https://code.example/README.md"),
        ("main.rs", "https://code.example"),
        ("e.g. this", "https://x.example"),
        ("v1.2.3", "https://x.example"),
        ("v1.2/changes", "https://x.example"),
        ("src/main.rs", "https://x.example"),
        ("Node.js", "https://x.example"),
        ("a@bank.com", "mailto:a@bank.com"),
        ("ask a@bank.com", "https://bank.com/contact"),
        ("", "https://x.example"),
    ],
)
def test_other_labels_do_not(label: str, url: str) -> None:
    assert not is_deceptive(label, url)


@pytest.mark.parametrize("mark", ["", "!"])
@pytest.mark.parametrize("render", [slack, telegram, rich, render_feishu])
def test_a_deceptive_link_shows_where_it_goes(render: Callable[[str], str], mark: str) -> None:
    honest, deceptive = (
        render(f"{mark}[{label}](https://evil.example/x)") for label in ("Sign in", "www.bank.com")
    )
    assert "www.bank.com (" in deceptive
    assert deceptive.count("https://evil.example/x") > honest.count("https://evil.example/x")


@pytest.mark.parametrize("render", [slack, render_feishu])
@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "data:text/html,hi"])
def test_a_forbidden_link_is_not_a_link_on_platforms_that_read_markdown(
    url: str, render: Callable[[str], str]
) -> None:
    """The parser leaves it as text. So do the platforms: it is sent as rich text or with the bracket as an entity."""
    shown = render(f"See [www.bank.com]({url}).")
    literal = f"{{'type': 'text', 'text': 'See [www.bank.com]({url}).'}}"
    assert literal in shown or f"[www.bank.com&#93;({url})" in shown


def test_letters_that_look_alike_show_as_they_are() -> None:
    assert "bank.com (https://xn--bnk-6cd.com)" in telegram("[bank.com](https://b\u0430nk.com)")
    assert not is_deceptive("[::1", "https://[::1")


@PLATFORMS
def test_marks_that_reorder_text_are_removed(render: Callable[[str], str]) -> None:
    for char in BIDI:
        for text in (f"a{char}b", f"`a{char}b`", f"```\na{char}b\n```", f"[a{char}b](https://x)"):
            assert char not in render(text), hex(ord(char))
    assert "\u200f" in render("\u200fשלום")


@pytest.mark.parametrize("char", BIDI)
def test_marks_that_reorder_text_are_removed_from_buttons(char: str) -> None:
    buttons = (Button(label=f"Keep{char}eteled", token="t"),)
    cards = final_card("text", CardFooter(buttons=buttons))
    for shown in (action_blocks(buttons), keyboard(buttons), cards):
        assert "Keepeteled" in str(shown)
        assert char not in str(shown)


@pytest.mark.parametrize("char", BIDI)
def test_names_of_people_and_files_are_taken_in_the_order_that_they_have(char: str) -> None:
    """An administrator approves people by their names, and the agent reads the names of files."""
    message = inbound_message(
        "hi",
        "e1",
        sender=Sender(user_id="u", name=f"Ann{char}nimda"),
        attachments=(attachment(f"invoice{char}fdp.exe"),),
    )
    cleaned = clean_message(message)
    assert (cleaned.sender.name, cleaned.attachments[0].name) == ("Annnimda", "invoicefdp.exe")


@PLATFORMS
def test_the_title_of_a_link_is_not_shown(render: Callable[[str], str]) -> None:
    shown = render('[a](https://x.example "\u202ewww.bank.com")')
    assert "x.example" in shown
    assert "\u202e" not in shown


async def test_alternative_texts_of_images_are_cleaned(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"png")
    image = OutgoingFile(path=path, name="my\u202egnp.tac", mime="image/png", size_bytes=3)
    async with fast_slack() as slack, running(slack) as adapter:
        await adapter.send_file(ReplyTarget(chat=slack.dm("hi").channel), image, key="1")
        (file,) = slack.workspace.files.values()
        assert (file.name, file.extra["alt_txt"]) == ("mygnp.tac", "mygnp")


@pytest.mark.parametrize("render", [slack, telegram, rich, render_feishu])
@pytest.mark.parametrize(
    "hidden", ["&#{0};", "&#x{0:x};", "[a&#{0};](https://x)", "![&#{0};](https://x)"]
)
def test_entities_hide_no_characters(render: Callable[[str], str], hidden: str) -> None:
    for char in BIDI:
        shown = render(f"a {hidden.format(ord(char))} b")
        assert char not in shown
        assert "&#" not in shown


@pytest.mark.parametrize("render", [slack, telegram, rich, render_feishu])
def test_addresses_hide_no_characters(render: Callable[[str], str]) -> None:
    shown = render("<https://a.example/%1bc%07%E2%80%AEgpj.exe> " + "*" * 40 + "<x%1b@a.example>")
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "\\u001b" not in shown
    assert "https://a.example/" in shown


def test_a_note_of_spoken_words_pings_nobody() -> None:
    words = "🎤 <!channel> <@U1> @parley_bot *b* \u202e"
    slack = render_slack_note(words)
    [block] = slack.blocks
    [element] = block["elements"]
    assert (block["type"], element["type"]) == ("context", "plain_text")
    assert "\u202e" not in element["text"]
    assert "<!channel>" not in slack.text
    telegram = render_telegram_note(words)
    assert "@parley_bot" not in telegram.text
    assert [entity.type for entity in telegram.entities] == ["blockquote"]
    assert render_telegram_note("w " * 300).entities[0].type == "expandable_blockquote"
    card = note_card(words)
    assert str(card).count("'plain_text'") == 1
    assert "markdown" not in str(card)
