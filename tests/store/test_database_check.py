"""`parley doctor` checks the database without changing it."""

import os
from pathlib import Path

import psycopg
import pytest

from gateway.checks.machine import check_database
from store.config import StoreConfig


def test_roles_that_could_listen_to_the_nodes_are_named_until_they_may_not_connect(
    url: str, tmp_path: Path
) -> None:
    role = f"stranger_{os.getpid()}"
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'".encode())
        place = f"{owner.info.host}:{owner.info.port}/{owner.info.dbname}"
        try:
            stranger_url = f"postgresql://{role}:x@{place}"
            with psycopg.connect(stranger_url, autocommit=True) as stranger:
                stranger.execute('LISTEN "parley:anything"')
                owner.execute("SELECT pg_notify('parley:anything', 'words of a person')")
                [heard] = stranger.notifies(timeout=10, stop_after=1)
                assert heard.payload == "words of a person"
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    stranger.execute("SELECT * FROM inbox")
            found = check_database(StoreConfig(url=url), tmp_path)
            assert found.severity == "warning"
            assert role in found.text
            owner.execute(f"REVOKE CONNECT ON DATABASE {owner.info.dbname} FROM PUBLIC".encode())
            with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
                psycopg.connect(stranger_url)
            assert role not in check_database(StoreConfig(url=url), tmp_path).text
        finally:
            owner.execute(f"DROP ROLE {role}".encode())
