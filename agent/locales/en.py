"""The agent's own words in English."""

from agent.locales.messages import AgentMessages

_AGAIN = "Please send your message again in a few minutes."
_OPERATOR = "Please tell the person who runs this bot"

ENGLISH = AgentMessages(
    model_auth="⚠️ The model's key was refused, so I cannot answer. "
    f"{_OPERATOR}: the key in its configuration has to be renewed.",
    model_quota="⚠️ The quota of the model's account is used up, so I cannot answer. "
    f"{_OPERATOR}: its account with the model's provider needs credit.",
    model_rate_limit="⚠️ The model gets too many requests at the moment. "
    "Please send your message again in a minute.",
    model_server=f"⚠️ The model's server has a problem. {_AGAIN}",
    model_timeout=f"⚠️ The model's server did not answer in time. {_AGAIN}",
    model_connection=f"⚠️ I could not reach the model's server. {_AGAIN}",
    model_context="⚠️ This conversation is too long for the model. Please send /new to start a new one, "
    "and say again what matters.",
    model_request="⚠️ The model refused the request. Please send /new and ask again; "
    "if it fails again, tell the person who runs this bot.",
    model_circuit_open="⚠️ The model's server has failed several times in a row, so I leave it alone for a moment. "
    f"{_AGAIN}",
    filtered="⚠️ The model's provider stopped this answer with its content filter. "
    "Please put your request in other words.",
    steps_used_up="(I used up all my steps before I was finished. Please ask again in smaller steps.)",
    went_in_circles="(I was repeating the same steps and stopped. "
    "Please say what to do differently, or ask for a smaller part.)",
    bare_question="How shall I go on?",
)
