"""An image has what the code that runs in it imports, also deep inside functions."""

import ast
import importlib.util
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

from images import IMAGES
from images.locking import pins, source

OURS = ("qinglan", "components", "serving")
ROOT = IMAGES.parent

RUN_IN = {
    "cpu": (
        "components.data.generate.stage", "components.data.validate.stage", "components.data.convert.stage",
        "components.data.style.stage", "components.release.register.stage", "components.evaluation.rewriter.gate",
        "components.evaluation.style.gate", "serving.gateway.__main__", "serving.rag.__main__",
        "serving.rag.load", "serving.teacher.__main__", "qinglan.lineage.audit", "qinglan.store.s3",
        "serving.initialiser.__main__",
        "components.release.deploy.stage", "components.release.deploy.cluster",
    ),
    "sft": (
        "components.training.base.stage", "components.training.sft.stage", "components.evaluation.rewriter.stage",
    ),
    "ppo": ("components.training.ppo.stage", "components.training.ppo.plugin.rollout"),
    "style": (
        "components.training.base.stage", "components.training.style.stage", "components.training.style.distil",
        "components.training.style_policy.stage", "components.evaluation.style.stage", "serving.style.__main__",
        "serving.rewriter.__main__",
    ),
    "serve": ("serving.rewriter.__main__",),
}  # fmt: skip
"""What starts in each image."""

DISTRIBUTIONS = {"google": "protobuf"}
"""Of names that several packages share."""

NOT_CALLED: dict[str, set[str]] = {}
"""Imports inside functions that this image's steps never call."""


def imports(module: str) -> Iterator[str]:
    """All that a module's text imports."""
    path = location(module)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)


def location(module: str) -> Path:
    folder = ROOT.joinpath(*module.split("."))
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def reached(module: str) -> set[str]:
    """The packages outside this repository that a module leads to."""
    waiting, seen, outside = [module], set(), set()
    while waiting:
        name = waiting.pop()
        if name in seen or name.split(".")[0] not in OURS or not location(name).is_file():
            continue
        seen.add(name)
        for found in imports(name):
            top = found.split(".")[0]
            if top in OURS:
                waiting += [".".join(found.split(".")[:count]) for count in range(1, found.count(".") + 2)]
            elif top not in sys.stdlib_module_names:
                outside.add(top)
    return outside


@cache
def distribution(package: str) -> str:
    """The name by which an index knows an importable package."""
    name = DISTRIBUTIONS.get(package) or metadata.packages_distributions().get(package, [package])[0]
    return name.lower().replace("_", "-")


@pytest.mark.slow
@pytest.mark.parametrize("image", sorted(RUN_IN))
def test_an_image_has_what_its_steps_import(image: str) -> None:
    there = set(pins(source(image).with_suffix(".lock").read_text(encoding="utf-8"))) | {"kfp"}

    missing = {
        (root, package) for root in RUN_IN[image] for package in reached(root) if distribution(package) not in there
    }

    assert {package for _, package in missing} == NOT_CALLED.get(image, set()), sorted(missing)


def test_an_import_inside_a_function_is_found() -> None:
    assert "openpyxl" in reached("qinglan.tables")
    assert "torch" in reached("components.training.style.stage")
