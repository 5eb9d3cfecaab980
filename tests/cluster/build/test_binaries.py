"""The programs are built once, and what is missing for it is said."""

import signal
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from qinglan.errors import ConfigError, QinglanError
from tests.cluster.build import binaries, go_command, jars
from tests.cluster.build.binaries import binary, build_folder, changed, manifests
from tests.cluster.build.programs import MODULES, Change, Source
from tests.cluster.waiting import until
from tests.processes.ctrl_c import goes_on, hears_ctrl_c

REPOSITORY = Path(__file__).parents[3]
PROGRAMS = [name for module in MODULES.values() for name in module.programs]


@pytest.fixture
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QINGLAN_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "")


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize("name", PROGRAMS)
def test_without_go_it_is_said_what_to_install(name: str) -> None:
    with pytest.raises(ConfigError, match=r"no `go` on the PATH. Install Go 1\.\d+"):
        binary(name)


@pytest.mark.usefixtures("nothing_kept")
def test_upstreams_manifests_need_go_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="no `go` on the PATH"):
        manifests("kserve", "crds")


@pytest.mark.usefixtures("nothing_kept")
def test_the_command_says_so_too_and_ends_badly(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=str(ConfigError.exit_code)):
        binaries.main()

    assert "no `go` on the PATH" in capsys.readouterr().err


@pytest.mark.usefixtures("nothing_kept")
def test_without_maven_it_is_said_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"no `mvn` on the PATH. Install a JDK of version 17 or newer and Maven"):
        jars.fetch()


@pytest.mark.parametrize("wrong", ["other bytes", "one more", "one missing"])
def test_jars_that_are_not_the_pinned_ones_are_refused(wrong: str, tmp_path: Path) -> None:
    for jar in (jars.fetch().folder / "jars").iterdir():
        (tmp_path / jar.name).symlink_to(jar)
    jars.check(tmp_path)
    if wrong == "one missing":
        (tmp_path / "snakeyaml-2.1.jar").unlink()
    else:
        changed_jar = tmp_path / ("snakeyaml-2.1.jar" if wrong == "other bytes" else "another.jar")
        changed_jar.unlink(missing_ok=True)
        changed_jar.write_bytes(b"something else")

    with pytest.raises(QinglanError, match=r"(snakeyaml-2.1|another).jar: not what jars.sha256 pins"):
        jars.check(tmp_path)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("file", ["go.mod", "go.sum"])
def test_another_version_is_another_binary(
    module: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / module).mkdir()
    for path in (go_command.MODULES / module).iterdir():
        (tmp_path / module / path.name).write_bytes(path.read_bytes())
    pinned = build_folder(module)
    monkeypatch.setattr(binaries, "MODULES", tmp_path)
    assert build_folder(module) == pinned

    with (tmp_path / module / file).open("a") as changed_file:
        changed_file.write("\n")

    assert build_folder(module) != pinned


def test_another_change_is_another_binary(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned, module = build_folder("kserve"), MODULES["kserve"]
    assert module.source is not None
    source = module.source._replace(changes=(*module.source.changes, Change("a", "b")))

    monkeypatch.setitem(MODULES, "kserve", module._replace(source=source))

    assert build_folder("kserve") != pinned


@pytest.mark.parametrize("text", ["nothing of it", "Port: 9443\nPort: 9443\n"])
def test_a_change_that_does_not_fit_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "main.go").write_text(text)
    source = Source("example.test/module", "main.go", (Change("Port: 9443", "Port: 1"),))

    with pytest.raises(
        QinglanError, match=r"example.test/module/main.go: [02] places say\nPort: 9443\nand one should"
    ):
        changed(tmp_path / "main.go", source)


WAITS = """#!/bin/sh
case "$0 $1" in
*{program}) sleep 3600 & echo $! >>{pids}; wait;;
esac
"""


@pytest.mark.parametrize(
    ("program", "sent", "code"),
    [("go list", signal.SIGINT, 130), ("mvn *", signal.SIGTERM, 143), ("go build", signal.SIGINT, 130)],
)
def test_a_build_that_is_interrupted_ends_all_that_it_has_started(
    program: str, sent: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stand-ins for Go and Maven, one of which never ends."""
    monkeypatch.setenv("QINGLAN_CACHE", str(tmp_path / "cache"))
    if program == "go build":
        jars.pinned_jars().folder.mkdir(parents=True)
    pids = tmp_path / "pids"
    for name in ("go", "mvn"):
        (tmp_path / name).write_text(WAITS.format(program=program.replace(" ", "\\ "), pids=pids))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    command = [sys.executable, "-m", "tests.cluster.build.binaries"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, preexec_fn=hears_ctrl_c) as process:
        while not pids.exists() or not pids.read_text().endswith("\n"):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(sent)
        process.communicate(timeout=240)

    assert process.returncode == code
    until(lambda: not any(map(goes_on, map(int, pids.read_text().split()))), "they are gone")


def test_the_last_output_of_go_is_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module broken\n\ngo 1.26.0\n")
    (tmp_path / "main.go").write_text("package main\n\nfunc main() { nowhere() }\n")

    with pytest.raises(QinglanError, match=r"build broken: .*\n(.*\n)*.*undefined: nowhere"):
        go_command.go("build broken", ["build", "-o", str(tmp_path / "it"), "."], tmp_path, tmp_path / "log")


@pytest.fixture
def proxied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module proxy that is a folder: these tests call nobody. What it returns is a folder that pins its module."""
    versions, pinned = tmp_path / "proxy/example.test/tool/@v", tmp_path / "pinned"
    versions.mkdir(parents=True)
    (versions / "v1.0.0.info").write_text('{"Version": "v1.0.0"}')
    (versions / "v1.0.0.mod").write_text("module example.test/tool\n")
    with zipfile.ZipFile(versions / "v1.0.0.zip", "w") as archive:
        archive.writestr("example.test/tool@v1.0.0/go.mod", "module example.test/tool\n")
    pinned.mkdir()
    (pinned / "go.mod").write_text("module pinned\n\ngo 1.26.0\n\nrequire example.test/tool v1.0.0\n")
    settings = {
        "GOPROXY": (tmp_path / "proxy").as_uri(), "GOSUMDB": "off", "GOFLAGS": "-modcacherw",
        "GOMODCACHE": str(tmp_path / "modules"),
    }  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return pinned


def test_a_module_whose_bytes_are_others_is_refused(proxied: Path) -> None:
    """go.sum is a pin: with another sum in it, what the proxy gives is not taken."""
    assert (go_command.folder_of("example.test/tool", proxied) / "go.mod").exists()
    sums = proxied / "go.sum"
    assert "tool v1.0.0 h1:" in sums.read_text()

    sums.write_text(sums.read_text().replace("tool v1.0.0 h1:", "tool v1.0.0 h1:N"))

    with pytest.raises(QinglanError, match="checksum mismatch"):
        go_command.folder_of("example.test/tool", proxied)


def test_a_module_proxy_that_says_nothing_is_not_waited_for_for_ever(
    proxied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(go_command, "LOADING_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("GOPROXY", f"http://127.0.0.1:{silent.getsockname()[1]}")

        with pytest.raises(QinglanError, match=r"example.test/tool: not loaded within 2 s; does the module proxy"):
            go_command.folder_of("example.test/tool", proxied)
