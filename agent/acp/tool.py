"""invoke_acp_agent: delegates a task to an external agent."""

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
"""Maximum number of external agents running at once, across all threads. Further calls wait."""

PromptAgent = Callable[[str, AcpAgentConfig, Path, str], Awaitable[str]]


class InvokeArgs(BaseModel):
    """Arguments of invoke_acp_agent."""

    agent: str = Field(description="The agent.")
    prompt: str = Field(
        description="The complete task: the agent does not see this conversation and cannot ask questions.",
        min_length=1,
    )


class AcpAgentRunner:
    """Runs the configured agents in the thread's own folder.

    Args:
        folders: Threads' folders.
    """

    def __init__(self, folders: ThreadStorage) -> None:
        self._folders = folders
        self._slots = anyio.Semaphore(MAX_CONCURRENT)

    def tools(self, agents: Mapping[str, AcpAgentConfig]) -> Sequence[BaseTool]:
        """Build invoke_acp_agent. The list is empty if no agent is configured."""
        if not agents:
            return ()

        async def invoke(agent: str, prompt: str, runtime: ToolRuntime) -> str:
            try:
                thread_id = thread_id_for_run(runtime.context, runtime.config)
                return await self._run(_entry(agents, agent), agent, prompt, thread_id)
            except AgentError as error:
                return f"Error: {error.user_message}"[:600]

        return (
            StructuredTool.from_function(
                coroutine=invoke,
                name=NAME,
                description=_description(agents),
                args_schema=InvokeArgs,
            ),
        )

    async def _run(self, entry: AcpAgentConfig, name: str, prompt: str, thread_id: str) -> str:
        folders = self._folders.folders(thread_id)
        async with self._slots:
            await anyio.to_thread.run_sync(folders.create)
            prompt_agent = await anyio.to_thread.run_sync(_load_session)
            text = await prompt_agent(name, entry, folders.acp_workspace, prompt)
        return MountTable(folders.mounts()).mask_host_paths(text)


def _entry(agents: Mapping[str, AcpAgentConfig], name: str) -> AcpAgentConfig:
    found = agents.get(name)
    if found is None:
        raise AcpAgentError(
            f"There is no agent {name[:80]!r}. Available agents: {', '.join(agents)}."
        )
    return found


def _load_session() -> PromptAgent:
    from agent.acp.session import prompt_agent  # noqa: PLC0415

    return prompt_agent


def _description(agents: Mapping[str, AcpAgentConfig]) -> str:
    known = "\n".join(
        f"- {name}: {' '.join(entry.description.split()) or 'no description'}"
        for name, entry in agents.items()
    )
    return (
        "Delegate a task to an external agent and wait for its answer. It works in its own folder, which you can read "
        f"at {ACP_WORKSPACE}. It cannot see your folders, so include everything it needs in the prompt. To send one of "
        f"its files to the user, copy the content to your outputs.\nAgents:\n{known}"
    )
