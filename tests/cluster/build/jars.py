"""The jars of an OpenSearch node, fetched once by their Maven coordinates and held against their digests.

The folder is beside the Go programs, under the digest of its pins.
"""

import shutil
from pathlib import Path
from typing import NamedTuple

from qinglan.errors import ConfigError, QinglanError
from qinglan.files.files import atomic_folder, cache_folder, sha256_file, sha256_text
from tests.cluster.build.go_command import build

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
    build("load opensearch", maven, log)
    check(jars)
    compiler = [_program("javac"), "-cp", f"{jars}/*", "-d", str(folder / "classes"), str(SOURCE)]
    build("build opensearch", compiler, log)


def check(jars: Path) -> None:
    """Every jar has the bytes that were pinned, and there is no other."""
    pinned = {name: digest for digest, name in map(str.split, DIGESTS.read_text().splitlines())}
    result = {jar.name: sha256_file(jar) for jar in jars.iterdir()}
    if wrong := sorted(name for name in pinned.keys() | result.keys() if pinned.get(name) != result.get(name)):
        raise QinglanError(
            f"{jars}: {', '.join(wrong)}: not what {DIGESTS.name} pins. Look whether the coordinates in {POM} "
            "name other versions now; if you changed them, write the digests anew: sha256sum *.jar"
        )


def _program(name: str) -> str:
    result = shutil.which(name)
    if result is None:
        raise ConfigError(
            f"opensearch: it is fetched and started with Java, and there is no `{name}` on the PATH. "
            "Install a JDK of version 17 or newer and Maven, or leave these tests out: `make test` needs none of it."
        )
    return result
