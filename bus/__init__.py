"""The bus: receives messages, runs conversations and delivers replies.

Uses the store. Reaches the agent through `bus.runs`.
"""
