"""Credentials received at run time, encrypted with a key of the data folder (AES-256-GCM).

The table has one row for each workspace that installed an app, and nothing prunes it.
"""

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from store.data_folder import read_or_create_key
from store.database import Database, Params
from store.errors import StoreError

if TYPE_CHECKING:
    from Crypto.Cipher._mode_gcm import GcmMode

KEY_FILE = "credentials.key"
"""Name of the key file in the data folder, readable only by its owner. Without it, the rows cannot be decrypted."""

_KEY_BYTES = 32
_NONCE_BYTES = 12
_TAG_BYTES = 16

_SAVE = """
INSERT INTO credential (channel, name, secret, updated_at) VALUES (:channel, :name, :secret, :now)
ON CONFLICT (channel, name) DO UPDATE SET secret = excluded.secret, updated_at = excluded.updated_at
"""
_LOAD = "SELECT name, secret FROM credential WHERE channel = :channel ORDER BY name"
_DELETE = "DELETE FROM credential WHERE channel = :channel AND name = :name"


class CredentialStore:
    """The credential table. `home` is the data folder; storing the first secret creates the key there."""

    def __init__(
        self, database: Database, home: Path, *, now: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._home = home
        self._now = now

    async def save(self, channel: str, name: str, secret: str) -> None:
        """Store a secret, replacing an earlier one with the same name. Raises StoreError."""
        params: Params = {
            "channel": channel,
            "name": name,
            "secret": self._encrypt(channel, name, secret),
            "now": self._now(),
        }
        await self._database.transaction(lambda tx: tx.run(_SAVE, params))

    async def load(self, channel: str) -> dict[str, str]:
        """Return a channel's secrets by name.

        Raises:
            StoreError: the database cannot be read, or a row was encrypted with another key.
        """
        rows = await self._database.read(_LOAD, {"channel": channel})
        return {row["name"]: self._decrypt(channel, row["name"], row["secret"]) for row in rows}

    async def delete(self, channel: str, name: str) -> None:
        """Delete a secret if it exists. Raises StoreError."""
        params: Params = {"channel": channel, "name": name}
        await self._database.transaction(lambda tx: tx.run(_DELETE, params))

    def _encrypt(self, channel: str, name: str, secret: str) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        ciphertext, tag = self._cipher(channel, name, nonce).encrypt_and_digest(secret.encode())
        return bytes(nonce + tag + ciphertext)

    def _decrypt(self, channel: str, name: str, data: bytes) -> str:
        nonce, tag = data[:_NONCE_BYTES], data[_NONCE_BYTES : _NONCE_BYTES + _TAG_BYTES]
        cipher = self._cipher(channel, name, nonce)
        try:
            plain: bytes = cipher.decrypt_and_verify(data[_NONCE_BYTES + _TAG_BYTES :], tag)
        except ValueError as error:
            text = f"a credential of {channel} cannot be decrypted: {KEY_FILE} is not the key it was stored with"
            raise StoreError(text) from error
        return plain.decode()

    def _cipher(self, channel: str, name: str, nonce: bytes) -> "GcmMode":
        """Return a cipher that binds a secret to its row: moved to another row, it cannot be decrypted."""
        from Crypto.Cipher import AES  # noqa: PLC0415 - 0.1 s

        cipher = AES.new(load_key(self._home), AES.MODE_GCM, nonce=nonce, mac_len=_TAG_BYTES)
        cipher.update(f"{channel}\0{name}".encode())
        return cipher


def new_key() -> bytes:
    """Return a new key."""
    return secrets.token_bytes(_KEY_BYTES)


def load_key(home: Path) -> bytes:
    """Return the key of a data folder; create it if it is missing.

    Raises:
        StoreError: the file cannot be read or written, or is not a key.
    """
    path = home / KEY_FILE
    try:
        key, _ = read_or_create_key(path, new_key())
    except OSError as error:
        raise StoreError(f"{path} cannot be used ({error.strerror})") from error
    if len(key) != _KEY_BYTES:
        raise StoreError(f"{path} is not a key of {_KEY_BYTES} bytes")
    return key
