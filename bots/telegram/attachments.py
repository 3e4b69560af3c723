"""The files that came with a message, described. Pure."""

from typing import Literal

from telegram import Animation, Audio, Document, Message, Video, VideoNote, Voice

from bots.text.characters import clean
from bus.messages import Attachment

_Kind = Literal["file", "image", "audio", "video"]
_Media = Animation | Audio | Document | Video | VideoNote | Voice

_NAME_CHARACTERS = 200

_NAMELESS = {
    "voice": ("voice.ogg", "audio/ogg"),
    "audio": ("audio.mp3", "audio/mpeg"),
    "video": ("video.mp4", "video/mp4"),
    "video_note": ("video_note.mp4", "video/mp4"),
    "animation": ("animation.mp4", "video/mp4"),
    "document": ("document", "application/octet-stream"),
}
"""Name and type of what Telegram carries without them."""


def parse_attachments(message: Message) -> tuple[Attachment, ...]:
    """Return the files of a message; `ref` is Telegram's `file_id`.

    A photo comes in several sizes, of which the largest counts. An animation is also a document, once.
    """
    if message.photo:
        largest = max(message.photo, key=lambda size: size.width * size.height)
        return (
            Attachment(
                name=f"photo_{largest.file_unique_id}.jpg",
                mime="image/jpeg",
                size_bytes=largest.file_size,
                kind="image",
                ref=largest.file_id,
            ),
        )
    for field, nameless in _NAMELESS.items():
        media = getattr(message, field)
        if media is not None:
            return (_described(media, *nameless),)
    return ()


def _described(media: _Media, name: str, mime: str) -> Attachment:
    mime = clean(getattr(media, "mime_type", None) or mime)
    return Attachment(
        name=_file_name(getattr(media, "file_name", None) or name),
        mime=mime,
        size_bytes=media.file_size,
        kind=_kind(mime),
        ref=media.file_id,
    )


def _kind(mime: str) -> _Kind:
    """Return the kind of a MIME type.

    >>> _kind("image/png"), _kind("application/pdf")
    ('image', 'file')
    """
    match mime.partition("/")[0]:
        case "image":
            return "image"
        case "audio":
            return "audio"
        case "video":
            return "video"
        case _:
            return "file"


def _file_name(name: str) -> str:
    r"""Return a name without folders and line ends.

    >>> _file_name("../../etc/pass\nwd")
    '.._.._etc_pass wd'
    """
    flat = " ".join(clean(name).split())
    return flat.replace("/", "_").replace("\\", "_")[:_NAME_CHARACTERS] or "file"
