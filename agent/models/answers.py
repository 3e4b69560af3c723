"""Normalizes answers from servers with OpenAI's Chat Completions API: turns raw chunks into uniform ones. Pure.

Servers interpret the API differently, and some violate it. `AnswerNormalizer` reads the chunks of one answer, or a
whole answer as a single chunk, and returns chunks in one form:

- each piece of a tool call has the call's index and its arguments as text; name and id appear once;
- usage, under OpenAI's names, and the finish reason are only in the last chunk;
- a refusal is part of the text, thinking between tags is not;
- all other fields of a message or call are in the last chunk, under `PROVIDER_FIELDS`, for the next request.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import orjson

from agent.clean_values import clean_text, read_json
from agent.models.thinking_tags import ThinkingSplitter, ends_alone

MAX_ANSWER_CHARS = 1_000_000
"""Longest answer, with thinking and arguments, characters. No model writes this much. The rest is not read."""

ID_CHARS = 9
"""Length of generated ids: Mistral's chat templates accept only ids of 9 letters and digits."""

REASONING_FIELDS = ("reasoning", "reasoning_content")
"""Fields with thinking: `reasoning` (vLLM since 0.11, OpenRouter), `reasoning_content` (earlier vLLM, DeepSeek)."""

TAGGED_THINKING = "thinking"
"""Field for thinking that a server left in the text. It is not sent back."""

THINKING_FIELDS = (*REASONING_FIELDS, TAGGED_THINKING)

PROVIDER_FIELDS = "provider_fields"
"""Field of the last chunk. It contains the `server` that answered, and the server's own fields: the fields of the
`message`, and the fields of the `calls`, by call id."""

_STANDARD_FIELDS = frozenset(
    {
        *("role", "content", "refusal", "tool_calls", "function_call", *REASONING_FIELDS),
        *("name", "id", "index", "audio", "annotations", "parsed"),
    }
)
_CALL_FIELDS = frozenset({"index", "id", "type", "function", "name", "arguments"})
_FUNCTION_FIELDS = frozenset({"name", "arguments"})
_NO_ARGUMENTS = ["{}"]
_HEAD = ("id", "created", "model", "system_fingerprint", "service_tier")
_JOINED_TEXTS = ("text", "summary")
"""Text fields of list items that arrive in pieces (OpenRouter's `reasoning_details`)."""

JSON = dict[str, Any]


