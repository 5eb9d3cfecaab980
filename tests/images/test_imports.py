"""An image has what the code that runs in it imports, also deep inside functions and in the processes it starts."""

import ast
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from typing import Any

import pytest
import yaml

import components.image
from components.training.ppo.plugin import COMMON_PLUGINS
from images import NAMES
from images.locking import pins, source
from pipelines.execute.environments.stage_environments import IMPORTED
from standins.verl_cpu.settings import FORK_SERVER, MODULES, PARALLEL_CRITIC, STEP_ROLLOUTS
from tests.images.step_imports import PACKAGES, ROOT, processes, reached_modules, step_names, tree
from tests.screens.graph_yaml import LOADER

BY_HAND = {
    "cpu": ("serving.rag.load", "qinglan.lineage.auditing.audit", "qinglan.store.s3_backend"),
    "ppo": (*COMMON_PLUGINS, *MODULES, PARALLEL_CRITIC, STEP_ROLLOUTS.rpartition(".")[0], FORK_SERVER),
    "style": ("components.training.style.distil",),
}  # fmt: skip
"""Modules that a person starts, or verl from a list of names, and no step or manifest."""

DISTRIBUTIONS = {"google": "protobuf"}
"""Names that several packages share."""

JOINED_BY_RAY = "ppo"
"""A job's pods start Ray in this image alone; in the others they are joined by torchrun."""


def reached(names: set[str]) -> set[str]:
    """The packages outside this repository that these modules lead to."""
    return {name.split(".")[0] for name in reached_modules(names)} - set(PACKAGES)


def steps() -> Iterator[tuple[str, str, set[str]]]:
    """Each KFP component: its image, its name, and what its body leads to."""
    for path in sorted([ROOT / "components/gateway_state.py", *ROOT.glob("components/*/*/component.py")]):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        functions = [node for node in tree(module).body if isinstance(node, ast.FunctionDef)]
        for function in functions:
            for decorator in function.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "step_component":
                    image = ast.unparse(decorator.args[0])
                    yield getattr(components.image, image), f"{module}.{function.name}", step_names(module, function)


def servers() -> Iterator[tuple[str, str, set[str]]]:
    """Each container of a manifest that starts a module of ours."""
    for path in sorted(ROOT.glob("manifests/**/*.yaml")):
        text = path.read_text(encoding="utf-8")
        if "image: qinglan/" not in text:  # some hold a template of another program, which is no YAML
            continue
        for document in yaml.load_all(text, Loader=LOADER):
            for container in containers(document):
                command = container["command"]
                if "-m" in command:
                    name = command[command.index("-m") + 1]
                    yield container["image"], f"{path.relative_to(ROOT)}: {name}", {name, f"{name}.__main__"}


def containers(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if str(value.get("image", "")).startswith("qinglan/") and value.get("command"):
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from containers(item)


@cache
def started() -> tuple[tuple[str, str, set[str]], ...]:
    return *steps(), *servers()


def running_in(image: str) -> dict[str, set[str]]:
    """Modules that start in an image, and those that they import."""
    by_hand = {name: {name} for name in BY_HAND.get(image, ())}
    return by_hand | {name: names for full, name, names in started() if full.startswith(f"qinglan/{image}:")}


packages_distributions = cache(metadata.packages_distributions)
"""Reads the metadata of everything that is installed: a quarter of a second."""


def distribution(package: str) -> str:
    """The name by which an index knows an importable package."""
    name = DISTRIBUTIONS.get(package) or packages_distributions().get(package, [package])[0]
    return name.lower().replace("_", "-")


@pytest.mark.slow
@pytest.mark.parametrize("image", ["cpu", "ppo", "serve", "sft", "style"])
def test_an_image_has_what_its_steps_import(image: str) -> None:
    locked = set(pins(source(image).with_suffix(".lock").read_text(encoding="utf-8"))) | {"kfp"}

    missing = {
        name: {package for package in reached(names) if distribution(package) not in locked}
        - ({"ray"} if image != JOINED_BY_RAY else set())
        for name, names in running_in(image).items()
    }

    assert {name: packages for name, packages in missing.items() if packages} == {}


@pytest.mark.slow
def test_an_import_inside_a_function_is_found() -> None:
    assert "openpyxl" in reached({"qinglan.tables.tables"})
    assert "torch" in reached({"components.training.style.stage"})


@pytest.mark.slow
def test_modules_that_are_started_as_processes_are_followed() -> None:
    text = ast.parse(
        '[sys.executable, "-m", "swift.cli.sft"]\nservice("serving.rewriter", [])\nSTART = "qinglan.jobs.inside"'
    )

    assert set(processes(text)) == {"swift.cli.sft", "serving.rewriter", "qinglan.jobs.inside"}
    assert {"kserve", "prometheus_client"} <= reached({"components.evaluation.rewriter.student_inference"})


def test_every_image_runs_something_and_all_but_the_one_without_torch_are_tried_on_a_machine() -> None:
    assert all(running_in(image) for image in ("cpu", *IMPORTED)) and {"cpu", *IMPORTED} == set(NAMES)
