"""Requests that another node of the database answers: which node, and how they get there and back."""
