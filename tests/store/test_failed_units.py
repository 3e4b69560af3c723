"""Units of work that raise: their callers get the error, and nothing is left to the garbage collector. Both engines."""

from contextlib import suppress

from store.database import Database
from store.errors import RowNotFound
from store.transaction import Transaction
from tests.garbage import garbage_made


async def test_an_error_of_a_unit_leaves_no_garbage(database: Database) -> None:
    def fail(_: Transaction) -> None:
        raise RowNotFound("a unit that fails")

    async def failed() -> None:
        with suppress(RowNotFound):
            await database.transaction(fail)

    await failed()
    with garbage_made() as garbage:
        await failed()
    assert [found for found in garbage if isinstance(found, RowNotFound)] == []
