"""Files of a message. Pure."""

from bots.common.attachments import attachment_kind, file_name
from bots.telegram.payload import Json, as_int, as_object, as_objects, as_str
from bus.characters import clean
from bus.messages import Attachment, parse_duration

_DEFAULTS = {
    "voice": ("voice.ogg", "audio/ogg"),
    "audio": ("audio.mp3", "audio/mpeg"),
    "video": ("video.mp4", "video/mp4"),
    "video_note": ("video_note.mp4", "video/mp4"),
    "animation": ("animation.mp4", "video/mp4"),
    "live_photo": ("live_photo.mp4", "video/mp4"),
    "document": ("document", "application/octet-stream"),
}
"""Names and types of media that Telegram sends without them."""

MEDIA = frozenset({"photo", "sticker", *_DEFAULTS})
"""Fields of a message that contain files."""


def media_files(field: str, value: object) -> tuple[Attachment, ...]:
    """Return the files in a field of a message. `ref` is Telegram's `file_id`.

    A photo is returned only in its largest size. A live photo is a photo and a video. Only stickers that are pictures
    are returned, because models and programs cannot show the others.

    Raises:
        LookupError, ValueError: A file has no ID.
    """
    if field == "photo":
        return (_photo(value),)
    media = as_object(value)
    if field == "sticker":
        is_picture = not (media.get("is_animated") or media.get("is_video"))
        return (_picture(media, "sticker", "webp"),) if is_picture else ()
    file = _file(media, *_DEFAULTS[field])
    return (
        (_photo(media["photo"]), file) if field == "live_photo" and media.get("photo") else (file,)
    )


def _photo(sizes: object) -> Attachment:
    largest = max(as_objects(sizes), key=_area)
    return _picture(largest, "photo", "jpg")


def _area(size: Json) -> int:
    return (as_int(size.get("width")) or 0) * (as_int(size.get("height")) or 0)


def _picture(media: Json, name: str, ending: str) -> Attachment:
    return Attachment(
        name=file_name(f"{name}_{media.get('file_unique_id', '')}.{ending}"),
        mime="image/webp" if ending == "webp" else "image/jpeg",
        size_bytes=_size(media),
        kind="image",
        ref=str(media["file_id"]),
    )


def _file(media: Json, name: str, mime: str) -> Attachment:
    mime = clean(as_str(media.get("mime_type")) or mime)
    return Attachment(
        name=file_name(as_str(media.get("file_name")) or name),
        mime=mime,
        size_bytes=_size(media),
        kind=attachment_kind(mime),
        ref=str(media["file_id"]),
        is_speech=name == _DEFAULTS["video_note"][0] or attachment_kind(mime) == "audio",
        duration_s=parse_duration(media.get("duration")),
    )


def _size(media: Json) -> int | None:
    size = as_int(media.get("file_size"))
    return size if size is not None and size >= 0 else None
