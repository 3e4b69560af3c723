"""Strangers who asked to be let in, and who was."""

from dataclasses import dataclass

from store.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """One request. `code` has 8 characters without 0, O, 1, I and lives one hour."""

    code: str
    channel: str
    workspace: str
    user_id: str
    user_name: str
    chat: str
    created_at: float
    approved_at: float | None


class Pairings:
    """Pairing codes and the people they let in."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def request(self, new: Pairing, *, max_open: int = 100) -> Pairing | None:
        """Return this person's open request, or store `new`; None when the channel has `max_open` open ones."""
        raise NotImplementedError

    async def approve(self, code: str, *, now: float) -> Pairing:
        """Let the person of a code in. Raises NotFound (unknown or expired)."""
        raise NotImplementedError

    async def revoke(self, channel: str, user_id: str) -> bool:
        """Shut a person out again; False if they were not in."""
        raise NotImplementedError

    async def is_paired(self, channel: str, workspace: str, user_id: str) -> bool:
        """Return whether this person was let in."""
        raise NotImplementedError

    async def listing(self) -> list[Pairing]:
        """Return open requests and people let in, newest first."""
        raise NotImplementedError
