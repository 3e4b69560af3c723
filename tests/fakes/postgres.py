"""A PostgreSQL server for tests: `PARLEY_TEST_POSTGRES`, or one started from Debian's package.

Each test gets its own database, a copy of one with Parley's schema.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from store.postgres.connection import parse_url
from store.postgres.schema import migrate
from tests.ports import free_port

URL_VARIABLE = "PARLEY_TEST_POSTGRES"
"""URL of a server whose role may create databases and roles: `postgresql://USER:PASSWORD@HOST:PORT/postgres`."""

MISSING = f"no PostgreSQL server: set {URL_VARIABLE}, or install Debian's package postgresql"

_SETTINGS = (
    "-c fsync=off -c full_page_writes=off -c max_connections=300 -c listen_addresses=127.0.0.1"
)


@dataclass(eq=False)
class PostgresServer:
    """A running server.

    Attributes:
        url: URL of the database from which new ones are created.
        data: Its data folder, if it was started here, with the command that controls it.
    """

    url: str
    control: tuple[str, ...] = ()
    _template: str = ""
    _numbers: Iterator[int] = field(default_factory=count)
    _connection: psycopg.Connection[tuple[object, ...]] | None = None

    @contextmanager
    def database(self, *, migrated: bool = True) -> Iterator[str]:
        """Yield the URL of a new database, which is dropped afterwards. `migrated`: with Parley's tables."""
        name = self._create(self._migrated_template() if migrated else "template1")
        try:
            yield self._url_of(name)
        finally:
            self._run(f"DROP DATABASE {name} WITH (FORCE)")

    def restart(self) -> None:
        """Restart a server that was started here. Every connection breaks."""
        _call(*self.control, "-m", "immediate", "-w", "restart")

    def stop(self) -> None:
        """Stop a server that was started here."""
        _call(*self.control, "-m", "immediate", "-w", "stop")

    def start(self) -> None:
        """Start a server that was stopped."""
        _call(*self.control, "-w", "start")

    @contextmanager
    def replica(self) -> Iterator["PostgresServer"]:
        """Start a replica of a server that was started here. It follows until it is promoted."""
        programs = Path(self.control[0]).parent
        folder = _new_folder()
        data = str(folder / "data")
        try:
            _call(
                str(programs / "pg_basebackup"),
                "-d",
                self.url,
                "-D",
                data,
                "-R",
                "-c",
                "fast",
                "--no-sync",
            )
            with _started(programs, folder) as follower:
                yield follower
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def url_of(self, url: str) -> str:
        """Return the URL on this server for the database that `url` names on another server."""
        return self._url_of(str(conninfo_to_dict(url)["dbname"]))

    def promote(self) -> None:
        """Promote a replica."""
        _call(*self.control, "-w", "promote")

    def _migrated_template(self) -> str:
        if not self._template:
            self._template = self._create("template1")
            migrate(parse_url(self._url_of(self._template)))
        return self._template

    def _create(self, template: str) -> str:
        name = f"parley_{os.getpid()}_{next(self._numbers)}"
        # Takes half the CPU time of a copy through the WAL, which is the default since PostgreSQL 15.
        files = " STRATEGY FILE_COPY" if self._connected().info.server_version >= 150_000 else ""
        self._run(f"CREATE DATABASE {name} TEMPLATE {template}{files}")
        return name

    def _url_of(self, name: str) -> str:
        given = conninfo_to_dict(self.url)
        password = f":{given['password']}" if "password" in given else ""
        host = f"{given.get('host', '127.0.0.1')}:{given.get('port', 5432)}"
        return f"postgresql://{given['user']}{password}@{host}/{name}"

    def _run(self, sql: str) -> None:
        connection = self._connected()
        try:
            connection.execute(sql.encode())
        except psycopg.OperationalError:
            if not connection.broken:
                raise
            self.disconnect()  # The server was restarted in the meantime.
            self._connected().execute(sql.encode())

    def _connected(self) -> psycopg.Connection[tuple[object, ...]]:
        """Return the connection that creates databases. Opening a connection takes as long as creating a database."""
        if self._connection is None:
            self._connection = psycopg.connect(self.url, autocommit=True)
        return self._connection

    def disconnect(self) -> None:
        """Close the connection that creates databases."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def postgres_server() -> Iterator[PostgresServer | None]:
    """Yield a server; None if none exists and none can be started."""
    if url := os.environ.get(URL_VARIABLE):
        server = PostgresServer(url)
        try:
            yield server
        finally:
            server.disconnect()
        return
    programs = _programs()
    if programs is None:
        yield None
        return
    folder = _new_folder()
    try:
        _create_data(programs, folder)
        with _started(programs, folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def tls_server(files: Mapping[str, bytes], access: str) -> Iterator[PostgresServer | None]:
    """Yield a server with TLS; None if none can be started. Its `url` is for connections without TLS.

    Args:
        files: `server.crt`, `server.key`, `ca.crt`, in PEM.
        access: Lines of pg_hba.conf for connections with TLS.
    """
    programs = _programs()
    if programs is None:
        yield None
        return
    folder = _new_folder()
    for name, content in files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
        if os.geteuid() == 0:
            shutil.chown(folder / name, "postgres")
    (folder / "access").write_text(f"{access}\nhostnossl all parley 127.0.0.1/32 trust\n")
    (folder / "access").chmod(0o644)
    settings = (
        f"-c ssl=on -c hba_file={folder}/access -c ssl_cert_file={folder}/server.crt"
        f" -c ssl_key_file={folder}/server.key -c ssl_ca_file={folder}/ca.crt"
    )
    try:
        _create_data(programs, folder)
        with _started(programs, folder, settings) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _started(programs: Path, folder: Path, settings: str = "") -> Iterator[PostgresServer]:
    """Start the server whose data are in `folder`."""
    data, port = str(folder / "data"), free_port()
    options = f"-p {port} -k {folder} {_SETTINGS} {settings}"
    log = str(folder / "log")
    control = (str(programs / "pg_ctl"), "-D", data, "-o", options, "-l", log)
    server = PostgresServer(f"postgresql://parley@127.0.0.1:{port}/postgres", control)
    server.start()
    try:
        yield server
    finally:
        server.disconnect()
        with contextlib.suppress(subprocess.CalledProcessError):
            server.stop()


def _new_folder() -> Path:
    """Return a temporary folder that belongs to the servers' user."""
    folder = Path(tempfile.mkdtemp(prefix="parley-postgres-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    return folder


def _create_data(programs: Path, folder: Path) -> None:
    data = str(folder / "data")
    _call(str(programs / "initdb"), "-D", data, "-A", "trust", "-U", "parley", "--no-sync")


def _programs() -> Path | None:
    """Return the folder of the newest installed server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if found:
        return found[-1].parent
    program = shutil.which("initdb")
    return Path(program).parent if program else None


def _call(*command: str) -> None:
    """Run a program of PostgreSQL, which refuses to run as root."""
    prefix = ("runuser", "-u", "postgres", "--") if os.geteuid() == 0 else ()
    subprocess.run([*prefix, *command], check=True, stdout=subprocess.DEVNULL, cwd="/")
