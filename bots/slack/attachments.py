"""Files of a Slack message as attachments, including files that cannot be downloaded, with the reason. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from bots.common.attachments import attachment_kind
from bots.slack.payload import as_list, as_mapping, as_str
from bots.text.characters import clean
from bus.messages import Attachment

UNAVAILABLE: Final[Mapping[str, str]] = {
    "tombstone": "it was deleted",
    "hidden_by_limit": "Slack hides it because the workspace exceeds the limit of its plan",
    "external": "it is stored outside Slack, only its link was shared",
}
"""Modes of files that have no content here (docs.slack.dev/reference/objects/file-object), and what is said of them."""

_NO_FILE: Final = "no file: "

_URL_CHARACTERS: Final = 2000


def parse_attachments(files: object, *, installation: str = "") -> tuple[Attachment, ...]:
    """Describe the files of a message, in order. `installation`: whose token fetches them, where OAuth gave it."""
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
    """Return whether an event told of a file no more than its id."""
    return file.name == split_installation(file.ref)[1]


def unavailable_reason(ref: str) -> str:
    """Return why an attachment cannot be fetched, by its `ref`; "" if it can be tried.

    >>> unavailable_reason("no file: tombstone"), unavailable_reason("F1")
    ('it was deleted', '')
    """
    return UNAVAILABLE.get(ref.removeprefix(_NO_FILE), "") if ref.startswith(_NO_FILE) else ""


def _attachment(file: Mapping[str, Any]) -> Attachment | None:
    """Describe a file; `ref` is its id, because addresses expire, and the address if one was sent."""
    ref, size, mode = as_str(file.get("id")), file.get("size"), as_str(file.get("mode"))
    if not ref:
        return None
    mime = clean(as_str(file.get("mimetype"))) or "application/octet-stream"
    return Attachment(
        name=clean(as_str(file.get("name")) or as_str(file.get("title"))) or ref,
        mime=mime,
        size_bytes=size if isinstance(size, int) and size >= 0 else None,
        kind=attachment_kind(mime),
        ref=f"{_NO_FILE}{mode}" if mode in UNAVAILABLE else f"{ref} {_url(file)}".rstrip(),
    )


def split_ref(ref: str) -> tuple[str, str]:
    """Return an attachment's file id and the address that was sent with it, or "".

    >>> split_ref("F1 https://files.slack.com/a"), split_ref("F1")
    (('F1', 'https://files.slack.com/a'), ('F1', ''))
    """
    file_id, _, url = ref.partition(" ")
    return file_id, url


def _url(file: Mapping[str, Any]) -> str:
    url = as_str(file.get("url_private_download")) or as_str(file.get("url_private"))
    return "" if file.get("is_external") or len(url) > _URL_CHARACTERS else url
