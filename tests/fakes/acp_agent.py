"""An ACP agent built with the real ACP server library. Its first argument is its behavior: echo, ask, or peek.

python -m tests.fakes.acp_agent echo
"""

import asyncio
import json
import os
import sys
from typing import Any, cast

import anyio
from acp import (
    PROTOCOL_VERSION,
    Agent,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    RequestError,
    run_agent,
    update_agent_message_text,
    update_agent_thought_text,
)
from acp.interfaces import Client
from acp.schema import PermissionOption, TextContentBlock, ToolCallUpdate

OPTIONS = [
    PermissionOption(option_id="always", name="Always", kind="allow_always"),
    PermissionOption(option_id="once", name="Once", kind="allow_once"),
    PermissionOption(option_id="never", name="No", kind="reject_once"),
]


class FakeAcpAgent:
    """Writes its input into its folder, then acts according to its behavior."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.given: dict[str, Any] = {}
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The client."""
        assert self._client is not None
        return self._client

    def on_connect(self, conn: Client) -> None:
        """Store the client's side of the connection."""
        self._client = conn

    async def initialize(self, protocol_version: int, **_: object) -> InitializeResponse:
        """Greet."""
        return InitializeResponse(protocol_version=PROTOCOL_VERSION)

    async def new_session(self, cwd: str, **further: object) -> NewSessionResponse:
        """Open the only session."""
        self.given = {"cwd": cwd, "model": further.get("model"), "env": dict(os.environ)}
        return NewSessionResponse(session_id="s1")

    async def prompt(self, prompt: list[TextContentBlock], **_: object) -> PromptResponse:
        """Answer."""
        await anyio.Path("given.json").write_text(json.dumps(self.given))
        thought = update_agent_thought_text("thinking")
        await self.client.session_update(session_id="s1", update=thought)
        kinds = {"echo": self._echo, "ask": self._ask, "peek": self._peek}
        for piece in await kinds[self.kind](prompt[0].text):
            update = update_agent_message_text(piece)
            await self.client.session_update(session_id="s1", update=update)
        return PromptResponse(stop_reason="end_turn")

    async def _echo(self, text: str) -> list[str]:
        return ["You ", "said: ", text]

    async def _ask(self, text: str) -> list[str]:
        call = ToolCallUpdate(tool_call_id="t1", title="rm -rf")
        answer = await self.client.request_permission(
            session_id="s1", tool_call=call, options=OPTIONS
        )
        return [f"You chose {getattr(answer.outcome, 'option_id', None)}."]

    async def _peek(self, text: str) -> list[str]:
        answers = []
        for reach in (
            self.client.read_text_file(session_id="s1", path="/etc/passwd"),
            self.client.write_text_file(session_id="s1", path="/etc/x", content=""),
            self.client.create_terminal(session_id="s1", command="id"),
        ):
            try:
                answers.append(repr(await reach))
            except (RequestError, ValueError):  # ValueError: an answer without its required fields.
                answers.append("refused")
        return ["; ".join(answers)]


if __name__ == "__main__":
    asyncio.run(run_agent(cast("Agent", FakeAcpAgent(sys.argv[1]))))
