"""nginx with the configuration in deploy/nginx, on a port of the loopback interface."""

import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import anyio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

TEMPLATE = Path(__file__).parents[2] / "deploy" / "nginx" / "parley.conf.template"
PROGRAM = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
MISSING = "nginx is not installed (Debian, Ubuntu: apt-get install nginx-light)"


@asynccontextmanager
async def nginx(folder: Path, *, port: int, upstream: int) -> AsyncIterator[Path]:
    """Run nginx with TLS in front of a service on 127.0.0.1. Yield the path of its certificate."""
    assert PROGRAM is not None, MISSING
    certificate = write_certificate(folder)
    site = TEMPLATE.read_text()
    for name, value in (
        ("PARLEY_TLS_PORT", f"127.0.0.1:{port}"),
        ("PARLEY_SERVER_NAME", "127.0.0.1"),
        ("PARLEY_TLS_FOLDER", str(folder)),
        ("PARLEY_UPSTREAM", f"127.0.0.1:{upstream}"),
    ):
        site = site.replace(f"${{{name}}}", value)
    (folder / "site.conf").write_text(site)
    (folder / "nginx.conf").write_text(
        f"daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;"
        f"user root; events {{ worker_connections 64; }} http {{ access_log off;"
        f" client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;"
        f" fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;"
        f" include {folder}/site.conf; }}\n"
    )
    process = await anyio.open_process(
        [PROGRAM, "-c", str(folder / "nginx.conf")], stderr=subprocess.DEVNULL
    )
    try:
        yield certificate
    finally:
        process.terminate()
        with anyio.CancelScope(shield=True):
            await process.wait()


def write_certificate(folder: Path) -> Path:
    """Write tls.key and tls.crt, valid for 127.0.0.1 for a day. Return the path of the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    file = folder / "tls.crt"
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return file
