"""Detects the language of a text by its script. Pure."""

import re

MAX_CHARS_SCANNED = 2000
"""How much of a text to scan, characters."""

_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
_KANA = re.compile(r"[\u3040-\u30ff]")
_LETTERS_PER_HAN = 2
"""The weight of a Chinese character. Chinese text contains names of commands and programs in Latin letters."""

_LANGUAGE_NEUTRAL = re.compile(
    r"https?://[!-~]+|^\s*/[!-~].*|(?m:^(?:>[^\n]*|\[[^\n]*\])$)", re.DOTALL
)
"""Parts to ignore: URLs and commands, which are the same in every language; quotations (`bots/text/quotations.py`),
which are other people's words; and lines in brackets, which the program wrote."""


def detect_language(text: str) -> str:
    r"""Return the language of a text by its script: "zh", "en", or "" for neither.

    >>> [detect_language(text) for text in ("你好", "Hello 世界", "帮我用 bash 列出", "https://example.com看看")]
    ['zh', 'en', 'zh', 'zh']
    >>> [detect_language(text) for text in ("翻译\n\n> Bob: Good morning", "[Forwarded]\n> Bob: Hi")]
    ['zh', '']
    >>> detect_language("怎么办？\n\n[Earlier in this thread]\n> Ann: The server does not answer.")
    'zh'
    >>> [detect_language(text) for text in ("", "42 👍", "/model gpt", "こんにちは世界", "привет")]
    ['', '', '', '', '']
    """
    prose = _LANGUAGE_NEUTRAL.sub("", text[:MAX_CHARS_SCANNED])
    han, latin = len(_HAN.findall(prose)), len(_LATIN.findall(prose))
    if han * _LETTERS_PER_HAN > latin:
        return "" if _KANA.search(prose) else "zh"
    return "en" if latin else ""
