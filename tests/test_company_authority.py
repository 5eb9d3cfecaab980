"""Installing behind a company's proxy: an authority that the system trusts is enough for uv, as it is for pip."""

import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.qinglan.http.test_own_authority import https_server

ROOT = Path(__file__).resolve().parents[1]
SYSTEM_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
UNKNOWN = "invalid peer certificate"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not SYSTEM_BUNDLE.exists() or subprocess.run(["unshare", "-rm", "true"], check=False).returncode != 0,
        reason="needs Debian's certificate bundle and a mount namespace",
    ),
]


class EmptyIndex(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page = b"<html><body></body></html>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    with https_server(tmp_path, EmptyIndex) as address:
        yield f"{address}/simple"


def install_absent_package(index: str, folder: Path, program: list[str], environment: dict[str, str]) -> str:
    """Run `program` while the system trusts only folder/authority.pem; returns its output."""
    words = ["pip", "install", "--no-config", "--dry-run", "--default-index", index, "absent-package"]
    trusted = f'mount --bind {folder / "authority.pem"} {SYSTEM_BUNDLE} && exec "$@"'
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("SSL_CERT", "UV_", "MAKE"))
    }
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", trusted, "sh", *program, *words],
        env=inherited | environment | {"UV_CACHE_DIR": str(folder / "uv")},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


UV = [sys.executable, "-m", "uv"]
ENVIRONMENTS = (
    "import sys; from pathlib import Path; from pipelines.execute.environments.environments import _uv; "
    "_uv(Path('x'), *sys.argv[1:])"
)


def exported_by_make() -> dict[str, str]:
    printing = ["make", "--no-print-directory", "--eval", "shown: ; @echo $$UV_SYSTEM_CERTS", "shown"]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "MAKE"))}
    done = subprocess.run(printing, cwd=ROOT, env=inherited, capture_output=True, text=True, check=True)
    return {"UV_SYSTEM_CERTS": done.stdout.strip()}


def test_uv_alone_refuses_an_authority_that_only_the_system_trusts(index: str, tmp_path: Path) -> None:
    assert UNKNOWN in install_absent_package(index, tmp_path, UV, {})


def test_the_makefile_has_uv_trust_what_the_system_trusts(index: str, tmp_path: Path) -> None:
    output = install_absent_package(index, tmp_path, UV, exported_by_make())

    assert UNKNOWN not in output
    assert "there are no versions of absent-package" in output


def test_environments_of_images_trust_what_the_system_trusts(index: str, tmp_path: Path) -> None:
    output = install_absent_package(index, tmp_path, [sys.executable, "-c", ENVIRONMENTS], {})

    assert UNKNOWN not in output
    assert "there are no versions of absent-package" in output
