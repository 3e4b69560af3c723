"""Converts pages to Markdown. Blocking: parsing takes up to a second; run it in a worker thread."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.errors import WebError
from agent.tools.web.client import HTML_TYPES, UNKNOWN_TYPES, WebResponse

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

_NOISE = (
    *("script", "style", "noscript", "template", "svg", "canvas", "iframe", "object", "embed"),
    *("nav", "aside", "footer", "form", "button", "select", "dialog"),
)
_BLANKS = re.compile(r"[ \t\r\n]{101,}")
MAX_BLANKS = 100
"""Maximum number of consecutive blanks to keep. The converter's patterns would take hours for a megabyte of blanks."""

_MAIN = ("main", "article", "[role=main]")
_MAIN_MIN_CHARS = 200
"""A main element with less text is ignored. In characters."""


def page_text(answer: WebResponse) -> str:
    r"""Return a fetched page as `# title`, an empty line, and its Markdown.

    Raises:
        WebError: It is not text.

    >>> from httpx import URL
    >>> page = WebResponse(url=URL("http://a.example/"), media_type="text/plain", charset=None, body=b"hello")
    >>> page_text(page)
    '# a.example\n\nhello'
    """
    if answer.is_file:
        raise WebError(f"The page has the type {answer.media_type[:60]}, which is not text.")
    if _is_html(answer):
        title, text = html_to_markdown(answer.body, answer.charset)
    elif b"\0" in answer.body[:8192]:
        raise WebError("The page contains binary data, not text.")
    else:
        title, text = "", answer.text
    if answer.truncated:
        text += f"\n\n[The page is longer than {len(answer.body)} bytes; the rest was not loaded.]"
    return with_title(title or answer.url.host, text)


def with_title(title: str, text: str) -> str:
    r"""Return the title and the text.

    >>> with_title(" A  title ", "text")
    '# A title\n\ntext'
    """
    return f"# {' '.join(title.split())[:300]}\n\n{text.strip()}"


def html_to_markdown(html: bytes, charset: str | None = None) -> tuple[str, str]:
    r"""Return the title of a page, and its main content as Markdown, without scripts, menus, forms and images.

    >>> html_to_markdown(b"<title>T</title><body><nav>menu</nav><h1>Hi</h1><p>you <b>all</b></p>")
    ('T', '# Hi\n\nyou **all**')
    """
    from bs4 import BeautifulSoup  # noqa: PLC0415

    soup = BeautifulSoup(html, "lxml", from_encoding=charset)
    title = soup.title.get_text(" ", strip=True) if soup.title else ""
    for tag in soup(list(_NOISE)):
        tag.decompose()
    for blank in soup.find_all(string=_BLANKS):
        blank.replace_with(_BLANKS.sub(lambda found: found[0][:MAX_BLANKS], blank))
    return title, _markdown(_main_part(soup))


def _main_part(soup: BeautifulSoup) -> Tag:
    for selector in _MAIN:
        found = soup.select(selector)
        if len(found) == 1 and len(found[0].get_text(strip=True)) >= _MAIN_MIN_CHARS:
            return found[0]
    return soup.body or soup


def _markdown(part: Tag) -> str:
    from markdownify import MarkdownConverter  # noqa: PLC0415

    converter = MarkdownConverter(
        heading_style="ATX",
        bullets="-",
        strip=["img"],
        strip_pre=None,  # the converter also strips trailing blanks with a pattern
        escape_asterisks=False,
        escape_underscores=False,
    )
    try:
        text = str(converter.convert_soup(part))
    except RecursionError:  # nested too deeply, so use the page's plain text
        text = part.get_text("\n", strip=True)
    # Not with a pattern, for the same reason.
    text = "\n".join(line.rstrip(" \t") for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _is_html(answer: WebResponse) -> bool:
    if answer.media_type in HTML_TYPES:
        return True
    head = answer.body[:512].lstrip().lower()
    return answer.media_type in UNKNOWN_TYPES and head.startswith((b"<!doctype html", b"<html"))
