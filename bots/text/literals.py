r"""Literal spans: parts of a paragraph in which Markdown marks have no effect. Pure, linear.

They are found from left to right, before emphasis, escapes and entities are read. The first match counts.
Code spans, autolinks and escapes are skipped, because Markdown handles them.

| Span | Form |
|---|---|
| formula | `$$..$$`, `\(..\)`, `\[..\]`, `\begin{x}..\end{x}` |
| formula | `$..$` on one line, with no blank or opening bracket just inside its ends and no letter, digit, `$` or `{` just outside; either a single word, or text with a mathematical sign that does not begin like an amount of money |
| address | `http(s)://`, `ftp://`, `www.`, up to a blank, a quote, `<`, `>`, CJK punctuation, or a bracket that it did not open |
| mail address | `a_b@c.de` |
| placeholder | `<name>`, `<YOUR_TOKEN>`, `</tag>`, `{user_id}`, `${VAR}`, `{{ x }}`, `{% x %}` |
| path | `/a_b/c`, `./a`, `../a`, `~/a`, `a/_b`, `C:\x_y`, `\\host\x`, `%VAR%\x`; globs in paths, `*.py`, `**/x` |
| identifier | `__init__`, `a._b`, `a::_b`, `a->_b`, `*args`, `**kwargs`, `/*x*/`; `snake_case` needs no rule |
| name | `@types/node`, `@some_one_` |
| product | `a*b*c`, `x**2 + y**2`, `HEAD~~1`: marks between two ASCII letters, digits or brackets, if they pair with no mark outside |
| spoiler | `||x||`, with no blank just inside its ends and no letter just outside; Markdown inside it is read |
| script | `<sub>2</sub>`, `<sup>2</sup>` |

Marks or punctuation at the end of a span stay outside (`**https://a.b/**`, `see /a_b/c_d.`). Intended emphasis
stays: `*word*`, `_word_`, `**bold**`, `__Bold__`, `**API**s`, `~~x~~`. `$5 and $6` is not a formula.
"""  # noqa: E501 - a table

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from bots.text.flanking import delimiters

Kind: TypeAlias = Literal["text", "address", "formula", "spoiler", "sub", "sup"]

_SPECIAL = re.compile(r"[`<\\$@{*~_|]|://|www\.|%\\")
"""Every span contains one of these characters, so text without them is skipped. Python's `re` finds them fast."""

_WORD_REACH = 256
"""How far back to look for the start of the word around a special character, characters."""

_LONGEST_FORMULA = 4_000

_ITALIC = re.compile(r"(?<![A-Za-z0-9_])_+(?=[^\s_])")
_DUNDER_END = re.compile(r"(?:^|[^A-Za-z0-9_])__[A-Za-z0-9]+(?:_+[A-Za-z0-9]+)*__\Z")
_CODE_LIKE = re.compile(r"[./#>:\\-]_|[A-Za-z0-9]_[./#:\\-]|[*~]")
_MATH_SIGN = re.compile(r"[\\^_=+*/<>{}|-]|\A\S+\Z")
_AMOUNT = re.compile(r"\d[\d.,]*\s+[^\W\d_]{2}")
"""Text that begins like an amount of money: `$5 for each, $`."""

_W = "[A-Za-z0-9_]"
_STOP = r"(?(star)(?!\*))(?(wave)(?!~))"
"""A span directly after a mark ends where that mark occurs again, so that no text is read twice."""

