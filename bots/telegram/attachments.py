"""Attachments of a message. Pure."""

from telegram import Animation, Audio, Document, Message, PhotoSize, Video, VideoNote, Voice

from bots.common.attachments import attachment_kind, file_name
from bots.text.characters import clean
from bus.messages import Attachment

_Media = Animation | Audio | Document | Video | VideoNote | Voice

_DEFAULTS = {
    "voice": ("voice.ogg", "audio/ogg"),
    "audio": ("audio.mp3", "audio/mpeg"),
    "video": ("video.mp4", "video/mp4"),
    "video_note": ("video_note.mp4", "video/mp4"),
    "animation": ("animation.mp4", "video/mp4"),
    "document": ("document", "application/octet-stream"),
}
"""Name and type of media that Telegram sends without them."""


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
                size_bytes=_size(largest),
                kind="image",
                ref=str(largest.file_id),
            ),
        )
    for field, default in _DEFAULTS.items():
        media = getattr(message, field)
        if media is not None:
            return (_attachment(media, *default),)
    return ()


def _size(media: _Media | PhotoSize) -> int | None:
    size = media.file_size
    return size if isinstance(size, int) and size >= 0 else None


def _attachment(media: _Media, name: str, mime: str) -> Attachment:
    mime = clean(getattr(media, "mime_type", None) or mime)
    return Attachment(
        name=file_name(getattr(media, "file_name", None) or name),
        mime=mime,
        size_bytes=_size(media),
        kind=attachment_kind(mime),
        ref=str(media.file_id),
    )
