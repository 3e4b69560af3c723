"""Wait for nodes of a PostgreSQL database to see that work may be given to each of them."""

from store.database import Database
from tests.eventually import eventually


async def until_ready(*databases: Database) -> None:
    """Wait until each of these nodes knows that all of them take work: all prefer the same one for a chat."""
    wanted = {database.nodes.number for database in databases}

    def known() -> list[set[int]]:
        return [
            {node.number for node in database.nodes.living if node.takes_work}
            for database in databases
        ]

    await eventually(known, lambda found: all(wanted <= one for one in found))
