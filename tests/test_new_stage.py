"""A new stage is one folder and one entry in its line; a new command is one file and one line in commands/cli.py.

The proof is made in a copy of the product, by CONTRIBUTING's recipes: a stage that counts the locked test's rows is
put behind convert, and a command prints what it counted.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from qinglan.config import load_yaml
from standins.samples import write_sample
from tests.screens.graph_yaml import LOADER

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PRODUCT = ("qinglan", "components", "serving", "standins", "pipelines", "commands")
FOLDER = {
    "__init__.py": "",
    "config.py": '''
"""Settings of the count stage."""

from qinglan.config import Config, Positive


class CountConfig(Config):
    """How the rows of the locked test are counted."""

    at_most: Positive = 1000
    """Rows that are counted; the rest is left."""
''',
    "stage.py": '''
"""Count the rows of the locked test."""

import json
from pathlib import Path

from components.data.count.config import CountConfig


def count(rows: Path, counts: Path, config: CountConfig) -> int:
    number = min(len(rows.read_bytes().splitlines()), config.at_most)
    counts.write_text(json.dumps({"rows": number}))
    return number
''',
    "component.py": '''
"""The count stage as a KFP component; it decides nothing."""

from kfp import dsl

from components.image import CPU_IMAGE
from components.step_component import step_component


@step_component(CPU_IMAGE)
def count(
    before: dsl.Input[dsl.Artifact],
    locked_test: dsl.Input[dsl.Dataset],
    config: dict,
    row_counts: dsl.Output[dsl.Artifact],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """The rows of the locked test are counted."""
    from pathlib import Path

    from components.data.count import stage
    from components.data.count.config import CountConfig
    from qinglan.lineage.steps.record import recorded

    settings = CountConfig.parse(config, "count")
    inputs, outputs = {"locked_test": locked_test}, {"row_counts": row_counts}
    with recorded("count", inputs, outputs, settings.model_dump(mode="json"), lineage, before) as step:
        step.facts["counted"] = stage.count(Path(locked_test.path), Path(row_counts.path), settings)
''',
    "README.md": "# count\n\n## Settings (`CountConfig`)\n<!-- settings -->\n<!-- /settings -->\n",
}
IMPORT = "from components.data.count.config import CountConfig\n"
ENTRY = '''
    count: Annotated[
        CountConfig,
        Stage(
            inputs=("locked_test",), required=("locked_test",),
            outputs={"row_counts": Output("row_counts.json", "The number of rows of the locked test.")},
        ),
    ] = CountConfig()
    """How the locked test's rows are counted."""
'''

COMMAND = '''
"""`qinglan count`: the number of rows that the count stage found."""

from pathlib import Path
from typing import Annotated

import typer

from qinglan.terminal import say


def count(run: Annotated[Path, typer.Argument(help="The run's folder.")]) -> None:
    """Print how many rows of the locked test were counted."""
    import orjson

    say(f"{orjson.loads((run / 'files/row_counts.json').read_bytes())['rows']} rows")
