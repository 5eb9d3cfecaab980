"""qinglan knows neither KFP nor KServe: nothing in its code names what is theirs, except the client's API paths."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import qinglan
from tests.lint.syntax_trees import nodes_of, parsed

ROOM = Path(qinglan.__file__).parent
CLIENT = ROOM / "kubernetes"
"""Names the API groups of what it fetches, and says which operator is missing."""

ORCHESTRATORS = re.compile(
    r"(?i)kfp|kserve|knative|argoproj|pipelines\.kubeflow|pipeline/runid|inferenceservice|storageuri"
)
ALLOWED = {("lineage/steps/record.py", "kfp")}
"""A package whose version a record names."""


def code_words(path: Path) -> Iterator[str]:
    """Every name and every text in a module's code; its docstrings and comments are prose."""
    nodes = nodes_of(parsed(path))
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)) if id(node) not in prose:
                yield text
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.alias(name=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ImportFrom(module=str(name)) | ast.keyword(arg=str(name)):
                yield name


def orchestrator_words(path: Path) -> set[str]:
    return {word for word in code_words(path) if ORCHESTRATORS.search(word)}


@pytest.mark.slow
def test_nothing_of_kfp_and_kserve_is_named_outside_the_client() -> None:
    modules = [path for path in ROOM.rglob("*.py") if CLIENT not in path.parents]
    result = {(str(path.relative_to(ROOM)), word) for path in modules for word in orchestrator_words(path)}

    assert result == ALLOWED


def test_in_the_client_the_table_of_paths_and_its_hints_alone_name_them() -> None:
    result = {path.name: words for path in CLIENT.glob("*.py") if (words := orchestrator_words(path))}

    assert result == {
        "api_errors.py": {"inferenceservices", "InferenceServices", "KServe is not installed there. Ask for it"},
        "client.py": {
            "inferenceservices", "/apis/serving.kserve.io/v1beta1", "/apis/serving.knative.dev/v1",
            "/apis/argoproj.io/v1alpha1",
        },
        "model_rollouts.py": {"inferenceService"},
    }  # fmt: skip


def test_a_planted_name_is_found(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text('"""KServe in prose."""\n# KFP in a comment\nLABEL = "serving.kserve.io/inferenceservice"\n')

    assert orchestrator_words(planted) == {"serving.kserve.io/inferenceservice"}
