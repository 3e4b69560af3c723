"""Seeded documents as models write them, and readers that return what users of each platform see of a document."""

import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token

from bots.feishu.format import render as render_feishu
from bots.slack.format import render as render_slack
from bots.telegram.format import render as render_telegram
from bots.telegram.rich_blocks import rich_blocks
from gateway.playground.slack.checks import block_error, text_findings
from gateway.playground.slack.state import block_words
from gateway.playground.telegram.chats import mentions
from gateway.playground.telegram.rich import checked_blocks, names_in, words_of

_WORDS = (
    "so", "the", "value", "runs", "on", "it", "für", "数据", "then", "two", "see", "and", "it's", "x", "$5", "$6.50",
    "a - b", "AT&T", "5 * 3", "R&amp;D", "what?", "50%", "snake\\_case", "\\*so\\*", "#1", "if a < b", "100~200",
)  # fmt: skip
_NAMES = ("a", "b_c", "user_id", "x1", "_y", "my_long_name", "T", "z_")
_MARKS = ("**{}**", "*{}*", "_{}_", "~~{}~~", "`{}`", "[{}](https://e.org/p)")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenDocument:
    """A document, its literal spans, and its words as a CommonMark reader shows them, line by line."""

    markdown: str
    literals: tuple[str, ...]
    shown: str


def written_documents(count: int, *, seed: int = 30) -> Iterator[WrittenDocument]:
    """Yield documents, the same ones each time."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    for _ in range(count):
        yield _Writer(chance).document()


class _Writer:
    """Writes one document. Each literal span is a single word until the CommonMark is parsed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._literals: dict[str, str] = {}

    def document(self) -> WrittenDocument:
        draft = "\n\n".join(self._block() for _ in range(self._chance.randint(1, 2)))
        return WrittenDocument(
            markdown=self._filled(draft),
            literals=tuple(self._literals.values()),
            shown=self._filled(read_markdown(draft)),
        )

    def _filled(self, text: str) -> str:
        return re.sub(r"Q\d+Q", lambda name: self._literals[name[0]], text)

    def _block(self) -> str:  # noqa: PLR0911 - one return per kind
        match self._chance.randrange(10):
            case 0:
                return f"## {self._line()}"
            case 1:
                return "\n".join(f"- {self._line()}" for _ in range(2))
            case 2:
                return f"1. {self._line()}\n   - {self._line()}"
            case 3:
                return f"> {self._line()}"
            case 5:
                return f"- [ ] {self._line()}\n- [x] {self._line()}"
            case 6:
                return f"```py\n  {self._line()}\n```"
            case 4:
                return f"{self._line()}\n{self._line()}"
            case _:
                return self._line()

    def _line(self) -> str:
        return " ".join(self._piece() for _ in range(self._chance.randint(1, 6)))

    def _piece(self) -> str:
        chance = self._chance
        match chance.randrange(6):
            case 0 | 1:
                return chance.choice(_WORDS) + chance.choice(["", "", ",", "."])
            case 2:
                words = " ".join(chance.choices(_WORDS, k=chance.randint(1, 2)))
                return chance.choice(_MARKS).format(words)
            case 3:
                mark = chance.choice(("**{}**", "*{}*", "~~{}~~", "_{}_"))
                return mark.format(
                    f"{chance.choice(_WORDS)} {self._literal()} {chance.choice(_WORDS)}"
                )
            case _:
                return chance.choice(("{}", "{}", "({})", "{},", "{}.", "{}:")).format(
                    self._literal()
                )

    def _literal(self) -> str:
        name = f"Q{len(self._literals)}Q"
        self._literals[name] = self._chance.choice(_LITERALS)(self._chance)
        return name


def _formula(chance: random.Random) -> str:
    signs = ("*", " + ", "_", "^", r"\cdot ", " < ", r"\_", " * ", "=")
    inner = "".join(
        f"{chance.choice('abxyz')}_{chance.randint(1, 9)}{chance.choice(signs)}" for _ in range(2)
    )
    form = chance.choice(("${}$", "$${}$$", r"\({}\)", r"\[{}\]"))
    return form.format(inner + chance.choice(("n", "b*c", r"\alpha")))


def _address(chance: random.Random) -> str:
    tail = chance.choice(
        ("?a=1&copy=2", "#_top", "/*", "/~me/_x_y", "_(b)", "/@some_one/__init__.py", "")
    )
    return f"https://{chance.choice('ab')}.example/{chance.choice(_NAMES)}/_{chance.choice(_NAMES)}x{tail}".rstrip(
        "*"
    )


