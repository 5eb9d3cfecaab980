"""Everything the back end consists of, built or unpacked once and cached under the digest of all that decides it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from qinglan.errors import ConfigError, OutageError
from qinglan.files.files import atomic_folder, cache_folder, sha256_text
from tests.cluster.build.binaries import one_builder
from tests.cluster.build.go_command import folder_of, go
from tests.kfp.backend import source as kfp_source

HERE = Path(__file__).parent
FLAGS = ("-trimpath", "-buildvcs=false")
KFP_PROGRAMS = {
    "apiserver": "./backend/src/apiserver",
    "driver": "./backend/src/v2/cmd/driver",
    "launcher": "./backend/src/v2/cmd/launcher-v2",
    "persistence-agent": "./backend/src/agent/persistence",
    "scheduledworkflow": "./backend/src/crd/controller/scheduledworkflow",
}
ARGO_PROGRAMS = {"workflow-controller": "./cmd/workflow-controller", "argoexec": "./cmd/argoexec"}
DEBIAN = ("mariadb-server", "mariadb-server-core", "mariadb-client-core", "libaio1", "liburing2")
"""MariaDB is GPL-2.0: it is run beside KFP as its database, and nothing links it."""


class Dist(NamedTuple):
    """The folder with all of it."""

    root: Path

    def program(self, name: str) -> Path:
        return self.root / "bin" / name

    @property
    def source(self) -> Path:
        return self.root / "source"

    @property
    def argo(self) -> Path:
        return self.root / "argo"

    @property
    def mariadb(self) -> Path:
        return self.root / "mariadb" / "usr"

    @property
    def mlmd_python(self) -> Path:
        return self.root / "mlmd" / "bin" / "python"


def build(source: Path) -> Dist:
    """The back end of this clone; what was built before is used again."""
    commit = kfp_source.commit_of_tag(source)
    dist = Dist(cache_folder("kfp") / f"{kfp_source.TAG}-{build_key(commit)}")
    with one_builder(dist.root):
        (dist.root / "bin").mkdir(exist_ok=True)
        if not dist.source.exists():
            _say(f"unpacks {kfp_source.TAG} ({commit[:12]})")
            with atomic_folder(dist.source) as partial:
                kfp_source.unpack(source, commit, partial)
        for name, package in KFP_PROGRAMS.items():
            _build_program(dist, name, package, dist.source)
        _build_argo(dist)
        _unpack_mariadb(dist)
        _install_mlmd(dist)
    return dist


def build_key(commit: str) -> str:
    lock = (HERE / "mlmd.lock").read_text()
    changes = repr((kfp_source.KFP_CHANGES, kfp_source.ARGO_CHANGES))
    programs = repr((KFP_PROGRAMS, ARGO_PROGRAMS, FLAGS, DEBIAN))
    return sha256_text(commit, changes, programs, lock, sys.version)[:16]


def _build_program(
    dist: Dist, name: str, package: str, folder: Path, linked: str = "-s -w", **settings: str
) -> None:  # fmt: skip
    target = dist.program(name)
    if target.exists():
        return
    partial = target.with_suffix(".partial")
    command = ["build", "-v", *FLAGS, f"-ldflags={linked}", "-o", str(partial), package]
    go(f"build {name}", command, folder, dist.root / "logs" / f"{name}.log", GOTOOLCHAIN="local", **settings)
    partial.rename(target)


def _build_argo(dist: Dist) -> None:
    """Argo's controller and executor, in the version that KFP's go.mod names."""
    if not dist.argo.exists():
        module = folder_of(kfp_source.ARGO, dist.source)
        _say(f"copies {module.name}")
        with atomic_folder(dist.argo) as partial:
            shutil.copytree(module, partial, dirs_exist_ok=True)
            subprocess.run(["chmod", "-R", "u+w", str(partial)], check=True)
            kfp_source.change(partial, kfp_source.ARGO_CHANGES)
            # The module's zip lacks this file of the repository; Darwin's has no call that Linux lacks.
            signals = partial / "workflow" / "executor" / "osspecific"
            if not (signals / "signal_linux.go").exists():
                shutil.copy(signals / "signal_darwin.go", signals / "signal_linux.go")
    version = folder_of(kfp_source.ARGO, dist.source).name.rpartition("@")[2]
    linked = f"-s -w -X {kfp_source.ARGO}.version={version}"
    for name, package in ARGO_PROGRAMS.items():
        _build_program(dist, name, package, dist.argo, linked, CGO_ENABLED="0")


def _unpack_mariadb(dist: Dist) -> None:
    """Debian's packages, unpacked and not installed."""
    if dist.mariadb.exists():
        return
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise ConfigError("KFP's database, MariaDB, is unpacked from Debian's packages: apt-get or dpkg is missing.")
    _say(f"unpacks {', '.join(DEBIAN)}")
    with atomic_folder(dist.root / "mariadb") as partial:
        run(["apt-get", "download", *DEBIAN], partial, "`apt-get update`, and again.")
        for package in sorted(partial.glob("*.deb")):
            run(["dpkg", "-x", package.name, "."], partial)
            package.unlink()


def _install_mlmd(dist: Dist) -> None:
    """ML Metadata's own engine in an environment of its own: its protobuf is older than ours."""
    if dist.mlmd_python.exists():
        return
    _say("installs ml-metadata")
    folder = dist.root / "mlmd"
    uv = [sys.executable, "-m", "uv"]
    run([*uv, "venv", "--clear", "--no-project", "--python", sys.executable, str(folder)], HERE)
    try:
        python = str(folder / "bin" / "python")
        lock = str(HERE / "mlmd.lock")
        run([*uv, "pip", "install", "--python", python, "--require-hashes", "--no-deps", "-r", lock], HERE)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def run(command: list[str], folder: Path, step: str = "", path: str = "") -> None:
    """Run a command in a folder, with `path` first on its PATH; the error ends with the next `step`."""
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"]}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip()[-2000:]
        raise OutageError(f"{' '.join(command)} in {folder} failed: {output}", *([step] if step else []))


def _say(text: str) -> None:
    print(f"[kfp] {text}", flush=True)
