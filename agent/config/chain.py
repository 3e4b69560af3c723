"""Sections that steer the calls of models and tools: `summarization` and the guards of a run."""

from agent.config.section import Section


class SummarizationConfig(Section):
    """Whether long threads are summarised."""

    enabled: bool = False
