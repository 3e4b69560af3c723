"""PostgreSQL over TLS with a certificate authority, with passwords and certificates, and a role with few rights."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from store.config import StoreConfig
from store.database import Database, migrate_schema
from store.errors import StoreUnavailable
from store.postgres.node_sessions import WORK
from store.threads import ThreadStore
from tests.eventually import eventually
from tests.fakes.postgres import MISSING, PostgresServer, tls_server

PASSWORD = "correct horse"
ACCESS = """
hostssl all runner 127.0.0.1/32 scram-sha-256
hostssl all cert_user 127.0.0.1/32 cert
"""

Signed = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def signed(name: str, issuer: Signed | None = None) -> Signed:
    """Return a certificate for a name, and its key. Without an issuer, return a certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    )
    return builder.sign(issuer[1] if issuer else key, hashes.SHA256()), key


def certificate_pem(one: Signed) -> bytes:
    return one[0].public_bytes(Encoding.PEM)


def key_pem(one: Signed) -> bytes:
    return one[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the clients' files."""
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[PostgresServer]:
    """Yield a server with TLS, whose database `parley_app` belongs to `parley` and is used by two other roles."""
    authority, stranger = signed("Test CA"), signed("Other CA")
    host, user = signed("localhost", authority), signed("cert_user", authority)
    files = {"server.crt": certificate_pem(host), "server.key": key_pem(host)}
    files["ca.crt"] = certificate_pem(authority)
    (folder / "ca.crt").write_bytes(files["ca.crt"])
    (folder / "other-ca.crt").write_bytes(certificate_pem(stranger))
    (folder / "user.crt").write_bytes(certificate_pem(user))
    (folder / "user.key").write_bytes(key_pem(user))
    (folder / "user.key").chmod(0o600)
    with tls_server(files, ACCESS) as started:
        if started is None:
            pytest.skip(MISSING)
        with psycopg.connect(started.url, autocommit=True) as owner:
            owner.execute("CREATE DATABASE parley_app")
            owner.execute(f"CREATE ROLE runner LOGIN PASSWORD '{PASSWORD}'".encode())
            owner.execute("CREATE ROLE cert_user LOGIN")
        owner_url = started.url.replace("/postgres", "/parley_app")
        with psycopg.connect(owner_url, autocommit=True) as owner:
            owner.execute(
                "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE "
                "ON TABLES TO runner, cert_user"
            )
        migrate_schema(StoreConfig(url=owner_url))
        yield started


def url_of(server: PostgresServer, user: str, options: str, *, host: str = "localhost") -> str:
    port = server.url.rpartition(":")[2].partition("/")[0]
    return f"postgresql://{user}@{host}:{port}/parley_app?{options}"


async def works(url: str, home: Path) -> bool:
    """Write and read a row. Return whether the connection is encrypted."""
    async with Database.open(StoreConfig(url=url), home) as database:
        threads = ThreadStore(database)
        await threads.create("t", {"a": 1}, now=1.0)
        assert (await threads.get("t")).metadata == {"a": 1}
        await threads.delete("t")
        rows = await database.read("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        return bool(rows[0]["ssl"])


async def refusal(url: str, home: Path) -> str:
    with pytest.raises(StoreUnavailable) as caught:
        await works(url, home)
    assert "\n" not in str(caught.value)
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


async def test_a_verified_connection_with_a_password_works_for_a_role_with_rights_on_rows_only(
    server: PostgresServer, folder: Path, tmp_path: Path
) -> None:
    options = f"sslmode=verify-full&sslrootcert={folder}/ca.crt"
    url = url_of(server, f"runner:{PASSWORD.replace(' ', '%20')}", options)
    assert await works(url, tmp_path)
    with psycopg.connect(url) as runner, pytest.raises(psycopg.errors.InsufficientPrivilege):
        runner.execute("CREATE TABLE anything (n bigint)")
    with psycopg.connect(url) as runner, pytest.raises(psycopg.errors.InsufficientPrivilege):
        runner.execute("ALTER TABLE thread ADD COLUMN anything bigint")


async def test_the_password_comes_from_a_file(
    server: PostgresServer, folder: Path, tmp_path: Path
) -> None:
    file = folder / "passwords"
    file.write_text(f"*:*:parley_app:runner:{PASSWORD}\n")
    file.chmod(0o600)
    options = f"sslmode=verify-full&sslrootcert={folder}/ca.crt&passfile={file}"
    assert await works(url_of(server, "runner", options), tmp_path)


async def test_a_certificate_replaces_the_password(
    server: PostgresServer, folder: Path, tmp_path: Path
) -> None:
    options = (
        f"sslmode=verify-full&sslrootcert={folder}/ca.crt"
        f"&sslcert={folder}/user.crt&sslkey={folder}/user.key"
    )
    assert await works(url_of(server, "cert_user", options), tmp_path)


async def test_sessions_of_another_role_that_are_ending_are_waited_for(
    server: PostgresServer, folder: Path, tmp_path: Path
) -> None:
    """The sessions belong to a process that has just ended, and this role may not end them."""
    options = (
        f"sslmode=verify-full&sslrootcert={folder}/ca.crt"
        f"&sslcert={folder}/user.crt&sslkey={folder}/user.key"
    )
    owner_url = server.url.replace("/postgres", "/parley_app")
    earlier = await psycopg.AsyncConnection.connect(owner_url, autocommit=True)
    inserted = await earlier.execute(
        "INSERT INTO node (name, started_at) VALUES ('earlier', 1.0) RETURNING number"
    )
    number = (await inserted.fetchall())[0][0]
    await earlier.execute("SELECT pg_advisory_lock_shared(%s::int, %s::int)", [WORK, number])

    async def end_soon() -> None:
        await anyio.sleep(0.5)
        await earlier.close()

    config = StoreConfig(url=url_of(server, "cert_user", options))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end_soon)
        async with Database.open(config, tmp_path):
            with psycopg.connect(owner_url, autocommit=True) as owner:
                ended = "SELECT ended_at IS NOT NULL FROM node WHERE number = %s"
                await eventually(
                    lambda: owner.execute(ended, [number]).fetchall(),
                    lambda rows: rows == [(True,)],
                )


@pytest.mark.parametrize(
    ("user", "options", "host", "said"),
    [
        ("runner:wrong", "sslmode=verify-full&sslrootcert={}/ca.crt", "localhost",
            "password authentication failed"),
        ("runner", "sslmode=verify-full&sslrootcert={}/ca.crt", "localhost",
            "no password supplied"),
        ("runner:x", "sslmode=verify-full&sslrootcert={}/other-ca.crt", "localhost",
            "certificate verify failed"),
        ("runner:x", "sslmode=verify-full&sslrootcert={}/absent.crt", "localhost",
            'root certificate file "'),
        ("runner:x", "sslmode=verify-full&sslrootcert={}/ca.crt", "127.0.0.1",
            "does not match host name"),
        ("runner:x", "sslmode=disable", "127.0.0.1", "no pg_hba.conf entry"),
        ("cert_user", "sslmode=verify-full&sslrootcert={}/ca.crt&sslcert=/absent", "localhost",
            "connection requires a valid client certificate"),
    ],
)  # fmt: skip
async def test_connection_problems_are_reported_in_one_line(
    server: PostgresServer, folder: Path, tmp_path: Path, user: str, options: str, host: str, said: str
) -> None:  # fmt: skip
    assert said in await refusal(url_of(server, user, options.format(folder), host=host), tmp_path)


async def test_a_server_without_tls_is_refused(
    postgres: PostgresServer | None, folder: Path, tmp_path: Path
) -> None:
    if postgres is None:
        pytest.skip(MISSING)
    with postgres.database() as url:
        said = await refusal(f"{url}?sslmode=require", tmp_path)
    assert "server does not support SSL, but SSL was required" in said


async def test_missing_tables_are_created_by_their_owner(
    server: PostgresServer, folder: Path, tmp_path: Path
) -> None:
    with psycopg.connect(server.url, autocommit=True) as owner:
        owner.execute("CREATE DATABASE empty_app")
    options = f"sslmode=verify-full&sslrootcert={folder}/ca.crt"
    url = url_of(server, f"runner:{PASSWORD.replace(' ', '%20')}", options)
    said = await refusal(url.replace("/parley_app?", "/empty_app?"), tmp_path)
    assert said.startswith("The PostgreSQL role runner may not create Parley's tables")
    assert "parley migrate --schema" in said
