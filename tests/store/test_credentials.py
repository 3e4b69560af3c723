"""Credentials: encrypted with a key in the data folder, and bound to their row."""

from pathlib import Path

import pytest

from store.config import StoreConfig
from store.credentials import KEY_FILE, CredentialStore
from store.database import Database
from store.errors import StoreError

SECRET = "xoxb-very-secret"


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.iterdir() if path.is_file()]


async def test_secrets_are_kept_encrypted(store_config: StoreConfig, tmp_path: Path) -> None:
    async with Database.open(store_config, tmp_path) as database:
        store = CredentialStore(database, tmp_path)
        assert await store.load("slack") == {}
        assert not (tmp_path / KEY_FILE).exists()
        await store.save("slack", "T1", "an older one")
        await store.save("slack", "T1", SECRET)
        await store.save("slack-2", "T1", "another")
        stored = await database.read("SELECT secret FROM credential")
        assert len(stored) == 2
        assert not any(SECRET.encode() in row["secret"] for row in stored)
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert not any(SECRET.encode() in content for content in contents(tmp_path))
    async with Database.open(store_config, tmp_path) as database:
        store = CredentialStore(database, tmp_path)
        assert await store.load("slack") == {"T1": SECRET}
        await store.delete("slack", "T1")
        await store.delete("slack", "T1")
        assert await store.load("slack") == {}
        assert await store.load("slack-2") == {"T1": "another"}


async def test_a_row_cannot_be_moved_or_read_with_another_key(
    store_config: StoreConfig, tmp_path: Path
) -> None:
    async with Database.open(store_config, tmp_path) as database:
        store = CredentialStore(database, tmp_path)
        await store.save("slack", "T1", SECRET)
        await database.transaction(lambda tx: tx.run("UPDATE credential SET name = 'T2'"))
        with pytest.raises(StoreError, match="cannot be decrypted"):
            await store.load("slack")
        await store.delete("slack", "T2")
        await store.save("slack", "T1", SECRET)
        (tmp_path / KEY_FILE).write_bytes(b"k" * 32)
        with pytest.raises(StoreError, match="cannot be decrypted"):
            await store.load("slack")
        (tmp_path / KEY_FILE).write_bytes(b"short")
        with pytest.raises(StoreError, match="is not a key"):
            await store.load("slack")
