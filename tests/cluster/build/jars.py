"""The jars of an OpenSearch node, fetched once by their Maven coordinates and held against their digests.

They lie beside the Go programs, under the digest of what pins them.
"""

import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from qinglan.errors import ConfigError, QinglanError
from qinglan.files.files import atomic_folder, cache_folder, sha256_file, sha256_text
from tests.cluster.build.go_command import EVERY_SECONDS, LAST_LINES, child

JAVA = Path(__file__).parent / "java"
POM, SOURCE, DIGESTS = JAVA / "pom.xml", JAVA / "OneNode.java", JAVA / "jars.sha256"


class SearchJars(NamedTuple):
    """Files that a node is started from."""

    folder: Path

    @property
    def classpath(self) -> str:
        return f"{self.folder / 'jars'}/*:{self.folder / 'classes'}"


def pinned_jars() -> SearchJars:
    pinned = sha256_text(*(part for file in (POM, SOURCE, DIGESTS) for part in (file.name, sha256_file(file))))
    return SearchJars(cache_folder("cluster") / f"opensearch-{pinned[:16]}")


def fetch() -> SearchJars:
    """The jars, fetched now if they were not before; several at once each fetch, and the last one stays."""
    result = pinned_jars()
    if not result.folder.exists():
        with atomic_folder(result.folder) as partial:
            _fill(partial)
    return result


def _fill(folder: Path) -> None:
    jars, log = folder / "jars", folder / "fetch.log"
    maven = [_program("mvn"), "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    _say("load opensearch", maven, log, jars)
    check(jars)
    compiler = [_program("javac"), "-cp", f"{jars}/*", "-d", str(folder / "classes"), str(SOURCE)]
    _say("build opensearch", compiler, log, jars)


def check(jars: Path) -> None:
    """Every jar has the bytes that were pinned, and there is no other."""
    pinned = {name: digest for digest, name in map(str.split, DIGESTS.read_text().splitlines())}
    result = {jar.name: sha256_file(jar) for jar in jars.iterdir()}
    if wrong := sorted(name for name in pinned.keys() | result.keys() if pinned.get(name) != result.get(name)):
        raise QinglanError(
            f"{jars}: {', '.join(wrong)}: not what {DIGESTS.name} pins. Look whether the coordinates in {POM} "
            "name other versions now; if you changed them, write the digests anew: sha256sum *.jar"
        )


def _say(what: str, command: list[str], log: Path, jars: Path) -> None:
    began = time.monotonic()
    with log.open("ab") as log_file, child(command, log_file) as process:
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(EVERY_SECONDS)
            existing = len(list(jars.glob("*.jar")))
            print(f"[{what}] {time.monotonic() - began:.0f} s, {existing} jars", flush=True)
    if process.returncode != 0:
        last = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        raise QinglanError("\n".join([f"{what}: {' '.join(command)} failed:", *last]))


def _program(name: str) -> str:
    result = shutil.which(name)
    if result is None:
        raise ConfigError(
            f"opensearch: it is fetched and started with Java, and there is no `{name}` on the PATH. "
            "Install a JDK of version 17 or newer and Maven, or leave these tests out: `make test` needs none of it."
        )
    return result
