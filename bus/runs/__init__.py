"""Runs of the agent: the LangGraph client, the reply fold, questions, progress and uploads."""
