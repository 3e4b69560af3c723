"""/api/channels/terminal: the terminal channel over HTTP, for `parley chat`."""

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from bots.terminal.adapter import TerminalAdapter
from bus.platform import Disposition
from bus.service import Bus
from gateway.dependencies import BusDep, TerminalDep
from gateway.openapi import error_responses
from gateway.terminal.local_client import list_sessions, session_events
from gateway.terminal.session_events import SESSION_EVENT, SessionHeartbeat

router = APIRouter(prefix="/channels/terminal")

SessionName = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]

FileName = Annotated[str, Query(min_length=1, max_length=255, description="The file's name")]


class TerminalMessageRequest(BaseModel):
    """A line of text. Another request with the same `id` is ignored."""

    text: str
    id: str = Field(default="", max_length=100)
    files: list[str] = Field(
        default=[], max_length=10, description="References of files attached to the line"
    )


class TerminalMessageResponse(BaseModel):
    """The decision on the line: `accepted`, or a reason."""

    result: Disposition


class TerminalFileResponse(BaseModel):
    """The reference with which a line names the file."""

    file: str


class TerminalPressRequest(BaseModel):
    """A press of a button below a message. Another request with the same `id` is ignored."""

    token: str = Field(max_length=64, description="The button's `token`")
    message: str = Field(max_length=100, description="The message's `id`")
    id: str = Field(default="", max_length=100)


class TerminalPressResponse(BaseModel):
    """The response to the press; "" = none is needed."""

    text: str


class TerminalSessionView(BaseModel):
    """A session: when it was used last (Unix seconds), and the beginning of its last message."""

    name: str
    last_words: str
    used_at: float


class TerminalSessionList(BaseModel):
    """The sessions, most recently used first; at most 20."""

    sessions: list[TerminalSessionView]


@router.get("")
async def list_terminal_sessions(bus: BusDep) -> TerminalSessionList:
    """List the terminal chats, most recently used first."""
    views = [TerminalSessionView(**asdict(one)) for one in await list_sessions(bus)]
    return TerminalSessionList(sessions=views)


@router.post("/{session}/presses", responses=error_responses(404))
async def press_button(
    session: SessionName, press: TerminalPressRequest, terminal: TerminalDep
) -> TerminalPressResponse:
    """Press a button below a message of the bot."""
    response = await terminal.press(session, press.token, message=press.message, event_id=press.id)
    return TerminalPressResponse(text=response.text)


@router.post("/{session}/messages", status_code=202, responses=error_responses(404))
async def send_message(
    session: SessionName, line: TerminalMessageRequest, terminal: TerminalDep
) -> TerminalMessageResponse:
    """Send a line to the bot; the answer arrives as events."""
    result = await terminal.say(session, line.text, event_id=line.id, files=line.files)
    return TerminalMessageResponse(result=result)


@router.post(
    "/{session}/files",
    status_code=201,
    openapi_extra={
        "requestBody": {
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
            "required": True,
        }
    },
)
async def attach_file(
    session: SessionName, name: FileName, request: Request, terminal: TerminalDep
) -> TerminalFileResponse:
    """Store a file of at most 50 MB for a later line."""
    return TerminalFileResponse(file=await terminal.receive_file(session, name, request.stream()))


@router.get(
    "/{session}/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {"text/event-stream": {}},
            "description": "Events until the client disconnects",
        }
    },
)
async def stream_events(
    session: SessionName, terminal: TerminalDep, bus: BusDep
) -> StreamingResponse:
    """Stream the events of a session, starting now. The first event contains the last messages."""
    return StreamingResponse(
        _event_stream(terminal, bus, session),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _event_stream(terminal: TerminalAdapter, bus: Bus, session: str) -> AsyncIterator[bytes]:
    with terminal.attach(session) as attached:
        yield b": attached\n\n"
        async for item in session_events(terminal, bus, attached, session):
            if isinstance(item, SessionHeartbeat):
                yield b": heartbeat\n\n"
            else:
                yield b"data: " + SESSION_EVENT.dump_json(item) + b"\n\n"
