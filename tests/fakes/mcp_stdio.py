"""Runs the MCP servers of this folder as forked processes, because importing the SDK takes longer than most tests."""

from tests.fork_server import forked_program


def stdio_server(name: str, *arguments: str) -> dict[str, object]:
    """Return the configuration of a server, with the arguments of its module in this folder."""
    command, *others = forked_program(f"tests.fakes.{name}", *arguments)
    return {"command": command, "args": others}
