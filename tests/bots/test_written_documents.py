"""Documents as models write them: literal spans arrive byte for byte, and the rest arrives as CommonMark reads it.

The suite reads 2,000 documents of one seed; `make test-long` reads 10,000.
"""

import os
from collections.abc import Sequence
from functools import cache

import pytest

from bots.text.delimiters import finish_inline
from bots.text.literals import literals
from bots.text.markdown import close_open, parse
from tests.bots.written_documents import READERS, WrittenDocument, faults, written_documents

COUNT = 10_000 if os.environ.get("PARLEY_TEST_LONG") == "1" else 2_000


@cache
def documents() -> Sequence[WrittenDocument]:
    return tuple(written_documents(COUNT))


@pytest.mark.parametrize("platform", READERS)
def test_the_bots_text_arrives_as_written(platform: str) -> None:
    wrong = {
        document.markdown: found
        for document in documents()
        if (found := faults(document, platform))
    }
    assert wrong == {}


def test_documents_that_are_still_written_can_be_shown() -> None:
    for document in documents()[:500]:
        for end in range(0, len(document.markdown), 7):
            parse(close_open(document.markdown[:end]))


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("$a_1*b_1 + a_2*b_2$", ["$a_1*b_1 + a_2*b_2$"]),
        (r"\(a_1\), \[b*c\] and $$x_1$$", [r"\(a_1\)", r"\[b*c\]", "$$x_1$$"]),
        (
            r"\begin{align*}a_1 &= b*c\\ x\end{align*}",
            [r"\begin{align*}a_1 &= b*c\\ x\end{align*}"],
        ),
        ("$5 and $6, US$5 and CA$7, in $HOME:$PATH", []),
        ("from $5 for each to $10 (or more)", []),
        ("it is $x$ or $10$", ["$x$", "$10$"]),
        ("`$x_1*y$` and `a*b*c`", []),
        ("https://a.b/_c_?x=1&copy=2.", ["https://a.b/_c_?x=1&copy=2"]),
        ("**https://a.b/c**text", ["https://a.b/c"]),
        ("_see https://a.b/c_", ["https://a.b/c"]),
        ("(https://en.wikipedia.org/wiki/A_(b)_c)", ["https://en.wikipedia.org/wiki/A_(b)_c"]),
        ("见https://a.b/_c_。好", ["https://a.b/_c_"]),
        (r"C:\x_y, \\host\a_b\_c and %APPDATA%\_x", [r"C:\x_y", r"\\host\a_b\_c", r"%APPDATA%\_x"]),
        (r"snake\_case and 1\. x", []),
        ("/a/*.py and /b/*.py, src/**/*.ts, *.py", ["/a/*.py", "/b/*.py", "**/*.ts", "*.py"]),
        ("yes/**no** and/or *maybe*", []),
        ("__init__ and __Bold__ or __two words__", ["__init__"]),
        ("obj.__class__.__name__", ["obj.__class__.__name__"]),
        ("*args and **kwargs, *word* and **word**", ["*args", "**kwargs"]),
        ("a*b*c", ["*", "*"]),
        ("x**2 + y**2", ["**", "**"]),
        ("**API**s, the **API key**s", []),
        ("API**v2接口**，", []),
        ("*foo*bar", []),
        ("foo*bar*", []),
        ("*so a*b is*", ["*"]),
        (
            "<name>, <YOUR_TOKEN>, {user_id}, ${X_Y}",
            ["<name>", "<YOUR_TOKEN>", "{user_id}", "${X_Y}"],
        ),
        ("<https://a.b/_c_> <me@a.b> 1 < 2 > 0", []),
        ("npm i @types/node, me_x@a.b", ["@types/node", "me_x@a.b"]),
        ("||no|| and a || b", ["||no||"]),
        ("H<sub>2</sub>O", ["<sub>2</sub>"]),
    ],
)
def test_the_grammar_of_literal_spans(text: str, spans: list[str]) -> None:
    assert literals(text) == spans


@pytest.mark.parametrize("words", [r"so \(a_1*b", "x $$a*b", r"\[a_1"])
def test_a_formula_that_is_still_written_is_closed(words: str) -> None:
    closed = finish_inline(words)
    assert closed.startswith(words)
    assert any(span.startswith(("\\", "$$")) for span in literals(closed))
