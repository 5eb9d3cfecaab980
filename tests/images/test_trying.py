"""The command that is tried inside an image is the compiled one, with every input and output of its component."""

import json

import yaml

from images.trying import BUCKET, COMPILED, STEP, step_command

GRAPH = next(yaml.safe_load_all(COMPILED.read_text(encoding="utf-8")))


def test_the_command_is_the_compiled_one_with_the_input_that_kfp_would_give() -> None:
    command = step_command(GRAPH, STEP, {"labelled": f"{BUCKET}/given/style.json"})
    container = GRAPH["deploymentSpec"]["executors"][f"exec-{STEP}"]["container"]

    assert command[: len(container["command"])] == container["command"]
    assert [command[-4], *command[-2:]] == ["--executor_input", "--function_to_execute", "prepare"]
    executor_input = json.loads(command[-3])
    assert executor_input["inputs"]["artifacts"]["labelled"]["artifacts"][0]["uri"] == f"{BUCKET}/given/style.json"
    assert set(executor_input["outputs"]["artifacts"]) == {"style_rows", "distribution", "prepare_metrics", "lineage"}
