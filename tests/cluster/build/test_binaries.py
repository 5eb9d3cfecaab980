"""The programs are built once, and what is missing for it is said."""

import shutil
from pathlib import Path

import pytest

from qinglan.errors import ConfigError, QinglanError
from tests.cluster.build import binaries, go_command, jars
from tests.cluster.build.binaries import binary, build_folder, changed
from tests.cluster.build.programs import MODULES, Change, Source


def test_without_go_or_maven_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QINGLAN_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "")

    with pytest.raises(ConfigError, match=r"no `go` on the PATH. Install Go 1\.\d+"):
        binary("kubectl")
    with pytest.raises(ConfigError, match="no `mvn` on the PATH"):
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


def test_another_version_or_change_is_another_binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, pinned = MODULES["kserve"], build_folder("kserve")
    assert module.source is not None
    source = module.source._replace(changes=(*module.source.changes, Change("a", "b")))
    with monkeypatch.context() as patch:
        patch.setitem(MODULES, "kserve", module._replace(source=source))
        assert build_folder("kserve") != pinned
    shutil.copytree(go_command.MODULES / "kserve", tmp_path / "kserve")
    monkeypatch.setattr(binaries, "MODULES", tmp_path)
    assert build_folder("kserve") == pinned

    with (tmp_path / "kserve" / "go.sum").open("a") as changed_file:
        changed_file.write("\n")

    assert build_folder("kserve") != pinned


@pytest.mark.parametrize("text", ["nothing of it", "Port: 9443\nPort: 9443\n"])
def test_a_change_that_does_not_fit_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "main.go").write_text(text)
    source = Source("example.test/module", "main.go", (Change("Port: 9443", "Port: 1"),))

    with pytest.raises(
        QinglanError, match=r"example.test/module/main.go: [02] places say\nPort: 9443\nand one should"
    ):
        changed(tmp_path / "main.go", source)


def test_the_last_output_of_go_is_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module broken\n\ngo 1.26.0\n")
    (tmp_path / "main.go").write_text("package main\n\nfunc main() { nowhere() }\n")

    with pytest.raises(QinglanError, match=r"build broken: .*\n(.*\n)*.*undefined: nowhere"):
        go_command.go("build broken", ["build", "-o", str(tmp_path / "it"), "."], tmp_path, tmp_path / "log")
