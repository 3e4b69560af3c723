"""The middleware around the agent's model and tool calls. `agent/factory.py` has its order.

All of them use only `awrap_model_call` and `awrap_tool_call`. A before/after hook would be a graph step, which counts
against the recursion limit and writes a checkpoint for every model call. Only the async hooks are needed, because the
agent's graphs run asynchronously.
"""