_GLOB = rf"{_STOP}\*{{1,2}}(?=[./])"
_TOKEN = re.compile(
    rf"""
    (?:(?<=\*)(?P<star>))?+(?:(?<=~)(?P<wave>))?+(?:
    (?P<ticks>`+)
    |(?P<auto><(?:[A-Za-z][A-Za-z0-9+.-]{{1,31}}:[^<>\s]{{0,2000}}|[^<>\s@`]{{1,100}}@[^<>\s@`]{{1,100}})>)
    |(?P<script><(?P<level>su[bp])>[^<>\n`]{{1,60}}</(?P=level)>)
    |(?P<tag><(?:[A-Za-z_/!?$@\#{{*][^\s<>`]{{0,200}}|[A-Za-z/!?][\w\s.,:;/'"=|-]{{0,200}})>)
    |(?P<unc>\\\\[\w.$-]++\\[^\s<>"|?*`]++)
    |(?P<tex>\\[(\[]|\$\$|\\begin\{{(?P<env>[A-Za-z]{{1,30}}\*?)\}})
    |(?P<escape>\\.)
    |(?P<dollar>(?<![\w$\\])\$(?![\s$])(?:[^$\\\n`]|\\.|`[^`\n]*`)++(?<![\s(\[{{])\$(?![\w${{]))
    |(?P<address>(?:https?|ftp)://(?:{_STOP}[^\s<>"'`\[\](){{}}|\\\u3000-\u303f\uff00-\uffef\u2018-\u201f]
        |\([^\s()<>\[\]]{{0,500}}\)|\[[^\s()<>\[\]]{{0,500}}\]|\{{[^\s{{}}<>]{{0,200}}\}})++)
    |(?P<www>www\.[A-Za-z0-9](?:{_STOP}[^\s<>"'`\[\](){{}}|\\\u3000-\u303f\uff00-\uffef\u2018-\u201f])*+)
    |(?P<mail>[A-Za-z0-9_][A-Za-z0-9_.+-]{{0,100}}@[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)++)
    |(?P<drive>(?:[A-Za-z]:|%\w++%|(?<![\w.])\.{{1,2}})\\(?:{_STOP}[^\s<>"|?*`])*+)
    |(?P<comment>(?<!\w)/\*[^*\n]{{1,200}}\*/)
    |(?P<path>(?<![\w/.\\:])(?:~|\.{{1,2}})?/(?=[\w.*~@${{%+-])
        (?:{_STOP}[\w./@%+=,:~$-]|{_GLOB}|\{{[^{{}}\s*]{{0,200}}\}})++)
    |(?P<at>(?<!\w)@[A-Za-z0-9_][\w./-]*+)
    |(?P<brace>\{{\{{[^{{}}\n]{{0,200}}\}}\}}|\{{%[^{{}}\n]{{0,200}}%\}}|\$?\{{[^{{}}\s]{{0,200}}\}})
    |(?P<dunder>__[a-z0-9]+(?:_+[a-z0-9]+)*__(?!{_W}))
    |(?P<word>[A-Za-z0-9]{_W}*+(?:(?:\.|/|::|->|\#|-)(?:{_GLOB}[./])?{_W}++)*+(?:(?<=/){_GLOB}[\w./-]++)?)
    |(?P<arguments>(?<!\*)\*{{1,2}}(?:args|kwargs|kwds|kw|rest)\b(?!\*))
    |(?P<glob>(?<!\*)(?:\*\.[A-Za-z0-9]++|\*{{1,2}}/(?:\*{{1,2}}(?=[./]|\Z|\s)|[\w./-]){{1,200}}+)(?!\*))
    |(?P<spoiler>(?<![\w|])\|\|(?=[^\s|])[^\n|]++(?<!\s)\|\|(?![\w|]))
    |(?P<mark>\*+|~~+)
    |(?P<rest>_+)
    )""",
    re.VERBOSE,
)
_CLOSERS = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
_BEFORE_PRODUCT = re.compile(r"[A-Za-z0-9_)\]]")
_AFTER_PRODUCT = re.compile(r"[A-Za-z0-9_(\[]")


@dataclass(frozen=True, slots=True)
class Span:
    """A literal span of a text, `text[start:end]`."""

    start: int
    end: int
    kind: Kind


