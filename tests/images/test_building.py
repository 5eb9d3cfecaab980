"""The records of a build."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from images import NAMES, building, trying
from images.building import Built, compile_options, secrets, with_images

CPU = Built("cpu", "qinglan/cpu", "sha256:" + "a" * 64)
PUSHED = Built("sft", "registry.test/house/sft", "sha256:" + "b" * 64)


def test_the_first_build_makes_the_list() -> None:
    result = yaml.safe_load(with_images("", [CPU, PUSHED]))

    assert result["images"] == [
        {"name": "qinglan/cpu", "digest": CPU.digest},
        {"name": "qinglan/sft", "newName": "registry.test/house/sft", "digest": PUSHED.digest},
    ]


def test_a_later_build_replaces_its_own_image_and_keeps_the_others() -> None:
    first = with_images("", [CPU, PUSHED])

    result = yaml.safe_load(with_images(first, [PUSHED._replace(digest="sha256:" + "c" * 64)]))

    assert [image["digest"][-1] for image in result["images"]] == ["a", "c"]


def test_an_empty_list_is_what_lies_in_the_repository() -> None:
    assert yaml.safe_load(with_images("images: []\n", []))["images"] == []


def test_a_graph_is_compiled_with_what_was_pushed() -> None:
    assert compile_options([CPU, PUSHED]) == [
        f"--image qinglan/cpu=qinglan/cpu@{CPU.digest}",
        f"--image qinglan/sft=registry.test/house/sft@{PUSHED.digest}",
    ]


def test_the_options_are_those_that_compiling_takes() -> None:
    from pipelines.graph.compiler import read_images

    options = [line.removeprefix("--image ") for line in compile_options([CPU, PUSHED])]

    assert read_images(options) == {"qinglan/cpu": CPU.reference, "qinglan/sft": PUSHED.reference}


def test_of_all_images_only_those_that_graphs_name_are_options_of_a_graph() -> None:
    from pipelines.graph.compiler import image_names, read_images

    every = [Built(name, f"qinglan/{name}", CPU.digest) for name in NAMES]

    assert set(read_images(line.removeprefix("--image ") for line in compile_options(every))) == image_names()


@pytest.mark.parametrize("module", [building, trying])
def test_without_a_container_engine_it_is_said_what_to_install(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["images", "--engine", "no-such-engine"])

    with pytest.raises(SystemExit, match=r"no no-such-engine here.*apt-get install podman.*--engine"):
        module.main()


def test_a_build_gets_the_files_that_lead_to_this_machines_index(tmp_path: Path) -> None:
    conf, certificate = tmp_path / "pip.conf", tmp_path / "ca.pem"
    conf.write_text("[global]\n")
    certificate.write_text("-----BEGIN CERTIFICATE-----\n")

    assert secrets({"PIP_CONFIG_FILE": str(conf), "PIP_CERT": str(certificate)}) == {
        "pip.conf": conf,
        "ca.pem": certificate,
    }
    assert "ca.pem" not in secrets({"PIP_CERT": str(tmp_path / "gone")})
