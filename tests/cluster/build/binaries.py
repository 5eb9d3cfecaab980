"""The programs that the cluster's tests run against, built from their Go modules once and kept.

    python -m tests.cluster.build.binaries      builds what is missing

A program is kept under the digest of its go.mod, go.sum, sources and changes, so another version is another binary.
The jars of an OpenSearch node are fetched with them.
"""

import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qinglan.errors import QinglanError
from qinglan.files.files import atomic_folder, atomic_write, cache_folder, sha256_file, sha256_text
from tests.cluster.build import jars
from tests.cluster.build.go_command import MODULES, exits_with_a_code, folder_of, go
from tests.cluster.build.programs import MODULES as TABLE
from tests.cluster.build.programs import Copied, Module, Source, module_of

AT_ONCE = 2
FLAGS = ("-buildvcs=false",)


def binary(name: str) -> Path:
    """The program, built now if it was not before."""
    target = kept_at(name)
    with one_builder(target.parent):
        if not target.exists():
            _build(name, target)
    return target


def manifests(module: str, folder: str) -> list[Path]:
    """Return files that upstream ships beside its programs, e.g. the "crds" of "kserve"; copy missing ones."""
    target = build_folder(module) / "manifests"
    with one_builder(target.parent):
        if not target.exists():
            _copy(module, target)
    return sorted((target / folder).iterdir())


def kept_at(name: str) -> Path:
    return build_folder(module_of(name)) / name


def build_folder(module: str) -> Path:
    files = sorted(file for file in (MODULES / module).iterdir() if file.name != "tools.go")
    pinned = sha256_text(
        repr(TABLE[module]), *FLAGS, *(part for file in files for part in (file.name, sha256_file(file)))
    )
    return cache_folder("cluster") / f"{module}-{pinned[:16]}"


def build_all() -> bool:
    """Build what is missing; True if nothing was."""
    missing = [name for name in TABLE if not _complete(name)]
    existing = jars.pinned_jars().folder.exists()
    if not existing:
        jars.fetch()
    for module in missing:
        for name in TABLE[module].programs:
            binary(name)
        if TABLE[module].manifests:
            with one_builder(build_folder(module)):
                _copy(module, build_folder(module) / "manifests")
    return not missing and existing


def _complete(module: str) -> bool:
    expected = [*TABLE[module].programs, *(["manifests"] if TABLE[module].manifests else [])]
    return all((build_folder(module) / name).exists() for name in expected)


def _build(name: str, target: Path) -> None:
    module = TABLE[module_of(name)]
    pinned = MODULES / module_of(name)
    with atomic_write(target) as partial, _sources(module, pinned) as (folder, package):
        command = ["build", "-v", "-p", str(AT_ONCE), *FLAGS, *module.flags, f"-ldflags={_linked(module, pinned)}"]
        go(
            f"build {name}",
            [*command, "-o", str(partial), package or module.programs[name]],
            folder,
            target.with_name(f"{name}.build.log"),
        )


def _linked(module: Module, pinned: Path) -> str:
    if module.stamped is None:
        return "-s -w"
    source, variables = module.stamped
    version = folder_of(source, pinned).name.rpartition("@")[2]
    return " ".join(["-s -w", *(f"-X {name}={version}" for name in variables)])


@contextmanager
def _sources(module: Module, pinned: Path) -> Iterator[tuple[Path, str]]:
    """Where to build, and what if not the program's own package: a changed main.go beside the same go.mod."""
    if module.source is None:
        yield pinned, ""
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(pinned / name, Path(folder, name))
        origin = folder_of(module.source.module, pinned) / module.source.path
        Path(folder, "main.go").write_text(changed(origin, module.source))
        yield Path(folder), "."


def changed(origin: Path, source: Source) -> str:
    """Its text with every change made; a change that no longer fits is an error, not a program that lacks it."""
    text = origin.read_text()
    for change in source.changes:
        if text.count(change.old) != 1:
            raise QinglanError(
                f"{source.module}/{source.path}: {text.count(change.old)} places say\n{change.old}\n"
                "and one should. The module changed: look there, and change tests/cluster/build/programs.py."
            )
        text = text.replace(change.old, change.new)
    return text


def _copy(module: str, target: Path) -> None:
    with atomic_folder(target) as partial:
        for copied in TABLE[module].manifests:
            origin = folder_of(copied.module, MODULES / module)
            for file in _files(copied, origin):
                into = partial / copied.folder
                into.mkdir(exist_ok=True)
                shutil.copyfile(file, into / f"{copied.module.rpartition('/')[2]}-{file.name}")


def _files(copied: Copied, origin: Path) -> Iterator[Path]:
    for pattern in copied.files:
        result = sorted(origin.glob(pattern))
        if not result:
            raise QinglanError(
                f"{origin}: no {pattern}. The module changed: look where its manifests lie now, "
                "and change tests/cluster/build/programs.py."
            )
        yield from result


@contextmanager
def one_builder(folder: Path) -> Iterator[None]:
    """One builder at a time: a second one waits, and finds the binary."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    began = time.monotonic()
    with exits_with_a_code():
        cached = build_all()
    print("cluster binaries: " + ("cached" if cached else f"built in {time.monotonic() - began:.0f} s"), flush=True)


if __name__ == "__main__":
    main()
