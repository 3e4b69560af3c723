"""The catalogs of texts: complete, translated, within the platforms' limits."""

import ast
import re
from dataclasses import asdict
from pathlib import Path
from string import Formatter

import pytest

from bus.commands import COMMANDS
from bus.locales import LANGUAGES
from bus.locales.en import ENGLISH, Messages
from bus.platform import Disposition

ROOT = Path(__file__).parents[2]
CATALOGUES = list(LANGUAGES.items())
OTHERS = [(code, texts) for code, texts in CATALOGUES if texts is not ENGLISH]
SAME_ANYWHERE: set[str] = set()
"""Texts that contain no words."""

DESCRIPTION_CHARACTERS = 256
"""Limit of Telegram's BotCommand."""
LABEL_CHARACTERS = 75
"""Limit of a Slack button."""
TOAST_CHARACTERS = 200
"""Limit of Telegram's answerCallbackQuery."""


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


def fields(texts: Messages) -> dict[str, str]:
    return {name: str(text) for name, text in asdict(texts).items()}


@pytest.mark.parametrize(("code", "texts"), OTHERS)
def test_a_text_has_the_same_places_in_every_language(code: str, texts: Messages) -> None:
    ours = fields(texts)
    differing = {
        name for name, text in fields(ENGLISH).items() if places(text) != places(ours[name])
    }
    assert not differing, code


@pytest.mark.parametrize(("code", "texts"), CATALOGUES)
def test_places_have_names(code: str, texts: Messages) -> None:
    unnamed = {name for name, text in fields(texts).items() if not all(places(text) or {"x"})}
    assert not unnamed, code


@pytest.mark.parametrize(("code", "texts"), OTHERS)
def test_no_text_was_left_in_english(code: str, texts: Messages) -> None:
    ours = fields(texts)
    copied = {name for name, text in fields(ENGLISH).items() if text == ours[name]}
    assert copied <= SAME_ANYWHERE, code


def test_chinese_texts_contain_no_english() -> None:
    strange = {
        name for name, text in fields(LANGUAGES["zh"]).items() if not re.search(r"[一-鿿]", text)
    }
    assert strange <= {"why_line", "why_reason", "language_auto"}


@pytest.mark.parametrize(("code", "texts"), CATALOGUES)
def test_texts_are_as_short_as_platforms_want_them(code: str, texts: Messages) -> None:
    limits = {
        "help_": DESCRIPTION_CHARACTERS,
        "button_": LABEL_CHARACTERS,
        "press_": TOAST_CHARACTERS,
    }
    for name, text in fields(texts).items():
        assert text.strip() == text, (code, name)
        assert text, (code, name)
        for prefix, limit in limits.items():
            if name.startswith(prefix):
                assert len(text.encode("utf-16-le")) // 2 <= limit, (code, name)
                assert "\n" not in text, (code, name)


@pytest.mark.parametrize(("code", "texts"), CATALOGUES)
def test_every_command_and_every_reason_is_explained(code: str, texts: Messages) -> None:
    assert all(texts.help(command.name) for command in COMMANDS), code
    refusals = [reason for reason in Disposition if reason is not Disposition.ACCEPTED]
    assert all(texts.why(reason.value) for reason in refusals), code


def test_language_names_tell_languages_apart() -> None:
    names = [texts.language for texts in LANGUAGES.values()]
    assert len(set(names)) == len(names)


def test_every_text_is_used() -> None:
    modules = [
        path for package in ("bus", "bots", "gateway") for path in (ROOT / package).rglob("*.py")
    ]
    said = {
        node.attr
        for path in modules
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
    }
    looked_up = (
        "help_",
        "why_",
        "speech_why_",
        "schedule_outcome_",
    )  # selected by a command's name or by a reason
    unsaid = {
        name for name in fields(ENGLISH) if name not in said and not name.startswith(looked_up)
    }
    assert unsaid == set()
