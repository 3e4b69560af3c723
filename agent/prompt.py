"""The system prompt, assembled from sections in the language of the conversation. Pure."""

from collections.abc import Iterable

from agent.locales import PROMPTS, PromptTexts
from agent.locales.prompt_en import ENGLISH_PROMPT
from agent.options import RunOptions
from agent.paths import OUTPUTS, UPLOADS, WORKSPACE

BOOTSTRAP_TAG = "<bootstrap>"
"""Opens the section of a bootstrap run. The demo model looks for it."""


def subagent_prompt(role: str, *sections: str) -> str:
    """Return a subagent's system prompt as one text, because some providers reject a second system message.

    It is English, because people never talk to subagents.
    """
    return "\n\n".join(text for text in (role, *sections, ENGLISH_PROMPT.trust) if text)


def system_prompt(
    options: RunOptions,
    *,
    subagent_types: Iterable[str] = (),
    agent_sections: Iterable[str] = (),
    has_bash: bool = False,
    has_web: bool = False,
) -> str:
    """Return the system prompt of a run. Equal arguments give equal text, so that providers can cache it.

    Args:
        options: The run's options.
        subagent_types: The available subagent types, if the options allow delegation.
        agent_sections: Sections about this agent: soul, user profile, skills.
        has_bash: Whether the agent can run commands.
        has_web: Whether the agent has web tools.
    """
    texts = PROMPTS[options.language]
    sections = [
        texts.role,
        texts.work,
        texts.limits,
        texts.folders.format(workspace=WORKSPACE, uploads=UPLOADS, outputs=OUTPUTS),
        texts.commands if has_bash else "",
        texts.sources if has_web else "",
        texts.questions,
        _delegation(texts, options, subagent_types) if options.subagent_enabled else "",
        texts.trust,
        *agent_sections,
        f"{BOOTSTRAP_TAG}\n{texts.bootstrap}\n</bootstrap>" if options.is_bootstrap else "",
    ]
    return "\n\n".join(section for section in sections if section)


def _delegation(texts: PromptTexts, options: RunOptions, types: Iterable[str]) -> str:
    limit = options.max_concurrent_subagents
    return texts.delegation.format(types=", ".join(types), concurrency=limit)
