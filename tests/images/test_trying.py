"""The command that is tried inside an image is the compiled one."""

import json

from images.trying import BUCKET, COMPILED, STEP, command_of, first_imports, input_of, load_graph

GRAPH = load_graph(COMPILED)


def test_the_step_gets_every_input_and_output_that_its_component_declares() -> None:
    result = input_of(GRAPH, STEP, {"labelled": f"{BUCKET}/given/style.json"}, {"seed": 1})

    assert result["inputs"]["parameterValues"] == {"config": {"seed": 1}}
    assert result["inputs"]["artifacts"]["labelled"]["artifacts"][0]["uri"] == f"{BUCKET}/given/style.json"
    assert set(result["outputs"]["artifacts"]) == {"style_rows", "distribution", "prepare_metrics", "lineage"}


def test_the_command_is_the_compiled_one_with_the_input_in_its_place() -> None:
    command = command_of(GRAPH, STEP, {"outputs": {"质": 1}})
    container = GRAPH["deploymentSpec"]["executors"][f"exec-{STEP}"]["container"]

    assert command[: len(container["command"])] == container["command"]
    assert command[-4:] == ["--executor_input", json.dumps({"outputs": {"质": 1}}, ensure_ascii=False), *command[-2:]]
    assert command[-2:] == ["--function_to_execute", "prepare"]


def test_the_imports_of_a_step_are_read_from_its_compiled_text() -> None:
    image = GRAPH["deploymentSpec"]["executors"][f"exec-{STEP}"]["container"]["image"]

    result = first_imports(image, [GRAPH])

    assert "from components.data.style import stage" in result[f"qinglan-style {STEP}"]
    assert first_imports("another/image", [GRAPH]) == {}
