"""A RAG service whose certificate is of a company's own authority: trusted by SSL_CERT_FILE, explained without it."""

import asyncio
import datetime
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path

import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from qinglan.errors import ConfigError, OutageError
from qinglan.http.http_client import trusted_certificates
from qinglan.rag.client import RagClient
from qinglan.rag.contract import RagRequest

REQUEST = RagRequest(query="问", tenant_id="t")
ADVICE = r"CERTIFICATE_VERIFY_FAILED.* name its PEM file in SSL_CERT_FILE"


class Answering(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = orjson.dumps({"code": 200, "data": {"recall": []}})
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


def write_certificates(folder: Path) -> None:
    """Write authority.pem, and server.pem with the key and the certificate that the authority gave to 127.0.0.1."""
    now, keys = datetime.datetime.now(datetime.UTC), [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in ("Acme authority", "rag")]
    certificates = []
    for key, name, is_authority in zip(keys, names, (True, False), strict=True):
        builder = (
            x509.CertificateBuilder().subject_name(name).issuer_name(names[0]).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        )  # fmt: skip
        certificates.append(builder.sign(keys[0], hashes.SHA256()).public_bytes(Encoding.PEM))
    key_bytes = keys[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "authority.pem").write_bytes(certificates[0])
    (folder / "server.pem").write_bytes(key_bytes + certificates[1])


@contextmanager
def https_server(folder: Path, handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server on loopback whose authority is folder/authority.pem."""
    write_certificates(folder)
    server = HTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[str]:
    with https_server(tmp_path, Answering) as address:
        yield address


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("QINGLAN_ALLOWED_HOSTS", "127.0.0.1")
    trusted_certificates.cache_clear()
    yield
    trusted_certificates.cache_clear()


async def ask_directly(url: str) -> int:
    async with RagClient(url, attempts=1) as client:
        return len((await client.retrieve(REQUEST)).data.recall)


@pytest.mark.slow
def test_a_service_of_the_companys_own_authority_is_trusted_by_its_file(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OutageError, match=ADVICE):
        asyncio.run(ask_directly(service))

    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    trusted_certificates.cache_clear()

    assert asyncio.run(ask_directly(service)) == 0


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_file_without_certificates_is_refused(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))

    with pytest.raises(ConfigError, match=r"ca\.pem cannot be read as certificates"):
        trusted_certificates()
