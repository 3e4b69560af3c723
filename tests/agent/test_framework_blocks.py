"""Stripping the framework's blocks from people's messages leaves their own text, for any input."""

import re
import signal
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.guardrails.oap_limits import first_words
from agent.memory.merge import remove_upload_mentions
from agent.middleware.sanitization import escape_reserved_tags
from agent.redaction import redact_error
from agent.suggestions import parse_suggestions
from agent.tools.web.page import html_to_markdown
from agent.user_messages import strip_framework_blocks
from bots.slack.stream_text import escape_stream_text
from bots.text.links import is_deceptive
from bus.history.user_messages import user_text
from bus.runs.questions import is_approval
from bus.runs.redaction import redact

PARTS = (
    *("<attachments>", "</attachments>", "<System-Reminder>", "</system-reminder>"),
    *("<uploaded_files>", "</UPLOADED_FILES>", "<current_uploads>", "<\u017fystem-reminder>"),
    *("</", "<", ">", " ", "\n", "words", "</attachments"),
)
LONG = 1_000_000
"""Length of the input, characters. Quadratic code that took seconds for 200,000 takes minutes."""

CPU_S = 5.0
"""CPU time after which the process is interrupted, seconds. The functions need a tenth of a second."""


WHOLE = re.compile(
    r"<(?ai:(uploaded_files|current_uploads|attachments|system-reminder))>.*?</(?ai:\1)>\s*",
    re.DOTALL,
)
WHOLE_OF_BUS = re.compile(
    r"<(uploaded_files|current_uploads|attachments|system-reminder|current_date|memory)>.*?</\1>\s*",
    re.DOTALL,
)


@given(st.lists(st.sampled_from(PARTS), max_size=14).map("".join))
def test_blocks_go_and_nothing_else(text: str) -> None:
    assert strip_framework_blocks(text) == WHOLE.sub("", text).strip()
    assert user_text({"content": text}) == WHOLE_OF_BUS.sub("", text).strip()


@pytest.fixture
def interrupted() -> Iterator[None]:
    """Interrupt the test when it has used `CPU_S` of CPU time, however slow the machine is."""

    def interrupt(_signal: int, _frame: object) -> None:
        raise AssertionError(f"more than {CPU_S:.0f} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.usefixtures("interrupted")
@pytest.mark.parametrize("opening", ["<attachments>", "<system-reminder></"])
def test_openings_without_an_end_take_time_in_proportion(opening: str) -> None:
    text = opening * (LONG // len(opening))
    assert strip_framework_blocks(text) == text
    assert user_text({"content": text}) == text


@pytest.mark.usefixtures("interrupted")
def test_dots_without_an_end_take_time_in_proportion() -> None:
    """The text is one that a model was tricked into writing into the notes."""
    text = f"Ann uploaded a file{'.' * LONG}x. She likes tea."
    assert remove_upload_mentions(text) == "She likes tea."


@pytest.mark.usefixtures("interrupted")
@pytest.mark.parametrize("almost", ["secret", "token", "eyJ-"])
def test_near_secrets_are_scanned_in_linear_time(almost: str) -> None:
    """Arguments and errors of tools."""
    text = almost * (LONG // 8 // len(almost))
    assert redact(text) == text
    assert redact_error(text) == text


@pytest.mark.usefixtures("interrupted")
@pytest.mark.parametrize("opening", ["[", '["a",', "[1,", '[{"a":'])
def test_lists_without_an_end_take_time_in_proportion(opening: str) -> None:
    """The text is one that a model was tricked into suggesting."""
    assert parse_suggestions(opening * (LONG // len(opening)), 3) == []


@pytest.mark.usefixtures("interrupted")
@pytest.mark.parametrize("almost", ["token=$", "bearer $", "://a:", "token=${"])
def test_shell_commands_are_scanned_in_linear_time(almost: str) -> None:
    assert "$" in redact(f"{almost * (LONG // 8 // len(almost))}$(id)")


@pytest.mark.usefixtures("interrupted")
def test_blanks_in_a_tag_take_time_in_proportion() -> None:
    """Anybody can write such input."""
    text = f"<{' ' * LONG}x"
    assert escape_reserved_tags(text) == text


@pytest.mark.usefixtures("interrupted")
@pytest.mark.parametrize("ending", [".", " ", "。"])
def test_endings_within_an_answer_take_time_in_proportion(ending: str) -> None:
    """People's answers to an approval request."""
    assert not is_approval(f"no{ending * LONG}x")


@pytest.mark.usefixtures("interrupted")
@pytest.mark.parametrize("opening", [":", "<", "@", "!", ":/"])
def test_openings_within_a_stream_take_time_in_proportion(opening: str) -> None:
    text = opening * (LONG // len(opening)) + "x"
    assert escape_stream_text(text).endswith("x")


@pytest.mark.usefixtures("interrupted")
@pytest.mark.parametrize("part", ["a.", "aa-", "a+"])
def test_labels_take_time_in_proportion(part: str) -> None:
    assert is_deceptive(part * (LONG // len(part)), "https://example.org")


@pytest.mark.usefixtures("interrupted")
def test_digits_of_a_command_take_time_in_proportion() -> None:
    digits = "1" * (LONG // 10)
    assert first_words(digits) == [digits]


@pytest.mark.usefixtures("interrupted")
@pytest.mark.parametrize("opening", ["<p>a", "<pre>a"])
@pytest.mark.parametrize("blanks", [" ", f"{' ' * 60}<b></b>"])
def test_blanks_of_a_page_take_time_in_proportion(opening: str, blanks: str) -> None:
    """The content of a page that the agent reads."""
    html = opening + blanks * (LONG // len(blanks)) + "x"
    assert html_to_markdown(html.encode())[1].rstrip("`\n").endswith("x")
