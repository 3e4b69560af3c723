"""Messages that the agent itself sends to people, one field per text."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMessages:
    """The messages in one language, as Markdown. `model_REASON` belongs to a reason of `agent.models.failures`."""

    model_auth: str
    model_quota: str
    model_rate_limit: str
    model_server: str
    model_timeout: str
    model_connection: str
    model_context: str
    model_request: str
    model_circuit_open: str
    filtered: str
    """Replaces an answer that a provider's content filter left empty."""
    answer_filtered: str
    """Appended to an answer that the filter cut off. The next three texts are also appended to answers."""
    answer_cut_off: str
    answer_stopped: str
    answer_ended_oddly: str
    """`reason` is the server's own term."""
    only_thought: str
    """Replaces an answer that reached its length limit before its first word."""
    step_limit_reached: str
    """Replaces an answer when the turn reaches its limit of model calls."""
    turn_budget_reached: str
    """Replaces an answer when the turn reaches `usage.tokens_per_turn` or `usage.tokens_per_subagent`."""
    loop_detected: str
    """Replaces an answer when the turn repeats itself."""
    sources: str
    """Heading of the list of web pages below an answer."""
    usage_limit_person: str
    """Ends a turn at a usage limit. `amount` is the limit, `resets` the time when it resets. So do the next three
    texts."""
    usage_limit_room: str
    usage_limit_agent: str
    usage_limit_service: str
    usage_warning_person: str
    """Appended when `percent` of the limit `amount` is used, until `resets`. So is the next text."""
    usage_warning_room: str
    default_question: str
    """Replaces a question that the model left empty."""
    approval_needed: str
    """Shown with a tool call that a person must approve, if the guardrail gives no reason."""
    mcp_question: str
    """Introduces a question from the MCP server `server`. Next come the buttons, and a note about an unfit answer."""
    mcp_accept: str
    mcp_decline: str
    mcp_skip: str
    mcp_yes: str
    mcp_no: str
    mcp_unfit: str

    def model(self, reason: str) -> str:
        """Return the message for a failed model call."""
        return str(getattr(self, f"model_{reason}"))

    def usage_warning(self, scope: str) -> str:
        """Return the line that says that most of a person's or room's limit is used."""
        return str(getattr(self, f"usage_warning_{scope}"))

    def usage_limit(self, scope: str) -> str:
        """Return the message for a limit of a person, a room, an agent or the service."""
        return str(getattr(self, f"usage_limit_{scope}"))
