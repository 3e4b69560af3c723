"""Converts rich messages (Bot API 10.1 to 10.3) to Markdown and files. Pure."""

from collections.abc import Callable, Mapping, Sequence

from bots.telegram.attachments import MEDIA, media_files
from bots.telegram.entity_markdown import STYLES, code, dated, fenced, link, quoted, styled
from bots.telegram.identity import TelegramIdentity
from bots.telegram.payload import Json, as_int, as_line, as_list, as_object, as_objects, as_str
from bus.characters import clean
from bus.messages import Attachment

_MAX_LEVELS = 40
"""Maximum nesting to read. Telegram nests blocks 16 deep, and texts not much deeper."""

_STYLES = {**STYLES, "marked": "=="}
_SMALLEST_HEADING = 6


class RichReader:
    """Reads one rich message.

    Attributes:
        files: Its files, in order.
        mentioned: Whether it mentions the bot.
        mentions_people: Whether it names anybody else.
    """

    def __init__(self, identity: TelegramIdentity) -> None:
        self._identity = identity
        self._level = 0
        self.files: list[Attachment] = []
        self.mentioned = False
        self.mentions_people = False
        self._blocks_by_type: Mapping[str, Callable[[Json], str]] = {
            "paragraph": self._paragraph,
            "footer": self._paragraph,
            "heading": self._heading,
            "pre": self._preformatted,
            "divider": lambda _: "---",
            "mathematical_expression": self._formula,
            "anchor": lambda _: "",
            "list": self._list,
            "blockquote": self._quotation,
            "expandable_blockquote": self._quotation,
            "pullquote": self._quotation,
            "collage": self._group,
            "slideshow": self._group,
            "table": self._table,
            "details": self._details,
            "map": self._map,
            "buttons": self._buttons,
            "thinking": lambda _: "",
        }
        self._texts_by_type: Mapping[str, Callable[[Json], str]] = {
            "code": lambda said: code(_plain(said.get("text"))),
            "custom_emoji": lambda said: as_str(said.get("alternative_text")),
            "mathematical_expression": lambda said: f"${as_str(said.get('expression'))}$",
            "subscript": self._script,
            "superscript": self._script,
            "url": lambda said: link(self._text(said.get("text")), as_str(said.get("url"))),
            "date_time": lambda said: dated(self._text(said.get("text")), said.get("unix_time")),
            "button": lambda said: self._button(said.get("button")),
        }

    def read(self, message: object) -> str:
        """Return a RichMessage as Markdown. Raises ValueError if it is nested too deeply."""
        return clean(self._blocks(as_object(message).get("blocks"))).strip()

    def _blocks(self, blocks: object, gap: str = "\n\n") -> str:
        with_words = (self._block(block) for block in as_objects(blocks))
        return gap.join(words for words in with_words if words)

    def _block(self, block: Json) -> str:
        self._enter()
        kind = as_str(block.get("type"))
        known = self._blocks_by_type.get(kind)
        words = known(block) if known else self._media(kind, block)
        self._level -= 1
        return words

    def _enter(self) -> None:
        self._level += 1
        if self._level > _MAX_LEVELS:
            raise ValueError("nested too deep")

    def _paragraph(self, block: Json) -> str:
        return self._text(block.get("text"))

    def _heading(self, block: Json) -> str:
        size = min(max(as_int(block.get("size")) or 1, 1), _SMALLEST_HEADING)
        return f"{'#' * size} {' '.join(self._text(block.get('text')).split())}"

    def _preformatted(self, block: Json) -> str:
        return fenced(_plain(block.get("text")), as_line(block.get("language")))

    def _formula(self, block: Json) -> str:
        return f"$$\n{as_str(block.get('expression'))}\n$$"

    def _list(self, block: Json) -> str:
        return "\n".join(self._item(item) for item in as_objects(block.get("items")))

    def _item(self, item: Json) -> str:
        if item.get("has_checkbox"):
            mark = "- [x]" if item.get("is_checked") else "- [ ]"
        elif (value := as_int(item.get("value"))) is not None:
            mark = as_line(item.get("label")) or f"{value}."
        else:
            mark = "-"
        first, *rest = self._blocks(item.get("blocks"), "\n").split("\n")
        return "\n".join([f"{mark} {first}".rstrip(), *(f"  {line}".rstrip() for line in rest)])

    def _quotation(self, block: Json) -> str:
        words = self._blocks(block.get("blocks")) or self._text(block.get("text"))
        credit = self._text(block.get("credit"))
        return quoted(f"{words}\n— {credit}" if credit else words)

    def _group(self, block: Json) -> str:
        return _lines(self._blocks(block.get("blocks"), "\n"), self._caption(block))

    def _table(self, block: Json) -> str:
        rows = [
            [self._cell(cell) for cell in as_objects(row)] for row in as_list(block.get("cells"))
        ]
        columns = max(map(len, rows), default=0)
        if not columns:
            return ""
        lines = [_table_line(row, columns) for row in rows]
        lines.insert(1, _table_line(["---"] * columns, columns))
        return _lines(self._text(block.get("caption")), *lines)

    def _cell(self, cell: Json) -> str:
        return " ".join(self._text(cell.get("text")).split()).replace("|", "\\|")

    def _details(self, block: Json) -> str:
        summary = styled(self._text(block.get("summary")), STYLES["bold"])
        return "\n\n".join(filter(None, (summary, self._blocks(block.get("blocks")))))

    def _map(self, block: Json) -> str:
        place = as_object(block.get("location"))
        shown = f"[Location: {place.get('latitude')}, {place.get('longitude')}]"
        return _lines(shown, self._caption(block))

    def _buttons(self, block: Json) -> str:
        return " ".join(map(self._button, as_objects(block.get("buttons"))))

    def _media(self, kind: str, block: Json) -> str:
        """Return the names of a block's files, or the text of an unknown block."""
        field = "voice" if kind == "voice_note" else kind
        files = media_files(field, block.get(kind)) if field in MEDIA else ()
        self.files += files
        words = self._text(block.get("text")) or self._blocks(block.get("blocks"))
        shown = _lines(*(f"[File: {file.name}]" for file in files), words, self._caption(block))
        return shown or f"[Not readable here: {as_line(kind) or 'a part of the message'}]"

    def _caption(self, block: Json) -> str:
        caption = as_object(block.get("caption"))
        credit = self._text(caption.get("credit"))
        return _lines(self._text(caption.get("text")), f"— {credit}" if credit else "")

    def _button(self, button: object) -> str:
        said = as_object(button)
        label = self._text(said.get("text"))
        url = as_str(said.get("url"))
        return link(label, url) if url else f"[Button: {label}]"

    def _text(self, text: object) -> str:
        """Return a RichText: a string, a list of rich texts, or an object."""
        if isinstance(text, str):
            return text
        self._enter()
        words = "".join(map(self._text, text)) if isinstance(text, list) else self._span(text)
        self._level -= 1
        return words

    def _span(self, text: object) -> str:
        said = as_object(text)
        if self._names_bot(said):
            self.mentioned = True
            return ""
        kind = as_str(said.get("type"))
        self.mentions_people = self.mentions_people or kind in ("mention", "text_mention")
        if known := self._texts_by_type.get(kind):
            return known(said)
        words = self._text(said.get("text") or "")
        return styled(words, _STYLES[kind]) if kind in _STYLES else words

    def _script(self, said: Json) -> str:
        tag = as_str(said["type"])[:3]
        return f"<{tag}>{self._text(said.get('text'))}</{tag}>"

    def _names_bot(self, said: Json) -> bool:
        me = self._identity
        if said.get("type") == "text_mention":
            return bool(me.user_id) and as_object(said.get("user")).get("id") == me.user_id
        named = as_str(said.get("username")).removeprefix("@")
        is_mention = said.get("type") == "mention" and bool(me.username)
        return is_mention and named.casefold() == me.username.casefold()


def _plain(text: object, level: int = 0) -> str:
    """Return a RichText without formatting, for code."""
    if isinstance(text, str):
        return text
    if level > _MAX_LEVELS:
        raise ValueError("nested too deep")
    if isinstance(text, list):
        return "".join(_plain(part, level + 1) for part in text)
    said = as_object(text)
    words = said.get("text") or said.get("alternative_text") or said.get("expression") or ""
    return _plain(words, level + 1) if said else ""


def _table_line(cells: Sequence[str], columns: int) -> str:
    return f"| {' | '.join([*cells, *[''] * (columns - len(cells))])} |"


def _lines(*lines: str) -> str:
    return "\n".join(filter(None, lines))