class LiteralSpans:
    """The literal spans of a paragraph's text. They do not overlap, except inside spoilers."""

    def __init__(self, text: str) -> None:
        spans = _find(text)
        self._starts = [span.start for span in spans]
        self._by_start = {span.start: span for span in spans}
        self._opaque = [span for span in spans if span.kind != "spoiler"]
        self._opaque_starts = [span.start for span in self._opaque]

    def at(self, position: int) -> Span | None:
        """Return the span that begins at a position."""
        return self._by_start.get(position)

    def around(self, position: int) -> Span | None:
        """Return the span that contains a position, including its beginning.

        Ignores spoilers, because Markdown is read inside them.
        """
        index = bisect_right(self._opaque_starts, position) - 1
        return self._opaque[index] if index >= 0 and position < self._opaque[index].end else None

    def next_start(self, position: int, default: int) -> int:
        """Return where the first span after a position begins; `default` if there is none."""
        index = bisect_right(self._starts, position)
        return self._starts[index] if index < len(self._starts) else default


def literals(text: str) -> list[str]:
    r"""Return the literal spans of a text.

    >>> literals("$a_1*b$ at /a_b/_c. *So* __init__ costs $5 and $6, see **https://a.b/_c_**")
    ['$a_1*b$', '/a_b/_c', '__init__', 'https://a.b/_c']
    >>> literals(r"a*b*c, `x*y*z`, \[x\] and @types/node for <YOUR_TOKEN> of **API**s")
    ['*', '*', '\\[x\\]', '@types/node', '<YOUR_TOKEN>']
    """
    return [text[span.start : span.end] for span in _find(text)]


def unclosed_formula(text: str) -> str:
    r"""Return the end delimiter of an unfinished formula at the end of a text; "" if there is none.

    >>> unclosed_formula(r"so \[a_1*b"), unclosed_formula("$$x$$"), unclosed_formula("$5")
    ('\\]', '', '')
    """
    for opening, closing in _CLOSERS.items():
        start = text.rfind(opening)
        is_open = start >= 0 and text.find(closing, start + len(opening)) < 0
        if is_open and text.count("`", start) % 2 == 0 and LiteralSpans(text).around(start) is None:
            return closing
    return ""


def _find(text: str) -> list[Span]:
    return _Scanner(text).run() if _SPECIAL.search(text) else []