def _path(chance: random.Random) -> str:
    a, b = chance.choice(_NAMES), chance.choice(_NAMES)
    forms = (
        "/{0}/_{1}x",
        "~/{0}/{1}/*.py",
        "C:\\{0}\\_{1}x",
        "\\\\host\\{0}\\_{1}x",
        "./{0}/__{1}x",
        "src/**/{0}{1}x.ts",
    )
    return chance.choice(forms).format(a, b)


def _identifier(chance: random.Random) -> str:
    forms = (
        "snake_case_{0}x", "__init__", "__{1}__", "*args", "**kwargs", "a*b*{1}", "obj.__class__.__name__", "x**2",
        "std::_{0}x", "HEAD~~1", "p->_{0}x", "{1}_{0}x", "*.py",
    )  # fmt: skip
    return chance.choice(forms).format(chance.choice(_NAMES), chance.choice(("a", "x1", "name")))


def _placeholder(chance: random.Random) -> str:
    forms = (
        "<{0}>",
        "<YOUR_{0}>",
        "{{{0}}}",
        "${{{0}}}",
        "</{0}>",
        "<@U1>",
        "<!here>",
        "{{{{ _{0}_ }}}}",
    )
    return chance.choice(forms).format(chance.choice(_NAMES))


def _name(chance: random.Random) -> str:
    forms = ("@types/{0}x", "@{0}x", "@channel", "@here", "@_all", "me_{0}x@e.org", "@my_org/_{0}x")
    return chance.choice(forms).format(chance.choice(_NAMES))


_LITERALS: tuple[Callable[[random.Random], str], ...] = (
    _formula, _address, _path, _identifier, _placeholder, _name,
)  # fmt: skip

_READER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def read_markdown(markdown: str) -> str:
    """Return what a CommonMark reader shows, line by line and without list markers."""
    return "\n".join(_lines(_READER.parse(markdown)))


def _lines(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type in {"fence", "code_block"}:
            yield token.content
        elif token.type == "inline":
            yield "".join(map(_words, token.children or ()))


def _words(token: Token) -> str:
    return "\n" if token.type.endswith("break") else token.content


def _plain(text: str) -> str:
    """Return the words of a text without list markers."""
    lines = (
        re.sub(r"^\s*(?:• |\d+\. )?(?:☑ |☐ |\[[x ]\] )?", "", line) for line in text.split("\n")
    )
    return " ".join(" ".join(lines).split())


def see_slack(markdown: str) -> str:
    """Return what people see on Slack."""
    message = render_slack(markdown)
    assert block_error(list(message.blocks)) == ""
    assert list(text_findings(message.text, list(message.blocks))) == []
    return "\n".join(
        read_markdown(block["text"]) if block["type"] == "markdown" else block_words(block)
        for block in message.blocks
    )


def see_telegram(markdown: str) -> str:
    """Return what people see on Telegram."""
    message = render_telegram(markdown)
    marked = [{"type": e.type, "offset": e.offset, "length": e.length} for e in message.entities]
    assert mentions(message.text, marked) == []
    return message.text


def see_rich_telegram(markdown: str) -> str:
    """Return what people see on Telegram in a rich message, with formulas as they were written."""
    blocks = rich_blocks(markdown)
    if blocks is None:
        return see_telegram(markdown)
    checked_blocks({"blocks": blocks})
    assert names_in(blocks) == []
    return words_of(blocks)


def see_feishu(markdown: str) -> str:
    """Return what people see on Feishu."""
    shown = render_feishu(markdown)
    assert not re.search(r"<(?:at|person|font)\b|@_all|@_user", shown)
    return read_markdown(shown)


READERS: Mapping[str, Callable[[str], str]] = {
    "slack": see_slack, "telegram": see_telegram, "rich telegram": see_rich_telegram, "feishu": see_feishu,
}  # fmt: skip


_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([a-z]_\d[^$]*)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]")


def _inside(formula: re.Match[str]) -> str:
    return str(next(filter(None, formula.groups())))


def faults(document: WrittenDocument, platform: str) -> list[str]:
    """Return the errors that people see in a document."""
    seen = READERS[platform](document.markdown)
    wanted = document.shown
    literals = document.literals
    if platform == "rich telegram":  # Formulas are native there, so they have no delimiters.
        formulas = [one for one in literals if _FORMULA.fullmatch(one)]
        wanted, seen = _FORMULA.sub(_inside, wanted), _FORMULA.sub(_inside, seen)
        literals = tuple(one for one in literals if one not in formulas)
    found = [f"not as it was written: {one}" for one in literals if one not in seen]
    if _plain(seen) != _plain(wanted):
        found.append(f"another text: {_plain(seen)!r} instead of {_plain(wanted)!r}")
    return found + ["an invisible character"] * ("\u2060" in seen)
