"""An MCP server over stdio with many tools, whose schemas are as long as real ones: `mcp_many.py COUNT`."""

import sys
from typing import Annotated, Any

from mcp.server.fastmcp import FastMCP
from pydantic import Field

from tests.fakes.mcp_stdio import stdio_server


def many_tools(count: int) -> dict[str, object]:
    """Return the configuration of a server with this many tools."""
    return stdio_server("mcp_many", str(count))


def _build(count: int) -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("many", log_level="ERROR")

    async def update(
        customer: Annotated[
            str, Field(description="The customer's number, or its name if unique.")
        ],
        amount: Annotated[
            int, Field(description="The new amount in cents; negative for a credit.")
        ],
        currency: Annotated[str, Field(description="ISO 4217 code of the currency.")] = "EUR",
        note: Annotated[str | None, Field(description="A note that the customer will see.")] = None,
    ) -> str:
        return f"updated {amount} for {customer}"

    for number in range(count):
        description = (
            f"Update the invoice of kind {number}. The invoice must exist and must not be paid yet; the customer gets "
            "a message about each change. Returns the invoice as it is after the change."
        )
        server.add_tool(update, name=f"update_invoice_{number}", description=description)
    return server


if __name__ == "__main__":
    _build(int(sys.argv[1])).run("stdio")
