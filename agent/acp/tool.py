"""invoke_acp_agent: hands work to an agent of another maker."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from agent.config.acp import AcpAgentConfig
from agent.errors import AcpAgentError, AgentError
from agent.options import thread_id_for_run
from agent.paths import ACP_WORKSPACE, MountTable
from agent.thread_storage import ThreadStorage

NAME = "invoke_acp_agent"

MAX_CONCURRENT = 4
"""How many such agents run at the same time, over all threads; further calls wait."""

PromptAgent = Callable[[str, AcpAgentConfig, Path, str], Awaitable[str]]


class InvokeArgs(BaseModel):
    """Arguments of invoke_acp_agent."""

    agent: str = Field(description="Which agent.")
    prompt: str = Field(
        description="The whole task: it knows nothing of this conversation and cannot ask back.",
        min_length=1,
    )


class AcpAgentRunner:
    """Asks the agents of the configuration, each in the thread's own folder.

    Args:
        folders: The threads' folders.
    """

    def __init__(self, folders: ThreadStorage) -> None:
        self._folders = folders
        self._turns = anyio.Semaphore(MAX_CONCURRENT)

    def tools(self, agents: Mapping[str, AcpAgentConfig]) -> Sequence[BaseTool]:
        """Build invoke_acp_agent; nothing when no agent is configured."""
        if not agents:
            return ()

        async def invoke(agent: str, prompt: str, runtime: ToolRuntime) -> str:
            try:
                thread_id = thread_id_for_run(runtime.context, runtime.config)
                return await self._asked(_entry(agents, agent), agent, prompt, thread_id)
            except AgentError as error:
                return f"Error: {error.user_message}"[:600]

        return (
            StructuredTool.from_function(
                coroutine=invoke,
                name=NAME,
                description=_described(agents),
                args_schema=InvokeArgs,
            ),
        )

    async def _asked(self, entry: AcpAgentConfig, name: str, prompt: str, thread_id: str) -> str:
        folders = self._folders.folders(thread_id)
        async with self._turns:
            await anyio.to_thread.run_sync(folders.create)
            prompt_agent = await anyio.to_thread.run_sync(_loaded)
            said = await prompt_agent(name, entry, folders.acp_workspace, prompt)
        return MountTable(folders.mounts()).mask_host_paths(said)


def _entry(agents: Mapping[str, AcpAgentConfig], name: str) -> AcpAgentConfig:
    found = agents.get(name)
    if found is None:
        raise AcpAgentError(f"There is no agent {name[:80]!r}; there are: {', '.join(agents)}.")
    return found


def _loaded() -> PromptAgent:
    from agent.acp.session import prompt_agent  # noqa: PLC0415

    return prompt_agent


def _described(agents: Mapping[str, AcpAgentConfig]) -> str:
    known = "\n".join(
        f"- {name}: {' '.join(entry.description.split()) or 'no description'}"
        for name, entry in agents.items()
    )
    return (
        "Hand a task to an agent of another maker and wait for its answer. It works in a folder of its own, which you "
        f"see at {ACP_WORKSPACE} and can only read; it sees none of your folders, so put into the prompt what it "
        f"needs. To hand over a file of its, read it and write it to your outputs.\nAgents:\n{known}"
    )
