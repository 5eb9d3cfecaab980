"""What is written down of a build."""

from pathlib import Path

import pytest
import yaml

from images.building import Built, compile_variables, secrets, with_images

CPU = Built("cpu", "qinglan/cpu", "sha256:" + "a" * 64)
PUSHED = Built("sft", "registry.test/house/sft", "sha256:" + "b" * 64)


def test_the_first_build_makes_the_list() -> None:
    found = yaml.safe_load(with_images("", [CPU, PUSHED]))

    assert found["images"] == [
        {"name": "qinglan/cpu", "digest": CPU.digest},
        {"name": "qinglan/sft", "newName": "registry.test/house/sft", "digest": PUSHED.digest},
    ]


def test_a_later_build_replaces_its_own_image_and_keeps_the_others() -> None:
    first = with_images("", [CPU, PUSHED])

    found = yaml.safe_load(with_images(first, [PUSHED._replace(digest="sha256:" + "c" * 64)]))

    assert [image["digest"][-1] for image in found["images"]] == ["a", "c"]


def test_an_empty_list_is_what_lies_in_the_repository() -> None:
    assert yaml.safe_load(with_images("images: []\n", []))["images"] == []


def test_a_graph_is_compiled_with_what_was_pushed() -> None:
    assert compile_variables([CPU, PUSHED]) == [
        f"QINGLAN_CPU_IMAGE=qinglan/cpu@{CPU.digest}",
        f"QINGLAN_SFT_IMAGE=registry.test/house/sft@{PUSHED.digest}",
    ]


def test_the_variables_are_those_that_the_stages_read(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    import components.image

    for line in compile_variables([CPU, PUSHED]):
        monkeypatch.setenv(*line.split("=", 1))
    try:
        read = importlib.reload(components.image)
        used = (read.CPU_IMAGE, read.SFT_IMAGE, read.PPO_IMAGE)
        assert used == (CPU.reference, PUSHED.reference, "qinglan/ppo:0.1.0")
    finally:
        monkeypatch.undo()
        importlib.reload(components.image)


def test_a_build_gets_the_files_that_lead_to_this_machines_index(tmp_path: Path) -> None:
    conf, certificate = tmp_path / "pip.conf", tmp_path / "ca.pem"
    conf.write_text("[global]\n")
    certificate.write_text("-----BEGIN CERTIFICATE-----\n")

    assert secrets({"PIP_CONFIG_FILE": str(conf), "PIP_CERT": str(certificate)}) == {
        "pip.conf": conf,
        "ca.pem": certificate,
    }
    assert "ca.pem" not in secrets({"PIP_CERT": str(tmp_path / "gone")})
