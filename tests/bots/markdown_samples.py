"""Markdown that the format tests share: a sample with every construct, and hostile texts."""

from hypothesis import strategies as st

SAMPLE = """# Title with `code` & <!channel>

**注意：**冒号 and ***both*** ~~gone~~ [label](https://a.b/c_(d)) ![pic](https://x.y/z.png) <https://auto.io>

> quote **bold** <@U123>
> > nested

- one
  - two @here

    more
  ```py
  x = "<at id=all></at>"
  ```
- [ ] task
3) three

|名|n|
|:-|-:|
|a \\| b|@bob **x `c` y**|

---
\\<!here> &lt;@U1> [x](javascript:1) [u](tg://user?id=1) @_all <font color=red>r</font>
"""

HOSTILE = {
    "brackets": "[" * 32_000,
    "images": "![" * 16_000,
    "links": "[a](" * 8_000,
    "stars": "*a " * 10_000,
    "mixed marks": "*_" * 10_000,
    "backticks": "`a``" * 8_000,
    "quotes": "> " * 20_000 + "x",
    "items": "- " * 20_000 + "x",
    "half rules": "=\n" * 10_000,
    "surrogates": "\ud800a\udfff" * 5_000,
    "controls": "\x00\x1b[31m\x7f" * 5_000,
    "angles": "<" * 20_000,
    "paths behind stars": "/*" * 30_000 + "{",
    "paths behind waves": "/~" * 30_000 + "{",
    "addresses behind stars": "*https://a.b/" * 6_000,
    "globs in a row": "a$" + "**/" * 20_000,
    "words behind stars": "a/*" * 20_000 + "{",
    "drives behind waves": "~C:\\a" * 12_000,
    "dollars": "$a" * 20_000,
    "formulas": "$$a\\(b" * 10_000,
    "placeholders": "<a {b" * 10_000,
}

_WORDS = st.text(alphabet="abcdeXYZ012中文字é", min_size=1, max_size=8)
_NOISE = st.sampled_from(
    [
        "<!channel>",
        "<@U1>",
        "@bob",
        "&lt;",
        "\\*",
        "😀",
        "👩\u200d🚀",
        "*",
        "_",
        "`",
        "[",
        "](",
        "!",
        "|",
    ]
)
_INLINE = st.one_of(
    _WORDS,
    _NOISE,
    _WORDS.map(lambda word: f"**{word}**"),
    _WORDS.map(lambda word: f"*{word}*"),
    _WORDS.map(lambda word: f"`{word}`"),
    _WORDS.map(lambda word: f"[{word}](https://e.org/{word})"),
)
_LINE = st.lists(_INLINE, min_size=1, max_size=8).map(" ".join)
_BLOCK = st.one_of(
    _LINE,
    st.lists(_LINE, min_size=1, max_size=4).map("\n".join),
    _LINE.map(lambda line: f"## {line}"),
    st.lists(_LINE, min_size=1, max_size=5).map(lambda rows: "\n".join(f"- {row}" for row in rows)),
    st.lists(_LINE, min_size=1, max_size=5).map(
        lambda rows: "\n".join(f"1. {row}" for row in rows)
    ),
    st.lists(_LINE, min_size=1, max_size=3).map(lambda rows: "\n".join(f"> {row}" for row in rows)),
    st.lists(_WORDS, min_size=0, max_size=6).map(
        lambda rows: "```py\n" + "\n".join(rows) + "\n```"
    ),
    st.lists(_WORDS, min_size=1, max_size=5).map(
        lambda rows: "\n".join(["|h|k|", "|-|-|", *(f"|{row}|{row}|" for row in rows)])
    ),
)
documents = st.lists(_BLOCK, min_size=1, max_size=8).map("\n\n".join)
prose = st.lists(
    st.lists(_WORDS, min_size=1, max_size=30).map(" ".join), min_size=1, max_size=6
).map("\n\n".join)
