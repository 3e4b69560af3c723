"""Runs of the agent, over the wire: what is asked, what is folded into a reply."""
