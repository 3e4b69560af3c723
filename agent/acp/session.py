"""One question to another agent, over the protocol. Imports the protocol's package, which takes half a second."""

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

logger = logging.getLogger(__name__)

START_S = 120.0
"""How long a program may take until its session is open; `npx` may have to download it first."""

MAX_CHARS = 200_000
"""How much an agent may say; the rest is dropped."""

_AUTH_REQUIRED = -32_000
_PLAIN = ("claude", "codex")
"""Programs that people configure and that do not speak the protocol by themselves."""

_STOPS = {
    "max_tokens": "it used up its tokens",
    "max_turn_requests": "it used up its steps",
    "refusal": "it refused to go on",
    "cancelled": "it was cancelled",
}


class AcpClientHandler:
    """Our side of a session: collects what the agent says, and answers what it asks leave for.

    It offers neither files nor terminals: the agent uses its own.
    """

    def __init__(self, name: str, *, approve: bool) -> None:
        self._name = name
        self._approve = approve
        self._parts: list[str] = []
        self._room = MAX_CHARS
        self.denied_count = 0

    @property
    def text(self) -> str:
        """All that was said."""
        return "".join(self._parts)

    async def session_update(self, update: object, **_: object) -> None:
        """Take what the agent tells; only its words count."""
        if isinstance(update, AgentMessageChunk) and isinstance(update.content, TextContentBlock):
            piece = update.content.text[: self._room]
            self._room -= len(piece)
            self._parts.append(piece)

    async def request_permission(
        self, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: object
    ) -> RequestPermissionResponse:
        """Allow once when the operator said so; refuse else."""
        once = _first(options, "allow_once") if self._approve else None
        logger.info(
            "the ACP agent %s asks leave for %.200r: %s",
            self._name,
            tool_call.title or "something",
            "allowed once" if once else "refused",
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
    """Start the agent in a folder, ask it, and return what it said. Its processes are gone when this returns.

    Raises:
        AcpAgentError: It cannot be started, does not speak the protocol, wants a login, or took too long.
    """
    env = {**default_environment(), **entry.env}
    listener = AcpClientHandler(name, approve=entry.auto_approve_permissions)
    try:
        with anyio.fail_after(entry.timeout_seconds):
            async with run_agent_process(
                [entry.command, *entry.args], folder=folder, env=env
            ) as lines:
                agent = connect_to_agent(cast("Client", listener), lines)
                try:
                    stop = await _ask(agent, entry, folder, prompt)
                finally:
                    with anyio.CancelScope(shield=True):
                        await agent.close()
    except TimeoutError as error:
        raise AcpAgentError(
            f"The agent {name} did not finish within {entry.timeout_seconds:g} seconds and was stopped."
        ) from error
    except (OSError, RequestError) as error:  # OSError: ConnectionError is one
        raise AcpAgentError(_reason(name, entry, error)) from error
    return _answer(listener, stop)


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
                client_info=Implementation(name="parley", title="Parley", version="0.1.0"),
            )
            session = await _session(agent, entry.model, folder)
    except TimeoutError as error:
        raise ConnectionError("no session") from error
    done = await agent.prompt(session_id=session.session_id, prompt=[text_block(prompt)])
    return done.stop_reason


async def _session(
    agent: ClientSideConnection, model: str | None, folder: Path
) -> NewSessionResponse:
    """Open a session and ask for the model: some agents read it beside the request, others have an option for it."""
    beside: dict[str, Any] = {"model": model} if model else {}
    session = await agent.new_session(cwd=str(folder), mcp_servers=[], **beside)
    for option in session.config_options or ():
        if model and getattr(option, "category", None) == "model":
            await agent.set_config_option(
                config_id=option.id, session_id=session.session_id, value=model
            )
    return session


def _first(options: list[PermissionOption], kind: str) -> str | None:
    return next((option.option_id for option in options if option.kind == kind), None)


def _answer(listener: AcpClientHandler, stop: str) -> str:
    notes = [f"it stopped early: {_STOPS[stop]}"] if stop in _STOPS else []
    if listener.denied_count:
        notes.append(
            f"it asked leave for {listener.denied_count} action(s), which was refused: "
            "the operator has not set auto_approve_permissions for it"
        )
    text = listener.text.strip() or "(the agent said nothing)"
    return "\n\n".join((text, *(f"[Note: {note}.]" for note in notes)))


def _reason(name: str, entry: AcpAgentConfig, error: Exception) -> str:
    """Say what to do about a failure. What the agent itself says of it goes to the log: it may hold paths."""
    logger.warning("the ACP agent %s failed: %s", name, error)
    check = f"The operator has to check `acp_agents.{name}.command`."
    if isinstance(error, FileNotFoundError):
        return f"The program of the agent {name} is not installed here. {check}"
    if isinstance(error, RequestError) and error.code == _AUTH_REQUIRED:
        return f"The agent {name} wants a login first. The operator has to do that, or set a key in its `env`."
    if isinstance(error, RequestError):
        return f"The agent {name} answered with an error (code {error.code})."
    if not isinstance(error, ConnectionError):
        return f"The program of the agent {name} cannot be run. {check}"
    program = Path(entry.command).name
    plain = (
        f" Plain `{program}` does not speak it: it needs an adapter." if program in _PLAIN else ""
    )
    return (
        f"The agent {name} ended or did not answer. Its program has to be a server of the Agent Client "
        f"Protocol.{plain} {check}"
    )