'''

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product with the stage's folder, its entry in the rewriter's line, and that entry's import."""
    root = tmp_path_factory.mktemp("copy")
    for name in (*PRODUCT, "tools"):
        # With compiled modules: each has its source's time. One that is just being written has a name that goes.
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("*.pyc.*"))
    shutil.copy(ROOT / "pyproject.toml", root)
    (root / "docs").mkdir()
    folder = root / "components" / "data" / "count"
    folder.mkdir()
    for name, text in FOLDER.items():
        (folder / name).write_text(text.lstrip("\n"), encoding="utf-8")
    (root / "commands" / "count.py").write_text(COMMAND.lstrip("\n"), encoding="utf-8")
    commands = root / "commands" / "cli.py"
    text = commands.read_text(encoding="utf-8")
    text = insert_after(text, "from commands.compile import compile_\n", "from commands.count import count\n")
    commands.write_text(insert_after(text, "app.command()(why)\n", "app.command()(count)\n"), encoding="utf-8")
    line = root / "pipelines" / "lines" / "rewriter.py"
    text = line.read_text(encoding="utf-8")
    text = insert_after(text, "from components.data.convert.config import ConvertConfig\n", IMPORT)
    line.write_text(insert_before(text, "    augment: Annotated[", ENTRY.lstrip("\n") + "\n"), encoding="utf-8")
    return root


def insert_after(text: str, anchor: str, added: str) -> str:
    assert text.count(anchor) == 1
    return text.replace(anchor, anchor + added)


def insert_before(text: str, anchor: str, added: str) -> str:
    assert text.count(anchor) == 1
    return text.replace(anchor, added + anchor)


@pytest.fixture(scope="module")
def run(copy: Path) -> Run:
    """Run Python in the copy; its packages come before the repository's own."""

    def run(*words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *map(str, words)]
        env = {**os.environ, "PYTHONPATH": str(copy)}
        ran = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, timeout=600, check=False)
        assert ran.returncode == code, ran.stdout[-3000:] + ran.stderr[-3000:]
        return ran

    return run


def qinglan(run: Run, *words: str | Path, code: int = 0) -> str:
    return run("-c", "from commands.cli import main; main()", *words, code=code).stdout


@pytest.fixture(scope="module")
def words(copy: Path) -> list[str | Path]:
    """A tenant's words of a command, with a setting for the new stage in his profile."""
    write_sample("fivedoctors", copy / "data", conversations=8, seed=5)
    profile = load_yaml(copy / "pipelines/configs/fivedoctors/demo.yaml") | {"count": {"at_most": 2}}
    (copy / "own.yaml").write_text(yaml.safe_dump(profile), encoding="utf-8")
    files = ("--questions", copy / "data/questions.xlsx", "--knowledge-base", copy / "data/knowledge_base.jsonl")
    return ["fivedoctors", "--profile", copy / "own.yaml", *files, "--json"]


def test_the_compiled_graph_has_the_stage_with_its_inputs_and_its_settings(
    run: Run, copy: Path, words: list[str | Path]
) -> None:
    qinglan(run, "compile", "--tenant", "fivedoctors", "--profile", copy / "own.yaml", "--out", copy / "graphs")
    [path] = (copy / "graphs").iterdir()
    spec, platform = yaml.load_all(path.read_text(encoding="utf-8"), Loader=LOADER)
    tasks = spec["root"]["dag"]["tasks"]

    task = tasks["count"]
    assert task["dependentTasks"] == ["convert"]
    assert source(task, "locked_test") == ("convert", "locked_test")
    assert source(task, "before") == ("convert", "lineage")
    assert task["inputs"]["parameters"]["config"]["runtimeValue"]["constant"] == {"at_most": 2}
    assert source(tasks["augment"], "before") == ("count", "lineage"), "the next stage goes on from its lineage"
    pod = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-count"]
    assert pod["podMetadata"]["labels"]["qinglan.dev/step"] == "count"


def source(task: Any, name: str) -> tuple[str, str]:
    """The task that makes an artifact of another task's, and what it is called there."""
    artifact = task["inputs"]["artifacts"][name]["taskOutputArtifact"]
    return artifact["producerTask"], artifact["outputArtifactKey"]


def test_a_plan_and_the_command_line_know_it(run: Run, words: list[str | Path]) -> None:
    plan = orjson.loads(qinglan(run, "plan", *words, code=3))  # so few rows are refused by a whole run
    refused = run("-c", "from commands.cli import main; main()", "run", *words, "--until", "nonsense", code=2)

    assert plan["stages"][3:6] == ["convert", "count", "augment"]
    assert "There are: generate, validate, label, convert, count, augment, base" in refused.stderr


def test_make_docs_writes_its_table_and_what_deploying_requires_of_it(run: Run, copy: Path) -> None:
    run("-m", "tools.docs")

    readme = (copy / "components/data/count/README.md").read_text(encoding="utf-8")
    assert "| `at_most` | `1000` | Rows that are counted; the rest is left. |" in readme
    required = load_yaml(copy / "qinglan/lineage/auditing/required_inputs.yaml")["rewriter"]
    assert list(required)[2:5] == ["convert", "count", "base"] and required["count"] == ["locked_test"]


def test_a_run_executes_it_and_shows_its_artifact(run: Run, copy: Path, words: list[str | Path]) -> None:
    record = orjson.loads(qinglan(run, "run", *words, "--out", copy / "run", "--until", "count"))

    assert record["ran"] == ["generate", "validate", "label", "convert", "count"]
    assert record["steps"]["count"]["facts"] == {"counted": 2}
    assert orjson.loads((copy / "run/files/row_counts.json").read_bytes()) == {"rows": 2}
    assert qinglan(run, "count", copy / "run") == "2 rows\n"
    alone = orjson.loads(qinglan(run, "run", *words, "--out", copy / "run", "--only", "count"))
    assert alone["steps"]["count"]["status"] == "done"


def test_a_new_stage_may_import_no_other_stage(run: Run, copy: Path) -> None:
    stage = copy / "components/data/count/stage.py"
    text = stage.read_text(encoding="utf-8")
    lint = (
        "-c",
        "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()",
        "--no-cache",
    )
    run(*lint)

    stage.write_text("from components.data.convert.split_rows import split_of as split_of\n" + text, encoding="utf-8")

    broken = run(*lint, code=1).stdout
    stage.write_text(text, encoding="utf-8")
    assert "Stages stand alone BROKEN" in broken and "components.data.count" in broken