class AnswerNormalizer:
    """Normalizes the answer to one request.

    Args:
        server: The server that answers. Its fields are sent back only to this server.
        ends_thinking_alone: Whether the model is known to write only the closing tag of its first thinking block.

    Attributes:
        ends_thinking_alone: Whether the model did so; valid once the answer is finished.
        has_ended: Whether the answer was marked as complete.
        is_full: Whether it reached `MAX_ANSWER_CHARS`, so that the rest need not be read.
    """

    def __init__(self, *, server: str = "", ends_thinking_alone: bool = False) -> None:
        self.ends_thinking_alone = ends_thinking_alone
        self.has_ended = False
        self.is_full = False
        self._splitter = ThinkingSplitter(ends_alone=ends_thinking_alone)
        self._server = server
        self._new_texts: list[str] = []
        self._shown: list[str] = []
        self._has_reasoning = False
        self._parts: dict[str, list[str]] = {}
        self._joiners: dict[str, _Characters] = {}
        self._calls = _CallAssembler()
        self._fields: JSON = {}
        self._head: JSON = {}
        self._usage: JSON = {}
        self._logprobs: list[Any] = []
        self._finish_reason: str | None = None
        self._length = 0

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Read a chunk or a whole answer."""
        choices = chunk.get("choices")
        if type(choices) is list and len(choices) == 1 and not chunk.get("usage") and self._head:
            choice = choices[0]
            if type(choice) is dict and type(delta := choice.get("delta")) is dict:
                text = delta.get("content")
                is_unusual = choice.get("finish_reason") or choice.get("logprobs")
                if len(delta) == 1 and type(text) is str and not is_unusual:
                    self._new_texts.append(text)  # fast path for nearly all chunks
                    return
        self._add_unusual(chunk)

    def take(self) -> JSON | None:
        """Return a chunk with everything new since the last one; None if nothing is new."""
        self._split_texts()
        self.is_full = self._length >= MAX_ANSWER_CHARS
        delta = self._delta()
        if not delta and not self._logprobs:
            return None
        choice: JSON = {"index": 0, "delta": delta, "finish_reason": None}
        if self._logprobs:
            choice["logprobs"] = {"content": self._logprobs}
            self._logprobs = []
        return {**self._head, "choices": [choice]}

    def finish(self) -> JSON:
        """Return the last chunk."""
        self._split_texts()
        reason = "length" if self.is_full else self._finish_reason
        self._keep_split(self._splitter.end(is_cut=reason == "length"))
        delta = self._delta()
        for name, joiner in self._joiners.items():
            if rest := joiner.end():
                delta[name] = delta.get(name, "") + rest
        if fields := self._provider_fields():
            delta[PROVIDER_FIELDS] = fields
        self.ends_thinking_alone = self._splitter.has_ended_alone or ends_alone(
            "".join(self._shown)
        )
        choice: JSON = {"index": 0, "delta": delta, "finish_reason": reason}
        return {**self._head, "choices": [choice], "usage": self._usage or None}

    # ---- reading --------------------------------------------------------------------------------

    def _add_unusual(self, chunk: Mapping[str, Any]) -> None:
        self._head |= {key: chunk[key] for key in _HEAD if chunk.get(key) is not None}
        self._head["object"] = "chat.completion.chunk"
        choice = _first_choice(chunk.get("choices"))
        groq = chunk.get("x_groq")
        for usage in (
            groq.get("usage") if isinstance(groq, dict) else None,
            choice.get("usage"),
            chunk.get("usage"),
        ):
            self._usage = _plain_usage(usage) or self._usage
        whole = choice.get("message")
        delta = choice.get("delta") or whole
        if isinstance(delta, dict):
            self._add_delta(delta)
        elif isinstance(choice.get("text"), str):
            self._new_texts.append(choice["text"])  # the older completions API
        if isinstance(reason := choice.get("finish_reason"), str) and reason:
            self._finish_reason = "tool_calls" if reason == "function_call" else reason
        self.has_ended = self.has_ended or bool(self._finish_reason) or isinstance(whole, dict)
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, dict) and isinstance(logprobs.get("content"), list):
            self._logprobs += logprobs["content"]

    def _add_delta(self, delta: JSON) -> None:
        for name, text in _delta_texts(delta):
            if name == "content":
                self._new_texts.append(text)
            else:
                self._keep(name, text)
        if calls := _raw_calls(delta):
            self._split_texts()
            self._keep_split(self._splitter.restart())
            self._length += self._calls.add(calls)
        for name, value in delta.items():
            if name not in _STANDARD_FIELDS:
                self._fields[name] = _merge(self._fields.get(name), value)

    def _split_texts(self) -> None:
        if self._new_texts:
            text = "".join(self._new_texts)
            self._new_texts = []
            self._keep_split(self._splitter.feed(text))

    def _keep_split(self, split: tuple[str, str]) -> None:
        answer, thinking = split
        self._keep("content", answer)
        self._keep(TAGGED_THINKING, thinking)

    def _keep(self, name: str, text: str) -> None:
        if text:
            room = max(0, MAX_ANSWER_CHARS - self._length)
            self._length += len(text)
            self._parts.setdefault(name, []).append(text[:room] if room < len(text) else text)

    # ---- writing --------------------------------------------------------------------------------

    def _delta(self) -> JSON:
        delta: JSON = {}
        for name, parts in self._parts.items():
            text = "".join(parts)
            joiner = self._joiners.get(name)
            if joiner is not None or not text.isascii() or "\0" in text:
                joiner = self._joiners.setdefault(name, _Characters())
                text = joiner.feed(text)
            if text:
                delta[name] = text
                self._has_reasoning |= name in REASONING_FIELDS
        self._shown.append(delta.get("content", ""))
        self._parts = {}
        if pieces := self._calls.take():
            delta["tool_calls"] = pieces
        return delta

    def _provider_fields(self) -> JSON:
        found = {"message": _without_nothing(self._fields), "calls": self._calls.fields()}
        kept: JSON = {name: value for name, value in found.items() if value}
        return {"server": self._server, **kept} if kept or self._has_reasoning else {}


@dataclass(slots=True)
class _Characters:
    """Repairs characters of a text that arrives in pieces. Holds half a surrogate pair until the other half arrives."""

    half: str = ""

    def feed(self, text: str) -> str:
        text = self.half + text
        self.half = text[-1] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return clean_text(text[: len(text) - len(self.half)])

    def end(self) -> str:
        half, self.half = self.half, ""
        return clean_text(half)


# ---- tool calls -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Call:
    """A call in progress; `raw_id` and `raw_index` are the server's."""

    position: int
    raw_id: str
    raw_index: object
    id: str
    name: str = ""
    repeats_name: bool = False
    arguments: list[str] = field(default_factory=list)
    characters: _Characters = field(default_factory=_Characters)
    fields: JSON = field(default_factory=dict)

    def text(self) -> str:
        return "".join(self.arguments)

    def is_begun(self) -> bool:
        """Whether its arguments have started but not ended."""
        text = self.text()
        return bool(text.strip()) and not _is_object(text)


