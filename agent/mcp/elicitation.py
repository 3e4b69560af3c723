"""Asks people the questions of MCP servers (elicitation): one question for each field of the form. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from mcp.types import ElicitRequestParams, ElicitRequestURLParams, ElicitResult
from pydantic import ValidationError

from agent.locales import AgentMessages

MAX_FIELDS = 10
"""Maximum number of fields. Longer forms are declined, because each field is a question in the chat."""

MAX_ATTEMPTS = 3
"""How often to ask for a field until its answer fits."""

MESSAGE_CHARS = 1_000
"""Maximum length of a server's text that people see."""

ACCEPT, DECLINE, SKIP = "accept", "decline", "skip"

DECLINED, CANCELLED = ElicitResult(action="decline"), ElicitResult(action="cancel")

Interrupt = Callable[[object], object]
"""Asks a person and returns the answer: LangGraph's `interrupt`."""

Option = tuple[str, str | int | float]
"""The label of a button, and its value."""


class _Unfit(ValueError):
    """The answer does not fit the field."""


def ask_person(
    server: str, question: ElicitRequestParams, messages: AgentMessages, interrupt: Interrupt
) -> ElicitResult:
    """Ask a person what a server wants to know. Raises the errors of `interrupt`."""
    text = f"{messages.mcp_question.format(server=server)}\n\n{question.message[:MESSAGE_CHARS]}"
    form = _Form(text, messages, interrupt)
    try:
        if isinstance(question, ElicitRequestURLParams):
            return form.confirm(question.url)
        properties = question.requestedSchema.get("properties")
        fields = properties if isinstance(properties, Mapping) else {}
        required = question.requestedSchema.get("required")
        return form.fill(fields, required) if fields else form.confirm()
    except _Ended as ended:
        return ended.result


class _Ended(Exception):
    """The form ends before its last field because the person declines or an API client sent a whole result."""

    def __init__(self, result: ElicitResult) -> None:
        super().__init__()
        self.result = result


class _Form:
    """Asks for the fields, one after the other."""

    def __init__(self, text: str, messages: AgentMessages, interrupt: Interrupt) -> None:
        self._text = text
        self._messages = messages
        self._interrupt = interrupt

    def confirm(self, url: str = "") -> ElicitResult:
        """Ask for consent."""
        for _ in range(MAX_ATTEMPTS):
            label = self._messages.mcp_accept
            if self._ask(url, [(label, ACCEPT)]).casefold() in (ACCEPT, label.casefold()):
                return ElicitResult(action="accept", content=None if url else {})
        raise _Ended(CANCELLED)

    def fill(self, fields: Mapping[str, Any], required: object) -> ElicitResult:
        """Ask for each field."""
        if len(fields) > MAX_FIELDS:
            raise _Ended(DECLINED)
        content: dict[str, Any] = {}
        for name, given in fields.items():
            schema = _without_null(given)
            is_required = isinstance(required, list) and name in required
            options = self._options(schema)
            skip: list[Option] = [] if is_required else [(self._messages.mcp_skip, SKIP)]
            text = _field_text(name, schema)
            for attempt in range(MAX_ATTEMPTS):
                answer = self._ask(text, [*options, *skip], numbered=bool(options))
                if skip and answer.casefold() in (SKIP, self._messages.mcp_skip.casefold()):
                    break
                try:
                    content[name] = _value(answer, schema, options)
                    break
                except _Unfit as error:
                    if attempt == MAX_ATTEMPTS - 1:
                        raise _Ended(CANCELLED) from error
                    text = f"{self._messages.mcp_unfit}\n\n{_field_text(name, schema)}"
        return ElicitResult(action="accept", content=content)

    def _ask(self, detail: str, options: list[Option], *, numbered: bool = True) -> str:
        """Return the answer as text. Raises _Ended."""
        offered = [*options, (self._messages.mcp_decline, DECLINE)]
        answer = self._interrupt(
            {
                "type": "mcp_elicitation",
                "question": "\n\n".join(part for part in (self._text, detail) if part),
                "options": [{"label": label, "value": value} for label, value in offered],
                "numbered": numbered,
            }
        )
        if isinstance(answer, Mapping) and "action" in answer:
            try:
                result = ElicitResult.model_validate(answer)
            except ValidationError:
                result = CANCELLED
            raise _Ended(result)
        text = str(answer).strip()
        if text.casefold() in (DECLINE, self._messages.mcp_decline.casefold()):
            raise _Ended(DECLINED)
        return text

    def _options(self, schema: Mapping[str, Any]) -> list[Option]:
        if schema.get("type") == "boolean":
            return [(self._messages.mcp_yes, "true"), (self._messages.mcp_no, "false")]
        return [] if schema.get("type") == "array" else _choices(schema)


def _without_null(given: object) -> Mapping[str, Any]:
    """Return a field's schema. For an optional field, which also allows null, return the variant that is not null."""
    schema = given if isinstance(given, Mapping) else {}
    variants = schema.get("anyOf")
    if isinstance(variants, list):
        found = [v for v in variants if isinstance(v, Mapping) and v.get("type") != "null"]
        if len(found) == 1:
            return {**schema, **found[0]}
    return schema


def _choices(schema: Mapping[str, Any]) -> list[Option]:
    """Return the values that a schema allows, with their titles."""
    variants = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(variants, list):
        found = [one for one in variants if isinstance(one, Mapping) and "const" in one]
        return [(str(one.get("title") or one["const"]), one["const"]) for one in found]
    values = schema.get("enum")
    if not isinstance(values, list):
        return []
    titles = schema.get("enumNames")
    titles = titles if isinstance(titles, list) and len(titles) == len(values) else values
    return [(str(title), value) for title, value in zip(titles, values, strict=True)]


def _value(answer: str, schema: Mapping[str, Any], options: list[Option]) -> object:
    """Return an answer in the type of its field. Raises _Unfit.

    >>> _value("7", {"type": "integer"}, []), _value("a, b", {"type": "array"}, [])
    (7, ['a', 'b'])
    """
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        choices = _choices(items) if isinstance(items, Mapping) else []
        parts = [part.strip() for part in answer.replace("，", ",").split(",") if part.strip()]
        return [_chosen(part, choices) for part in parts] if choices else parts
    if options:
        chosen = _chosen(answer, options)
        return chosen == "true" if kind == "boolean" else chosen
    try:
        if kind == "integer":
            return int(answer)
        return float(answer) if kind == "number" else answer
    except ValueError as error:
        raise _Unfit from error


def _chosen(answer: str, options: list[Option]) -> str | int | float:
    folded = answer.casefold()
    for label, value in options:
        if folded in (label.casefold(), str(value).casefold()):
            return value
    raise _Unfit


def _field_text(name: str, schema: Mapping[str, Any]) -> str:
    title, description = str(schema.get("title") or name), schema.get("description")
    items = schema.get("items")
    choices = _choices(items) if isinstance(items, Mapping) else []
    text = f"{title}: {description}" if description else title
    return (
        f"{text} ({', '.join(label for label, _ in choices)})"[:MESSAGE_CHARS]
        if choices
        else text[:MESSAGE_CHARS]
    )
