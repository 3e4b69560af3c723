"""Terminals at other nodes: a session's chat is worked on by one node, and its terminal may be attached to another."""

import json
from dataclasses import astuple

from pydantic import TypeAdapter

from bots.terminal.adapter import TerminalAdapter
from bots.terminal.session import ShowResult, TerminalEvent
from store.node_calls import NodeCalls

SHOW = "terminal.show"

_EVENT: TypeAdapter[TerminalEvent] = TypeAdapter(TerminalEvent)
_UNKNOWN = ShowResult(attached=1)
"""Of a node that does not answer: if a terminal is attached there, the event is shown again, under the same ID."""


class NodeTerminals:
    """Shows events at the terminals of all other nodes, and theirs at those of this one.

    Args:
        terminal: The adapter of this node.
        calls: To and from the other nodes.
    """

    def __init__(self, terminal: TerminalAdapter, calls: NodeCalls) -> None:
        self._terminal = terminal
        self._calls = calls
        calls.serve(SHOW, self._show_here)

    async def show(self, session: str, event: TerminalEvent) -> ShowResult:
        """Show an event at the terminals of a session that are attached to other nodes. Raises nothing."""
        body = json.dumps([session, _EVENT.dump_python(event, mode="json")])
        answers = await self._calls.call_others(SHOW, body)
        results = (
            _UNKNOWN if answer is None else ShowResult(*json.loads(answer))
            for node, answer in answers.items()
            if answer is not None or node in self._calls.others
        )
        return sum(results, ShowResult())

    async def _show_here(self, body: str) -> str:
        session, event = json.loads(body)
        return json.dumps(astuple(self._terminal.show_here(session, _EVENT.validate_python(event))))


def connect_terminals(terminal: TerminalAdapter | None, calls: NodeCalls) -> None:
    """Let the terminals of this node show what other nodes answer. None = the terminal is disabled."""
    if terminal is not None:
        terminal.elsewhere = NodeTerminals(terminal, calls)