class _Scanner:
    """One pass over a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._closers = _Closers(text)
        self._spans: list[Span] = []
        self._marks: list[tuple[int, int]] = []
        self._spoiler_end = 0

    def run(self) -> list[Span]:
        """Return the spans."""
        position = 0
        while (special := _SPECIAL.search(self._text, position)) is not None:
            position = _word_start(self._text, position, special.start())
            while position <= special.start():
                match = _TOKEN.match(self._text, position)
                position = position + 1 if match is None else self._take(match)
        products = [Span(start, end, "text") for start, end in _products(self._text, self._marks)]
        return sorted([*self._spans, *products], key=lambda span: span.start)

    def _take(self, match: re.Match[str]) -> int:  # noqa: PLR0911 - one return per kind
        """Record the kind of a match. Return where to continue."""
        start, end = match.span()
        match match.lastgroup:
            case "ticks":
                return self._closers.code_end(match[0], end)
            case "auto" | "escape" | "rest":
                return end
            case "mark":
                self._marks.append((start, end))
                return end
            case "spoiler":
                return self._spoiler(start, end)
            case "tex":
                formula_end = self._closers.formula_end(match)
                return self._add(start, formula_end, "formula") if formula_end else end
            case _:
                span = _span(match, is_italic=self._closers.may_be_italic(start))
                if span is None:
                    return start + 1 if match.lastgroup == "dollar" else end
                return self._add(span.start, span.end, span.kind)

    def _add(self, start: int, end: int, kind: Kind) -> int:
        self._spans.append(Span(start, end, kind))
        return end

    def _spoiler(self, start: int, end: int) -> int:
        if start < self._spoiler_end:
            return start + 2
        self._spoiler_end = end
        self._add(start, end, "spoiler")
        return start + 2


def _span(match: re.Match[str], *, is_italic: bool) -> Span | None:  # noqa: PLR0911 - one return per kind
    words = match[0]
    match group := match.lastgroup:
        case "dollar":
            inner = words[1:-1]
            if "](" in inner or _AMOUNT.match(inner) or _MATH_SIGN.search(inner) is None:
                return None
            return Span(match.start(), match.end(), "formula")
        case "script":
            return Span(match.start(), match.end(), "sub" if match["level"] == "sub" else "sup")
        case "tag" | "brace" | "comment" | "dunder" | "arguments" | "glob" | "unc":
            return Span(match.start(), match.end(), "text")
        case "word" if _CODE_LIKE.search(words) is None:
            return None
        case _:
            size = len(_trimmed(words, match, is_italic=is_italic))
            kind: Kind = "address" if group == "address" else "text"
            return Span(match.start(), match.start() + size, kind) if size else None


def _trimmed(words: str, match: re.Match[str], *, is_italic: bool) -> str:
    """Return a span without marks and punctuation at its end. `_` is a mark if one was opened before."""
    before = match.string[match.start() - 1 : match.start()]
    if before in {"*", "~"}:  # A span directly after a mark ends where that mark occurs again.
        words = words.partition(before)[0]
    if _DUNDER_END.search(words):
        return words
    trailing = ".,:;!?*~'\"=-" + "_" * is_italic
    return words.rstrip(trailing)


def _word_start(text: str, position: int, special: int) -> int:
    """Return where the word around a special character begins, at or after `position`."""
    start = max(position, special - _WORD_REACH)
    return max(start, *(text.rfind(blank, start, special) + 1 for blank in " \n\t"))


class _Closers:
    """Finds closing marks. Remembers the last one of each kind, so that unclosed openings cost no search."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._last: dict[str, int] = {}
        opener = _ITALIC.search(text)
        self._italic = opener.start() if opener else -1
        runs = re.finditer("`+", text) if "`" in text else ()
        self._runs = {run[0]: run.start() for run in runs}

    def may_be_italic(self, position: int) -> bool:
        """Return whether a `_` before a position may have opened emphasis."""
        return 0 <= self._italic < position

    def code_end(self, ticks: str, position: int) -> int:
        """Return the end of the code span whose ticks end at `position`; `position` if nothing closes it."""
        if self._runs.get(ticks, -1) < position:
            return position
        closing = re.compile(f"(?<!`){ticks}(?!`)").search(self._text, position)
        return closing.end() if closing else position

    def formula_end(self, opening: re.Match[str]) -> int:
        """Return the end of the formula that a match opens; 0 if it has none."""
        mark = f"\\end{{{opening['env']}}}" if opening["env"] else _CLOSERS[opening[0]]
        if mark not in self._last:
            self._last[mark] = self._text.rfind(mark)
        if self._last[mark] < opening.end():
            return 0
        closing = self._text.find(mark, opening.end(), opening.end() + _LONGEST_FORMULA)
        inner = self._text[opening.end() : closing] if closing >= 0 else ""
        return closing + len(mark) if inner.strip() else 0


def _products(text: str, marks: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the runs of `*` and `~~` between two factors that pair with no other run."""
    opened = {"*": 0, "**": 0, "***": 0, "~~": 0}
    ends: dict[str, bool] = {}
    runs: list[tuple[int, int, bool]] = []
    for start, end in reversed(marks):
        run = text[start:end]
        runs.append((start, end, ends.get(run, False)))
        can_open, can_close = delimiters(text, start, end)
        if (can_open or can_close) and not _is_between_factors(text, start, end):
            ends[run] = can_close
    for start, end, is_closed_later in reversed(runs):
        run = text[start:end]
        if run not in opened:
            continue
        can_open, can_close = delimiters(text, start, end)
        is_product = _is_between_factors(text, start, end)
        if can_close and opened[run] and not (is_product and is_closed_later):
            opened[run] -= 1
        elif not is_product:
            opened[run] += can_open
        elif is_closed_later and not opened[run]:
            opened[run] += 1
        else:
            yield start, end


def _is_between_factors(text: str, start: int, end: int) -> bool:
    return bool(
        start
        and end < len(text)
        and _BEFORE_PRODUCT.match(text[start - 1])
        and _AFTER_PRODUCT.match(text[end])
    )
