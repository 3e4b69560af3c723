"""/api/conversations/{thread_id}: what happened in a conversation and why, and the conversation as a file."""

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Any, Literal

import orjson
from anyio import to_thread
from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from bus.history.transcript import transcript
from bus.locales import messages_for
from bus.settings.memory_scope import memory_scope
from gateway.dependencies import LanguageDep, ServicesDep
from gateway.langgraph.route import parse_id
from gateway.openapi import error_responses
from gateway.routes.channels import ConversationAddress
from gateway.routes.masking import masking
from gateway.routes.places import place_of
from gateway.routes.timeline import ConversationHistory, Cursor, TimelineRow, open_history
from gateway.services import Services

router = APIRouter(prefix="/conversations", responses=error_responses(400, 404))

EXPORTED_ROWS = 100
"""Number of rows that an export reads at once."""


class ConversationPlace(ConversationAddress):
    """A chat or topic; `place` is its name."""

    place: str
    is_private: bool


class Timeline(BaseModel):
    """The events of a conversation, newest first.

    Attributes:
        conversation: The chat and topic; null for a thread of the API.
        is_current: Whether the next message there goes to this thread.
        is_thread_known: Whether the agent's server answered; otherwise the rows are without `messages`.
        memory_scope: The memory that `DELETE /api/memory` forgets; "" = unknown.
        next: The cursor of the following page; null = this is the last page.
    """

    thread_id: str
    title: str
    conversation: ConversationPlace | None
    is_current: bool
    is_thread_known: bool
    memory_scope: str
    rows: list[TimelineRow]
    next: str | None


@router.get("/{thread_id}/timeline", response_model=Timeline)
async def get_timeline(
    thread_id: str,
    services: ServicesDep,
    language: LanguageDep,
    *,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    before: Annotated[str, Query(description="`next` of the last page")] = "",
    not_addressed: Annotated[
        bool, Query(description="Include messages that people wrote to each other")
    ] = False,
) -> dict[str, Any]:
    """Return what happened in a conversation and why: newest first, with secrets masked."""
    history = await _open(services, thread_id, language)
    try:
        after = Cursor.parse(before)
    except ValueError:
        raise HTTPException(400, "`before` is the `next` of another page.") from None
    page = await history.page(after, limit=limit, with_not_addressed=not_addressed)
    return {
        **await _head(history),
        "rows": page.rows,
        "next": None if page.next is None else str(page.next),
    }


@router.get("/{thread_id}/export", response_class=Response)
async def export_conversation(
    thread_id: str,
    services: ServicesDep,
    file_format: Annotated[Literal["markdown", "json"], Query(alias="format")] = "markdown",
) -> Response:
    """Return the conversation as a file: Markdown as in `/export`, or its timeline as JSON. Secrets are masked."""
    history = await _open(services, thread_id)
    if file_format == "json":
        head = await _head(history)
        return StreamingResponse(
            _exported(history, head),
            media_type="application/json",
            headers=_attachment(f"conversation-{thread_id}.json"),
        )
    texts = messages_for("")
    mask = masking(services.config)
    messages = [one for turn in (history.turns.turns if history.turns else []) for one in turn]
    text = await to_thread.run_sync(
        lambda: mask(transcript(messages, texts, person=texts.word_people))
    )
    return Response(
        text,
        media_type="text/markdown; charset=utf-8",
        headers=_attachment(f"conversation-{thread_id}.md"),
    )


def _attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


async def _exported(history: ConversationHistory, head: dict[str, Any]) -> AsyncIterator[bytes]:
    """Yield the timeline as one JSON document, page by page."""
    yield orjson.dumps(head)[:-1] + b',"rows":['
    after: Cursor | None = Cursor()
    separator = b""
    while after is not None:
        page = await history.page(after, limit=EXPORTED_ROWS)
        for row in page.rows:
            yield separator + orjson.dumps(row)
            separator = b",\n"
        after = page.next
    yield b"]}"


async def _open(services: Services, thread_id: str, language: str = "") -> ConversationHistory:
    history = await open_history(services, parse_id(thread_id, "thread"), messages_for(language))
    if history is None:
        raise HTTPException(404, "There is no such conversation.")
    return history


async def _head(history: ConversationHistory) -> dict[str, Any]:
    newest, found = await history.newest(), history.conversation
    return {
        "thread_id": history.thread_id,
        "title": history.title,
        "conversation": None
        if found is None
        else {
            **asdict(found.key),
            "place": "" if newest is None else place_of(newest),
            "is_private": newest is not None and newest.is_private,
        },
        "is_current": history.is_current,
        "is_thread_known": history.turns is not None,
        "memory_scope": "" if newest is None else memory_scope(newest),
    }
