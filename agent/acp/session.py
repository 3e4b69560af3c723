"""Sends one prompt to an ACP agent. Importing this imports the ACP package, which takes half a second."""

import logging
from pathlib import Path
from typing import Any, cast

import anyio
from acp import PROTOCOL_VERSION, Client, RequestError, connect_to_agent, text_block
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AgentMessageChunk,
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    Implementation,
    NewSessionResponse,
    PermissionOption,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallUpdate,
)
from acp.transports import default_environment

from agent.acp.process import run_agent_process
from agent.config.acp import AcpAgentConfig
from agent.errors import AcpAgentError

log = logging.getLogger(__name__)

START_S = 120.0
"""Time limit until the session is open; `npx` may have to download the program first."""

MAX_CHARS = 12_000_000
"""Longest answer. The rest is dropped, and a note says so.

The model sees only a part of a long answer; the whole answer is saved to a file.
"""

_AUTH_REQUIRED = -32_000
_NEED_ADAPTER = ("claude", "codex")
"""Programs that need an adapter to support ACP."""

_STOPS = {
    "max_tokens": "it reached its token limit",
    "max_turn_requests": "it reached its step limit",
    "refusal": "it refused to continue",
    "cancelled": "it was cancelled",
}


class AcpClientHandler:
    """The client side of a session: collects the answer, and decides on permission requests.

    It provides no files or terminals; the agent uses its own.
    """

    def __init__(self, name: str, *, approve: bool) -> None:
        self._name = name
        self._approve = approve
        self._parts: list[str] = []
        self._room = MAX_CHARS
        self.denied_count = 0
        self.is_cut = False

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._parts)

    async def session_update(self, update: object, **_: object) -> None:
        """Handle an update. Uses only message text."""
        if isinstance(update, AgentMessageChunk) and isinstance(update.content, TextContentBlock):
            piece = update.content.text[: self._room]
            self._room -= len(piece)
            self._parts.append(piece)
            self.is_cut |= len(piece) < len(update.content.text)

    async def request_permission(
        self, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: object
    ) -> RequestPermissionResponse:
        """Allow the request once if `auto_approve_permissions` is set. Otherwise reject it."""
        once = _first(options, "allow_once") if self._approve else None
        log.info(
            "ACP agent %s requests permission for %.200r: %s",
            self._name,
            tool_call.title or "something",
            "allowed once" if once else "rejected",
        )
        if once is not None:
            return RequestPermissionResponse(
                outcome=AllowedOutcome(outcome="selected", option_id=once)
            )
        self.denied_count += 1
        no = _first(options, "reject_once")
        if no is not None:
            return RequestPermissionResponse(
                outcome=AllowedOutcome(outcome="selected", option_id=no)
            )
        return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))


async def prompt_agent(name: str, entry: AcpAgentConfig, folder: Path, prompt: str) -> str:
    """Start the agent in a folder, send the prompt, and return its answer. Its processes end before this returns.

    Raises:
        AcpAgentError: The agent cannot be started, does not support ACP, needs a login, or took too long.
    """
    env = {**default_environment(), **entry.env}
    handler = AcpClientHandler(name, approve=entry.auto_approve_permissions)
    try:
        with anyio.fail_after(entry.timeout_seconds):
            async with run_agent_process(
                [entry.command, *entry.args], folder=folder, env=env
            ) as lines:
                agent = connect_to_agent(cast("Client", handler), lines)
                try:
                    stop = await _ask(agent, entry, folder, prompt)
                finally:
                    with anyio.CancelScope(shield=True):
                        await agent.close()
    except TimeoutError as error:
        raise AcpAgentError(
            f"The agent {name} did not finish within {entry.timeout_seconds:g} seconds and was stopped."
        ) from error
    except (OSError, RequestError) as error:  # OSError includes ConnectionError
        raise AcpAgentError(_reason(name, entry, error)) from error
    return _answer(handler, stop)


async def _ask(
    agent: ClientSideConnection, entry: AcpAgentConfig, folder: Path, prompt: str
) -> str:
    try:
        with anyio.fail_after(START_S):
            await agent.initialize(
                protocol_version=PROTOCOL_VERSION,
                client_capabilities=ClientCapabilities(
                    fs=FileSystemCapabilities(read_text_file=False, write_text_file=False),
                    terminal=False,
                ),
                client_info=Implementation(name="parley", title="Parley", version="0.2.0"),
            )
            session = await _session(agent, entry.model, folder)
    except TimeoutError as error:
        raise ConnectionError("no session") from error
    done = await agent.prompt(session_id=session.session_id, prompt=[text_block(prompt)])
    return done.stop_reason


async def _session(
    agent: ClientSideConnection, model: str | None, folder: Path
) -> NewSessionResponse:
    """Open a session and select the model. Some agents read it from the request, others have a config option."""
    extra: dict[str, Any] = {"model": model} if model else {}
    session = await agent.new_session(cwd=str(folder), mcp_servers=[], **extra)
    for option in session.config_options or ():
        if model and getattr(option, "category", None) == "model":
            await agent.set_config_option(
                config_id=option.id, session_id=session.session_id, value=model
            )
    return session


def _first(options: list[PermissionOption], kind: str) -> str | None:
    return next((option.option_id for option in options if option.kind == kind), None)


def _answer(handler: AcpClientHandler, stop: str) -> str:
    notes = [f"it stopped early: {_STOPS[stop]}"] if stop in _STOPS else []
    if handler.is_cut:
        notes.append(f"only the first {MAX_CHARS} characters of its answer were kept")
    if handler.denied_count:
        notes.append(
            f"{handler.denied_count} permission request(s) were rejected, because auto_approve_permissions is not "
            "set for this agent"
        )
    text = handler.text.strip() or "(the agent returned no text)"
    return "\n\n".join((text, *(f"[Note: {note}.]" for note in notes)))


def _reason(name: str, entry: AcpAgentConfig, error: Exception) -> str:
    """Return what to do about a failure. The agent's own message is only logged, because it may contain paths."""
    log.warning("ACP agent %s failed: %s", name, error)
    check = f"The operator must check `acp_agents.{name}.command`."
    if isinstance(error, FileNotFoundError):
        return f"The program of the agent {name} is not installed. {check}"
    if isinstance(error, RequestError) and error.code == _AUTH_REQUIRED:
        return (
            f"The agent {name} needs a login. The operator must log in, or set a key in its `env`."
        )
    if isinstance(error, RequestError):
        return f"The agent {name} returned an error (code {error.code})."
    if not isinstance(error, ConnectionError):
        return f"The program of the agent {name} cannot be run. {check}"
    program = Path(entry.command).name
    plain = f" `{program}` needs an adapter for it." if program in _NEED_ADAPTER else ""
    return (
        f"The agent {name} ended or did not respond. Its program must be an Agent Client Protocol "
        f"server.{plain} {check}"
    )
