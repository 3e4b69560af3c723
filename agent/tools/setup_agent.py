"""setup_agent: saves the custom agent that a bootstrap run sets up."""

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from agent.custom_agents import CustomAgent, CustomAgentStore, normalize_agent_name
from agent.errors import AgentExists, AgentInvalid, AgentNotFound, CustomAgentError
from agent.options import RunContext

NAME = "setup_agent"

NAMELESS = (
    "Error: this conversation uses the lead agent, which cannot be overwritten. Follow the user's wishes for the rest "
    "of the conversation. Tell them that a custom agent needs a name first: the bot's operator sets it in the "
    "channel's session or with /api/agents."
)


class SetupArgs(BaseModel):
    """Arguments of setup_agent."""

    soul: str = Field(
        description="The complete instructions, as Markdown: role, tone, rules and knowledge."
    )
    description: str = Field(description="The agent's purpose, in one line.")


def setup_agent_tool(agents: CustomAgentStore) -> BaseTool:
    """Build setup_agent over the custom agents."""

    async def setup_agent(soul: str, description: str, runtime: ToolRuntime) -> str:
        caller = RunContext.from_runtime(runtime.context, runtime.config)
        if caller.agent_name is None:
            return NAMELESS
        try:
            saved = await _save(agents, caller, soul, description)
        except CustomAgentError as error:
            return f"Error: {error.user_message}"
        return f"The agent {saved.name} is saved. It takes effect with the next message."

    return StructuredTool.from_function(
        coroutine=setup_agent,
        name=NAME,
        description=(
            "Save the agent that this conversation sets up. Call it with the complete text once the user has said "
            "what they want; calling it again replaces the text."
        ),
        args_schema=SetupArgs,
    )


async def _save(
    agents: CustomAgentStore, caller: RunContext, soul: str, description: str
) -> CustomAgent:
    """Create an agent, or update one that the same person created."""
    if not soul.strip():
        raise AgentInvalid("soul is empty: write the instructions that the user asked for")
    name = normalize_agent_name(caller.agent_name or "")
    texts = {"soul": soul, "description": " ".join(description.split())[:1024]}

    def apply(old: CustomAgent) -> CustomAgent:
        if old.made_by is None or old.made_by != caller.user_id:
            raise AgentExists(
                f"the agent {name} was created by someone else; an administrator can change it with /api/agents"
            )
        return old.model_copy(update=texts)

    try:
        return await agents.update(name, apply)
    except AgentNotFound:
        new = CustomAgent(name=name, made_by=caller.user_id)
        return await agents.create(new.model_copy(update=texts))
