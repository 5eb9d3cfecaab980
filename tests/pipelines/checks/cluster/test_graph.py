"""Nothing is sent to KFP that cannot run there: what its API server takes in silence is found here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.checks.cluster.graph import Graph, read_graph, read_parameters
from pipelines.checks.cluster.requirements import ImportedInputs, read_requirements
from pipelines.graph.compiler import COMPILED
from qinglan.errors import ConfigError
from tests.kfp.graphs import A100, GPU, LABEL, compile_branch
from tests.screens.graph_yaml import DUMPER, LOADER

PARAMETERS = {"questions": "s3://bucket/questions.xlsx"}


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(COMPILED.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_golden_copy_may_be_sent(path: Path) -> None:
    graph = read_graph(path)

    assert graph.name.startswith("qinglan-")
    assert graph.platform


def changed(graph: Graph, change: Callable[[Any], None], folder: Path) -> Path:
    documents = list(yaml.load_all(graph.text, Loader=LOADER))
    change(documents)
    path = folder / "changed.yaml"
    path.write_text(yaml.dump_all(documents, Dumper=DUMPER), encoding="utf-8")
    return path


def container(documents: Any) -> Any:
    return documents[0]["deploymentSpec"]["executors"]["exec-train"]["container"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d[0].update(deploymentSpek={}), "KFP would not read it"),
        (lambda d: d[0]["root"]["dag"]["tasks"].clear(), "The graph has no task"),
        (lambda d: container(d).pop("image"), "there is no image"),  # this and more by pipelines/graph/checks.py
        (lambda d: container(d)["args"].append("x" * 100_001), "100,001 bytes"),
        (lambda d: d.append({}), "two documents are expected"),
    ],
)
def test_a_graph_that_could_never_run_is_refused_with_the_reason(
    small: Graph, tmp_path: Path, change: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=r"changed\.yaml: ") as error:
        read_graph(changed(small, change, tmp_path))

    assert message in str(error.value)
    assert "qinglan compile" in str(error.value)


@pytest.mark.parametrize("text", [b"foo: [", b"\xff\xfe", b"- a\n- b\n", b""])
def test_yaml_that_expands_without_end_is_no_graph(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "bad.yaml").write_bytes(text)

    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        read_graph(tmp_path / "bad.yaml")


def test_a_graph_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read_graph(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "also needs: questions"),
        ({**PARAMETERS, "question": "x"}, "takes no question. It takes: questions, release_name, rounds, threshold"),
        ({**PARAMETERS, "threshold": "high"}, "--set threshold=high: is no NUMBER_DOUBLE"),
        ({**PARAMETERS, "rounds": "1.5"}, "--set rounds=1.5: is no NUMBER_INTEGER"),
        ({**PARAMETERS, "rounds": "true"}, "is no NUMBER_INTEGER"),
    ],
)
def test_a_parameter_that_does_not_fit_is_named(small: Graph, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_parameters(small, parameters)

    assert message in str(error.value)


def test_parameters_are_sent_in_the_types_that_the_graph_wants(small: Graph) -> None:
    parameters = {**PARAMETERS, "threshold": "0.75", "rounds": "3", "release_name": "123"}

    assert read_parameters(small, parameters) == {**PARAMETERS, "threshold": 0.75, "rounds": 3, "release_name": "123"}


def test_needs_are_those_of_every_step_in_branches_too(small: Graph) -> None:
    result = read_requirements(small, PARAMETERS, "pipeline-runner")

    assert {(item.kind, item.name, item.keys, item.steps) for item in result.objects} == {
        ("ServiceAccount", "pipeline-runner", frozenset(), ("train", "gate", "release")),
        ("Secret", "qinglan-builder-key", frozenset({"builder.pem"}), ("train",)),
        ("Secret", "qinglan-release-keys", frozenset({"builder.pem", "releaser.pem"}), ("release",)),
        ("Secret", "qinglan-store", frozenset({"AWS_ACCESS_KEY_ID"}), ("release",)),
        ("PersistentVolumeClaim", "qinglan-scratch", frozenset(), ("train",)),
    }
    assert result.images == ("qinglan/cpu:0.1.0",)


def test_imported_inputs_are_named_with_their_steps_and_the_secret_they_are_fetched_with() -> None:
    parameters = {"questions": "s3://data/q.xlsx", "knowledge_base": "s3://data/kb.jsonl"}

    result = read_requirements(read_graph(COMPILED / "rewriter.laptop.yaml"), parameters, "pipeline-runner")

    assert result.inputs == (
        ImportedInputs(
            ("s3://data/q.xlsx", "s3://data/kb.jsonl"), ("generate", "validate", "augment", "base"), "qinglan-store"
        ),
    )


def test_an_input_that_a_branch_takes_and_a_constant_address_are_seen(tmp_path: Path) -> None:
    graph = read_graph(compile_branch(tmp_path / "branch.yaml"))

    assert read_requirements(graph, {}, "pipeline-runner").inputs == (
        ImportedInputs(("s3://data/sheet.xlsx",), ("copy",), ""),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "service"),
    [
        ({}, "qinglan-gateway"),
        ({"gateway_url": "http://mine:8300/v1"}, "mine"),
        ({"gateway_url": "http://mine.other.svc:8300"}, None),
        ({"gateway_url": "http://10.0.0.1:8300"}, None),
    ],
)
def test_the_gateway_is_needed_where_it_is_a_service_of_the_runs_own_namespace(
    change: dict[str, str], service: str | None
) -> None:
    result = read_requirements(read_graph(COMPILED / "rewriter.laptop.yaml"), change, "pipeline-runner")

    requests = [(item.name, item.steps) for item in result.objects if item.kind == "Service"]
    assert requests == (
        [(service, ("generate", "validate", "label", "augment", "sft", "ppo", "evaluate"))] if service else []
    )


def test_a_job_wants_the_gpus_of_all_its_nodes(small: Graph) -> None:
    machine, _ = read_requirements(small, PARAMETERS, "pipeline-runner").machines

    assert (machine.steps, machine.nodes, machine.job) == (("train",), 2, True)
    assert machine.asks == {GPU: 8, "cpu": 1, "memory": 1024**3}
    assert machine.labels == {LABEL: A100}


def test_counts_and_names_that_a_run_is_told_are_resolved(small: Graph, tmp_path: Path) -> None:
    def change(documents: Any) -> None:
        spec, platform = documents
        spec["root"]["dag"]["tasks"]["train"]["inputs"]["parameters"]["pipelinechannel--rounds"] = {
            "componentInputParameter": "rounds"
        }
        machine = container(documents)["resources"]["accelerator"]
        machine.pop("count", None)
        machine["resourceCount"] = "{{$.inputs.parameters['pipelinechannel--rounds']}}"
        pods = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
        pods["exec-train"]["pvcMount"][0] = {
            "mountPath": "/m", "pvcNameParameter": {"componentInputParameter": "release_name"}
        }  # fmt: skip

    graph = read_graph(changed(small, change, tmp_path))
    result = read_requirements(graph, {**PARAMETERS, "rounds": 3, "release_name": "claim"}, "pipeline-runner")

    assert result.machines[0].asks[GPU] == 3
    assert "claim" in {item.name for item in result.objects}
