"""The whole service on a port, with a token, a web page that may call it, and a model controlled by keywords."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import yaml

from gateway.app import network_app
from gateway.compose import open_app
from gateway.config import load_config
from gateway.serving.listener import open_listener
from gateway.serving.server import HttpServer
from tests.fakes.graphs import Graphs
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.service import with_model
from tests.ports import free_port

TOKEN = "test-token-0123"
PAGE = "http://localhost:3000"
"""Origin of agent-chat-ui's development server, the only page that may call the service."""


@dataclass(frozen=True, kw_only=True)
class ChatUiServer:
    """The open service.

    Attributes:
        url: Without a path.
        graphs: Small graphs next to the agent, and their controls.
    """

    url: str
    model: FakeModelServer
    graphs: Graphs


ASKED = {
    "hang": ModelReply(text="one two three four", hang_after=3),
    "slowly": ModelReply(text=" ".join(f"word{n}" for n in range(12)), token_delay_s=0.05),
    "list": ModelReply(calls=(ToolCall("ls", {"path": "/mnt/user-data/workspace"}),)),
    "delegate": ModelReply(
        calls=(
            ToolCall(
                "task",
                {
                    "description": "look",
                    "prompt": "look around",
                    "subagent_type": "general-purpose",
                },
            ),
        )
    ),
    "colour": ModelReply(
        calls=(
            ToolCall(
                "ask_clarification",
                {"question": "Red or blue?", "clarification_type": "missing_info"},
            ),
        )
    ),
}
"""The model's behavior if the user's message contains one of these keywords."""


def answer(request: ModelRequest) -> ModelReply:
    """Do what the user's keyword says, repeat a tool's result, or echo anything else."""
    if request.messages[-1]["role"] == "tool":
        return ModelReply(text=f"The tool said: {request.messages[-1]['content']}")
    said = request.last_user_text
    wanted = next((reply for word, reply in ASKED.items() if word in said), None)
    return wanted or ModelReply(text=f"You said: {said}")


@asynccontextmanager
async def opened(folder: Path, **gateway: Any) -> AsyncIterator[ChatUiServer]:  # noqa: ANN401 - configuration
    """Open the service with a new data folder. Keyword arguments go to the `gateway` section."""
    port = free_port()
    file = folder / "config.yaml"
    async with FakeModelServer(answer=answer) as model:
        section = {"port": port, "cors_origins": [PAGE], **gateway}
        whole = {**with_model(model.base_url), "gateway": section, "title": {"enabled": False}}
        whole["models"][0]["supports_vision"] = True
        file.write_text(yaml.safe_dump({"config_version": 1, **whole}))
        config = load_config(
            str(file), {"PARLEY_HOME": str(folder / "home"), "PARLEY_ADMIN_TOKEN": TOKEN}
        )
        async with open_app(config) as app:
            graphs = Graphs()
            app.state.services.runs.graphs.update(graphs.sources)
            with open_listener(config.gateway) as door:
                server = HttpServer(network_app(app, config.gateway, token=TOKEN), door)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(server.run_until_stopped)
                    with anyio.fail_after(20):
                        await server.ready.wait()
                    try:
                        yield ChatUiServer(
                            url=f"http://127.0.0.1:{port}", model=model, graphs=graphs
                        )
                    finally:
                        server.stop()
                        server.force_exit = True
