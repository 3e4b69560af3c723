"""Converts files of a Slack message to attachments. A file that cannot be downloaded carries the reason. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bots.common.attachments import attachment_kind
from bots.slack.mentions import plain
from bots.slack.mrkdwn_parser import link, parse_plain
from bots.slack.payload import as_list, as_mapping, as_str
from bus.messages import Attachment, parse_duration

UNAVAILABLE: Mapping[str, str] = {
    "tombstone": "it was deleted",
    "hidden_by_limit": "Slack hides it because the workspace exceeds the limit of its plan",
    "external": "it is stored outside Slack, and only its link was shared",
    "access_denied": "the app is not allowed to see it",
    "file_not_found": "it was deleted, or the app is not allowed to see it",
}
"""Values of `mode` and `file_access` of files without content, with the reason for the user.

Source: docs.slack.dev/reference/objects/file-object.
"""

_EXTENSIONS: Mapping[str, str] = {
    "list": ".csv",
    **dict.fromkeys(("canvas", "docs", "email", "post", "quip", "space"), ".html"),
}
"""File extensions of Slack's own documents (canvases, posts, lists, emails), by mode and type.

Whatever their `mimetype`, they are downloaded as pages and tables. The size of these differs from the size in the file
object.
"""

_MADE_IN_SLACK = {
    "application/vnd.slack-docs": ".html",
    "application/vnd.slack-list": ".csv",
}

_MIMES = {".csv": "text/csv", ".html": "text/html"}

_NO_FILE = "no file: "

_URL_CHARACTERS = 2000


def parse_attachments(files: object, *, installation: str = "") -> tuple[Attachment, ...]:
    """Describe the files of a message, in order.

    `installation`: the installation whose token fetches them; "" = the configured token.
    """
    attachments = (_attachment(as_mapping(file)) for file in as_list(files))
    prefix = f"{installation}@" if installation else ""
    return tuple(
        replace(attachment, ref=f"{prefix}{attachment.ref}")
        for attachment in attachments
        if attachment
    )


def split_installation(ref: str) -> tuple[str, str]:
    """Return the installation and the rest of a `ref`.

    >>> split_installation("T1@F1 https://a@b"), split_installation("F1 https://a@b")
    (('T1', 'F1 https://a@b'), ('', 'F1 https://a@b'))
    """
    installation, separator, rest = ref.partition("@")
    return (installation, rest) if separator and " " not in installation else ("", ref)


def is_unnamed(file: Attachment) -> bool:
    """Return whether an event contains only the ID of a file."""
    return file.name == split_installation(file.ref)[1]


def unavailable_reason(ref: str) -> str:
    """Return why the attachment with a `ref` cannot be downloaded; "" = it can be.

    >>> unavailable_reason("no file: tombstone"), unavailable_reason("F1")
    ('it was deleted', '')
    """
    return UNAVAILABLE.get(ref.removeprefix(_NO_FILE), "") if ref.startswith(_NO_FILE) else ""


def document_extension(file: Mapping[str, Any]) -> str:
    """Return the extension of a Slack document; "" = an uploaded file.

    >>> [document_extension({"mode": mode}) for mode in ("quip", "list", "hosted")]
    ['.html', '.csv', '']
    """
    kinds = (as_str(file.get("mode")), as_str(file.get("filetype")))
    extension = next((_EXTENSIONS[kind] for kind in kinds if kind in _EXTENSIONS), "")
    return extension or _MADE_IN_SLACK.get(as_str(file.get("mimetype")), "")


def describe_speech(file: Mapping[str, Any]) -> str:
    r"""Return the transcript that a clip's file object contains, for quotations; "" = none.

    >>> spoken = {"status": "complete", "preview": {"content": "Call me.", "has_more": True}}
    >>> describe_speech({"name": "a.m4a", "transcription": spoken})
    '[Speech in a.m4a]\nCall me.…'
    """
    words = spoken_words(file)
    return f"[Speech in {_name(file)}]\n{words}" if words else ""


def spoken_words(file: Mapping[str, Any]) -> str:
    """Return the transcript that a clip's file object contains. If it is incomplete, it ends in "…"."""
    preview = as_mapping(as_mapping(file.get("transcription")).get("preview"))
    words = parse_plain(as_str(preview.get("content"))).strip()
    return f"{words}…" if words and preview.get("has_more") is True else words


def describe_location(file: Mapping[str, Any]) -> str:
    """Return where a file outside Slack is stored; "" = it is stored in Slack.

    >>> describe_location({"title": "Plan", "mode": "external", "url_private": "https://docs.test/1"})
    '[File outside Slack: Plan (https://docs.test/1)]'
    """
    url = plain(as_str(file.get("external_url")) or as_str(file.get("url_private")))
    if as_str(file.get("mode")) == "external" and url:
        return f"[File outside Slack: {link(url, _name(file))}]"
    return ""


def _attachment(file: Mapping[str, Any]) -> Attachment | None:
    """Return a file as an attachment. `ref` contains its ID, because URLs expire, and its URL if one was sent."""
    ref, size = as_str(file.get("id")), file.get("size")
    if not ref:
        return None
    extension = document_extension(file)
    mime = plain(as_str(file.get("mimetype"))) or "application/octet-stream"
    subtype = file.get("subtype")
    is_audio = subtype == "slack_audio"  # Slack reports some audio files as videos.
    kind = "audio" if is_audio else attachment_kind(mime)
    states = (as_str(file.get("mode")), as_str(file.get("file_access")))
    missing = next((state for state in states if state in UNAVAILABLE), "")
    return Attachment(
        name=_name(file),
        mime=_MIMES.get(extension, mime),
        size_bytes=size if isinstance(size, int) and size >= 0 and not extension else None,
        kind=kind,
        is_speech=kind == "audio" or subtype == "slack_video",
        duration_s=parse_duration(file.get("duration_ms"), units_per_s=1000),
        ref=f"{_NO_FILE}{missing}" if missing else f"{ref} {_url(file)}".rstrip(),
    )


def _name(file: Mapping[str, Any]) -> str:
    """Return the name of a file. For Slack documents this is the title, because their names are all the same."""
    name, title = (plain(as_str(file.get(field))) for field in ("name", "title"))
    if extension := document_extension(file):
        title = parse_plain(title) or parse_plain(as_str(file.get("subject"))) or name
        return title if title.endswith(extension) or not title else f"{title}{extension}"
    return name or title or as_str(file.get("id"))


def split_ref(ref: str) -> tuple[str, str]:
    """Return an attachment's file ID and the URL that was sent with it ("" = none).

    >>> split_ref("F1 https://files.slack.com/a"), split_ref("F1")
    (('F1', 'https://files.slack.com/a'), ('F1', ''))
    """
    file_id, _, url = ref.partition(" ")
    return file_id, url


def _url(file: Mapping[str, Any]) -> str:
    url = as_str(file.get("url_private_download")) or as_str(file.get("url_private"))
    return "" if file.get("is_external") or len(url) > _URL_CHARACTERS else url
