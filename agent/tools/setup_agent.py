"""The tool with which a bootstrap run stores the custom agent that it sets up."""

from typing import Final

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from agent.custom_agents import CustomAgent, CustomAgentStore, normalize_agent_name
from agent.errors import AgentExists, AgentInvalid, AgentNotFound, CustomAgentError
from agent.options import RunContext

NAMELESS: Final = (
    "Error: this conversation works with the lead agent, which cannot be saved over. Keep to what the person asked "
    "for while the conversation lasts. Tell them: an agent of its own needs a name first; the person who runs this "
    "bot gives it one, in the session of the channel or over /api/agents."
)


class SetupArgs(BaseModel):
    """Arguments of setup_agent."""

    soul: str = Field(
        description="The agent's role, tone, rules and knowledge, as Markdown: all that it keeps to."
    )
    description: str = Field(description="One line that says what the agent is for.")


def setup_agent_tool(agents: CustomAgentStore) -> BaseTool:
    """Build setup_agent over the custom agents given."""

    async def setup_agent(soul: str, description: str, runtime: ToolRuntime) -> str:
        caller = RunContext.from_runtime(runtime.context, runtime.config)
        if caller.agent_name is None:
            return NAMELESS
        try:
            saved = await _saved(agents, caller, soul, description)
        except CustomAgentError as error:
            return f"Error: {error.user_message}"
        return f"The agent {saved.name} is saved and works like this from the next message on."

    return StructuredTool.from_function(
        coroutine=setup_agent,
        name="setup_agent",
        description=(
            "Save the agent that this conversation sets up. Call it once the person has said what they want, "
            "with the whole text; calling it again replaces the text."
        ),
        args_schema=SetupArgs,
    )


async def _saved(
    agents: CustomAgentStore, caller: RunContext, soul: str, description: str
) -> CustomAgent:
    """Store a new agent, or another form of one that the same person made."""
    if not soul.strip():
        raise AgentInvalid("soul is empty: write down what the person asked for")
    name = normalize_agent_name(caller.agent_name or "")
    texts = {"soul": soul, "description": " ".join(description.split())[:1024]}

    def changed(old: CustomAgent) -> CustomAgent:
        if old.made_by is None or old.made_by != caller.user_id:
            raise AgentExists(
                f"the agent {name} was set up by somebody else; an administrator can change it over /api/agents"
            )
        return old.model_copy(update=texts)

    try:
        return await agents.update(name, changed)
    except AgentNotFound:
        made = CustomAgent(name=name, made_by=caller.user_id)
        return await agents.create(made.model_copy(update=texts))