class _CallAssembler:
    """Finds the call that each piece belongs to.

    A piece belongs to the call with its id, or else to the call with its index. Some servers give all calls the same
    index, or none. For them a name starts another call if it has a new id or follows complete arguments.
    Pieces in one list belong to different calls.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._pieces: dict[int, JSON] = {}

    def add(self, items: Sequence[JSON]) -> int:
        """Read the pieces of a chunk. Return the number of characters in their arguments."""
        taken: list[_Call] = []
        length = 0
        for at, item in enumerate(items):
            function = item["function"] if isinstance(item.get("function"), dict) else item
            piece = _Piece(
                id=str(item.get("id") or ""),
                index=item.get("index"),
                name=str(function.get("name") or ""),
                arguments=_arguments(function.get("arguments")),
            )
            if not (piece.id or piece.name or piece.arguments):
                continue
            call = self._find(piece, taken, at if len(items) > 1 else None)
            is_new = call is None
            if call is None:
                call = self._start(piece)
            taken.append(call)
            length += self._add_piece(call, piece, is_new=is_new)
            _add_fields(call.fields, item, function)
        return length

    def take(self) -> list[JSON]:
        """Return the new pieces since the last time, one per call: LangChain cannot join more in a chunk."""
        pieces, self._pieces = self._pieces, {}
        return list(pieces.values())

    def fields(self) -> JSON:
        """Return the unknown fields of each call, by the id of the call."""
        found = {call.id: _without_nothing(call.fields) for call in self._calls}
        return {call_id: fields for call_id, fields in found.items() if fields}

    def _find(self, piece: "_Piece", taken: list[_Call], at: int | None) -> _Call | None:
        free = [call for call in self._calls if not any(call is one for one in taken)]
        if piece.id and (known := self._with_id(piece, free)):
            return _unless_complete(known, piece)
        same_index = [
            one for one in free if piece.index is not None and one.raw_index == piece.index
        ]
        if not piece.name:
            by_place = self._calls[at : at + 1] if at is not None else free[-1:]
            return next(iter(same_index[-1:] or by_place), None)
        candidates = same_index if piece.index is not None else free
        return _continued(candidates[-1], piece) if candidates else None

    def _with_id(self, piece: "_Piece", free: Sequence[_Call]) -> _Call | None:
        """Return the call with a piece's id. If a server gives all calls the same id, their index decides."""
        known = [call for call in free if call.raw_id == piece.id]
        here = [
            one
            for one in known
            if None in (piece.index, one.raw_index) or one.raw_index == piece.index
        ]
        return next(iter((here or ([] if piece.name else known))[-1:]), None)

    def _start(self, piece: "_Piece") -> _Call:
        is_known = any(call.id == piece.id for call in self._calls)
        call_id = clean_text(piece.id) if piece.id and not is_known else uuid4().hex[:ID_CHARS]
        call = _Call(len(self._calls), piece.id, piece.index, call_id)
        self._calls.append(call)
        return call

    def _add_piece(self, call: _Call, piece: "_Piece", *, is_new: bool) -> int:
        name = "" if call.name == piece.name else clean_text(piece.name)
        arguments = _not_repeated(call, piece.arguments)
        call.repeats_name |= not is_new and piece.name == call.name
        call.name += name
        call.raw_id = call.raw_id or piece.id
        if arguments:
            if call.arguments == _NO_ARGUMENTS:
                call.arguments.clear()  # a placeholder from before the arguments arrived
            call.arguments.append(arguments)
            if call.arguments == _NO_ARGUMENTS:
                arguments = ""  # a placeholder: real arguments may follow
        if is_new or name or arguments:
            new = self._pieces.setdefault(call.position, _new_piece(call, is_new=is_new))
            function = new["function"]
            function["name"] = (function["name"] or "") + name or None
            function["arguments"] += call.characters.feed(arguments)
        return len(arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A piece of a call as the server sent it; "" = missing."""

    id: str
    index: object
    name: str
    arguments: str

    def starts_object(self) -> bool:
        return self.arguments.lstrip().startswith("{")


def _new_piece(call: _Call, *, is_new: bool) -> JSON:
    function: JSON = {"name": None, "arguments": ""}
    call_id = call.id if is_new else None
    return {"index": call.position, "id": call_id, "type": "function", "function": function}


def _continued(call: _Call, piece: _Piece) -> _Call | None:
    """Return the call that a piece with a name may belong to; None if it starts another call."""
    if not call.name:
        return call
    if piece.id and call.raw_id:  # a different call, or the lookup by id would have found it
        goes_on = call.is_begun() and piece.arguments and not piece.starts_object()
        return call if goes_on and piece.name == call.name else None
    if piece.name != call.name:
        return call if _is_rest_of_name(call, piece) else None
    return _unless_complete(call, piece)


def _unless_complete(call: _Call, piece: _Piece) -> _Call | None:
    """Return the call; None if the piece starts another one: it has a name, and the call's arguments are complete."""
    if not piece.name or piece.arguments == call.text():
        return call
    # A name without arguments may also be an echo at the end: some servers repeat the name.
    begins = piece.arguments.strip() or (len(call.arguments) > 1 and not call.repeats_name)
    return None if begins and _is_object(call.text()) else call


def _is_rest_of_name(call: _Call, piece: _Piece) -> bool:
    return not call.arguments and not piece.arguments and piece.index is not None and not piece.id


def _not_repeated(call: _Call, arguments: str) -> str:
    """Return the new part of a piece, because some servers resend everything so far."""
    if len(arguments) > 1 and arguments.lstrip().startswith("{") and call.arguments:
        before = call.text()
        if len(before) > 1 and arguments.startswith(before):
            return arguments[len(before) :]
    return arguments


def _is_object(text: str) -> bool:
    if not text.rstrip().endswith("}"):
        return False
    try:
        return isinstance(json.loads(text, strict=False), dict)
    except (ValueError, RecursionError):
        return False


def _arguments(given: object) -> str:
    if given is None:
        return ""
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def _raw_calls(delta: JSON) -> list[JSON]:
    """Return a delta's pieces of calls, including the older `function_call`."""
    calls = delta.get("tool_calls")
    found = [calls] if isinstance(calls, dict) else calls if isinstance(calls, list) else []
    function = delta.get("function_call")
    if not found and isinstance(function, dict):
        found = [{"function": function}]
    return [call for call in found if isinstance(call, dict)]


def _add_fields(fields: JSON, item: JSON, function: JSON) -> None:
    for name, value in item.items():
        if name not in _CALL_FIELDS:
            fields[name] = _merge(fields.get(name), value)
    if function is not item:
        inner = {name: value for name, value in function.items() if name not in _FUNCTION_FIELDS}
        if inner:
            fields["function"] = _merge(fields.get("function"), inner)


# ---- the other fields -----------------------------------------------------------------------------


def _first_choice(choices: object) -> JSON:
    """Return the choice with index 0. Requests never ask for more than one."""
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index") in (0, None):
            return choice
    return {}


def _delta_texts(delta: JSON) -> Iterator[tuple[str, str]]:
    """Yield the texts of a delta and the fields they belong to. A refusal counts as answer text."""
    yield from _content_parts(delta.get("content"))
    for name, field_name in (
        ("refusal", "content"),
        *zip(REASONING_FIELDS, REASONING_FIELDS, strict=True),
    ):
        if isinstance(text := delta.get(name), str):
            yield field_name, text


def _content_parts(content: object) -> Iterator[tuple[str, str]]:
    """Yield the texts of a content and the fields they belong to. Mistral sends lists with parts of thinking."""
    if isinstance(content, str):
        yield "content", content
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            yield "content", part
        elif isinstance(part, dict):
            is_thinking = part.get("type") in ("thinking", "reasoning")
            name = TAGGED_THINKING if is_thinking else "content"
            inner = next(
                (
                    part[key]
                    for key in ("text", "thinking", "reasoning", "refusal")
                    if part.get(key)
                ),
                "",
            )
            for _, text in _content_parts(inner):
                yield name, text


def _merge(before: Any, value: Any) -> Any:  # noqa: ANN401 - JSON
    """Join a field's value with its value in an earlier chunk: append to texts and lists, replace numbers.

    >>> _merge([{"index": 0, "text": "a"}], [{"index": 0, "text": "b", "signature": "s"}])
    [{'index': 0, 'text': 'ab', 'signature': 's'}]
    >>> _merge({"a": "x", "b": 1}, {"a": "x", "b": None})
    {'a': 'x', 'b': 1}
    """
    if value is None or before == value:
        return before
    if isinstance(before, str) and isinstance(value, str):
        return before + value
    if isinstance(before, dict) and isinstance(value, dict):
        return before | {key: _merge(before.get(key), one) for key, one in value.items()}
    if isinstance(before, list) and isinstance(value, list):
        joined = list(before)
        for item in value:
            _add_item(joined, item)
        return joined
    return value


def _add_item(items: list[Any], item: Any) -> None:  # noqa: ANN401 - JSON
    last = items[-1] if items else None
    if not (isinstance(last, dict) and isinstance(item, dict) and _goes_on(last, item)):
        items.append(item)
        return
    joined = last | {key: value for key, value in item.items() if value is not None}
    for key in _JOINED_TEXTS:
        if isinstance(last.get(key), str):
            joined[key] = last[key] + str(item.get(key) or "")
    items[-1] = joined


def _goes_on(last: JSON, item: JSON) -> bool:
    """Return whether an item only continues the last item's text."""
    same = all(
        last.get(key) == item.get(key) or item.get(key) is None for key in ("type", "index", "id")
    )
    return same and any(key in last for key in _JOINED_TEXTS)


def _without_nothing(fields: JSON) -> JSON:
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


_USAGE_NAMES = {
    "prompt_tokens": ("prompt_tokens", "input_tokens"),
    "completion_tokens": ("completion_tokens", "output_tokens"),
    "total_tokens": ("total_tokens",),
}
_CACHED_NAMES = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
_WRITTEN_NAMES = ("cache_write_tokens", "cache_creation_input_tokens", "cache_creation_tokens")
_INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details")


def _plain_usage(usage: object) -> JSON:
    """Return the token counts under OpenAI's names; {} if there are none.

    >>> _plain_usage({"prompt_tokens": 9, "completion_tokens": None, "prompt_cache_hit_tokens": 4})
    {'prompt_tokens': 9, 'completion_tokens': 0, 'total_tokens': 9, 'prompt_tokens_details': {'cached_tokens': 4}}
    """
    if not isinstance(usage, dict):
        return {}
    counts = {name: _count(usage, names) for name, names in _USAGE_NAMES.items()}
    if all(count is None for count in counts.values()):
        return {}
    read, written = counts["prompt_tokens"] or 0, counts["completion_tokens"] or 0
    plain: JSON = {"prompt_tokens": read, "completion_tokens": written}
    plain["total_tokens"] = counts["total_tokens"] or read + written
    details = _details(usage, _INPUT_DETAILS)
    known = {
        "cached_tokens": _count(details, _CACHED_NAMES) or _count(usage, _CACHED_NAMES),
        "cache_write_tokens": _count(details, _WRITTEN_NAMES) or _count(usage, _WRITTEN_NAMES),
        "audio_tokens": _count(details, ("audio_tokens",)),
    }
    if found := {name: count for name, count in known.items() if count}:
        plain["prompt_tokens_details"] = found
    details = _details(usage, _OUTPUT_DETAILS)
    known = {
        "reasoning_tokens": _count(details, ("reasoning_tokens",))
        or _count(usage, ("reasoning_tokens",)),
        "audio_tokens": _count(details, ("audio_tokens",)),
    }
    if found := {name: count for name, count in known.items() if count}:
        plain["completion_tokens_details"] = found
    return plain


def _details(usage: JSON, names: Sequence[str]) -> JSON:
    return next((usage[name] for name in names if isinstance(usage.get(name), dict)), {})


def _count(numbers: JSON, names: Sequence[str]) -> int | None:
    for name in names:
        value = numbers.get(name)
        if isinstance(value, int | float) and 0 <= value < 2**53:
            return int(value)
    return None


def whole_answer(chunks: Sequence[JSON]) -> JSON:
    """Join the chunks of a normalizer into the body of a whole answer."""
    message: JSON = {"role": "assistant", "content": ""}
    calls: list[JSON] = []
    choice: JSON = {}
    for chunk in chunks:
        choice = chunk["choices"][0]
        for name, value in choice["delta"].items():
            if name == "tool_calls":
                _join_calls(calls, value)
            else:
                message[name] = (
                    message[name] + value if isinstance(message.get(name), str) else value
                )
    if calls:
        message["tool_calls"] = calls
    last = chunks[-1]
    return {
        **last,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": choice["finish_reason"]}],
    }


def _join_calls(calls: list[JSON], pieces: Sequence[JSON]) -> None:
    for piece in pieces:
        if piece["index"] == len(calls):
            calls.append(
                {"id": piece["id"], "type": "function", "function": {"name": "", "arguments": ""}}
            )
        function = calls[piece["index"]]["function"]
        function["name"] += piece["function"]["name"] or ""
        function["arguments"] += piece["function"]["arguments"]


def parse_json(data: bytes) -> Any:  # noqa: ANN401 - JSON
    """Parse JSON leniently: accept half surrogate pairs, NaN and integers of any size.

    Raises:
        ValueError: The text is not JSON.
    """
    try:
        # orjson would round large integers, which arguments in object form may contain.
        if b'"arguments"' not in data or b'"arguments":"' in data or b'"arguments": "' in data:
            return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    return read_json(data.decode("utf-8", "replace"))
