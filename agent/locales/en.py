"""English messages of the agent."""

from agent.locales.messages import AgentMessages

_AGAIN = "Please send your message again in a few minutes."
_OPERATOR = "Please tell the person who runs this bot"

ENGLISH = AgentMessages(
    model_auth="⚠️ I cannot answer because the model's API key was rejected. "
    f"{_OPERATOR} to update the key in its configuration.",
    model_quota="⚠️ I cannot answer because the model account has no quota left. "
    f"{_OPERATOR} to add credit to the model provider's account.",
    model_rate_limit="⚠️ The model is receiving too many requests right now. "
    "Please send your message again in a minute.",
    model_server=f"⚠️ The model's server had a problem. {_AGAIN}",
    model_timeout=f"⚠️ The model's server did not respond in time. {_AGAIN}",
    model_connection=f"⚠️ I could not reach the model's server. {_AGAIN}",
    model_context="⚠️ This conversation is too long for the model. Please send /new to start a new one, "
    "and repeat the important points.",
    model_request="⚠️ The model rejected the request. Please send /new and ask again. "
    "If it fails again, tell the person who runs this bot.",
    model_circuit_open="⚠️ The model's server failed several times in a row, so I am waiting a moment before I try "
    f"again. {_AGAIN}",
    filtered="⚠️ The model provider's content filter blocked this answer. Please rephrase your request.",
    answer_filtered="⚠️ The model provider's content filter ended this answer here.",
    answer_cut_off="⚠️ This answer is cut off here: the model reached its length limit. Ask me to continue.",
    answer_stopped="⚠️ The model's server ended this answer early, so it may be incomplete. Please ask again.",
    answer_ended_oddly="⚠️ This answer may be incomplete: the model's server ended it with the reason “{reason}”.",
    only_thought="⚠️ The model spent its whole answer on thinking and wrote nothing. "
    "Please ask in smaller steps. If it happens again, tell the person who runs this bot to raise the model's limit.",
    step_limit_reached="(I reached my step limit before I finished. Please ask again in smaller steps.)",
    turn_budget_reached="(I used up the tokens for one message before I finished. Please ask again in smaller steps.)",
    loop_detected="(I was repeating the same steps, so I stopped. "
    "Please tell me what to do differently, or ask for a smaller part.)",
    sources="Sources:",
    usage_limit_person="You have used your allowance of {amount}. It resets on {resets}. "
    "If you need more, please ask the person who runs this bot.",
    usage_limit_room="This chat has used its allowance of {amount}. It resets on {resets}.",
    usage_limit_agent="This agent has used its allowance of {amount}. It resets on {resets}. "
    "You can choose another one with /agent.",
    usage_limit_service="My allowance of {amount} is used up. I can answer again on {resets}.",
    usage_warning_person="(You have used {percent}% of your allowance of {amount}. It resets on {resets}.)",
    usage_warning_room="(This chat has used {percent}% of its allowance of {amount}. It resets on {resets}.)",
    default_question="How should I continue?",
    approval_needed="This tool call needs your approval.",
    mcp_question="🔌 The MCP server “{server}” asks:",
    mcp_accept="Accept",
    mcp_decline="Decline",
    mcp_skip="Skip",
    mcp_yes="Yes",
    mcp_no="No",
    mcp_unfit="⚠️ This answer is not valid here. Please try again.",
)
