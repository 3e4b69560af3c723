"""Terminals at other nodes. One node works on a session's chat, and its terminal may be attached to another node."""

import json
from dataclasses import astuple

from pydantic import TypeAdapter

from bots.terminal.adapter import TerminalAdapter
from bots.terminal.session import ShowResult, TerminalEvent
from store.node_calls import NodeCalls

SHOW = "terminal.show"

_EVENT: TypeAdapter[TerminalEvent] = TypeAdapter(TerminalEvent)
_UNKNOWN = ShowResult(attached=1)
"""The result for a node that does not answer. It may have a terminal, so the event is shown again with the same ID."""


class NodeTerminals:
    """Shows this node's events at the terminals of other nodes, and their events at this node's terminals.

    Args:
        terminal: The adapter of this node.
        calls: Calls to and from other nodes.
    """

    def __init__(self, terminal: TerminalAdapter, calls: NodeCalls) -> None:
        self._terminal = terminal
        self._calls = calls
        calls.serve(SHOW, self._show_here)

    async def show(self, session: str, event: TerminalEvent) -> ShowResult:
        """Show an event at a session's terminals that are attached to other nodes. Never raises."""
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
    """Show events of other nodes at this node's terminals. None = the terminal is disabled."""
    if terminal is not None:
        terminal.other_terminals = NodeTerminals(terminal, calls)
