"""Write the record of a step, as a JSON file for people and as a signed statement for auditors.

    with recorded("generate", {"questions": questions}, {"rewrites": rewrites}, config, lineage) as step:
        step.facts.update(rows=500)
        step.used.append(ArtifactRef("prices", digest))

`lineage` is one more output: a folder with the statements of this step and of all earlier steps. The last step's
folder therefore holds all statements. Under `qinglan run` the record and the statement are also written to the folder
that RECORDS_VARIABLE names. An output's metadata in KFP holds only its digest and rows, since KFP repeats the
metadata of every input in the workflow's status, whose size has a limit (pipelines/graph/workflow_size.py). Parents,
code and facts are in the statement.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import orjson

import qinglan
from qinglan.errors import AlteredError, GateHeldError, QinglanError
from qinglan.files.digests import algorithm_of, digest
from qinglan.files.files import atomic_folder, atomic_write, count_lines, sha256_file
from qinglan.files.plain_files import writing
from qinglan.lineage.signing.dsse import ENVELOPE_SUFFIX, IN_TOTO, sign_envelope
from qinglan.lineage.signing.keys import Signer, load_signer
from qinglan.lineage.signing.statement import COMMIT, EXTERNAL_INPUT, ArtifactRef, Statement, to_payload
from qinglan.lineage.steps.earlier_steps import input_fault, read_earlier_steps, refuse_changed_lineage
from qinglan.lineage.steps.step_clock import step_clock
from qinglan.models.base_reference import base_digest, is_reference, verify_reference
from qinglan.run_id import RUN_VARIABLE
from qinglan.tables.file_formats import is_spreadsheet

RECORDS_VARIABLE = "QINGLAN_RECORDS"

IMAGE_VARIABLE = "QINGLAN_IMAGE"
"""Environment variable with the step's image, by digest if it is a release."""

BASE = "base_model"
"""Name of the only artifact that may be a reference to a model (models/base_reference.py)."""

NO_SIBLINGS: Mapping[str, Path] = MappingProxyType({})

DATASET = "system.Dataset"
EXTERNAL_INPUT_NAMES = frozenset({"questions", "knowledge_base", "labelled"})
"""Inputs that no stage makes."""


class Artifact(Protocol):
    """Type of a KFP artifact with the fields that this module uses, so that it does not import KFP."""

    metadata: dict[str, Any]
    schema_title: str

    @property
    def uri(self) -> str: ...
    @property
    def path(self) -> str: ...


class StepReport(NamedTuple):
    """Facts, inputs and outputs that a step adds to its record while it runs."""

    facts: dict[str, Any]
    used: list[ArtifactRef]
    """Inputs that are not KFP artifacts, such as prompts, prices and paid answers."""

    outputs: list[ArtifactRef]
    """Outputs that are not KFP artifacts."""

    papers: dict[str, bytes]
    """Contents of small supporting files for the lineage folder, by file name; each is one input or output."""


@contextmanager
def recorded(
    stage: str,
    inputs: Mapping[str, Artifact],
    outputs: Mapping[str, Artifact],
    config: Mapping[str, Any],
    lineage: Artifact,
    before: Artifact | None = None,
    siblings: Mapping[str, Path] = NO_SIBLINGS,
) -> Iterator[StepReport]:
    """Write the record of a stage before and after it runs. If the stage fails, the record holds the error.

    The key is loaded first, so that a missing key ends the stage before a long training, not after it. Inputs are
    compared with the outputs that earlier steps signed. `siblings` holds the lineage folders of inputs that other
    runs made, by the prefix of the inputs' names, such as "fold 1 ".
    """
    # KFP gives a step its inputs' paths; their digests are taken before the stage reads them.
    # https://www.kubeflow.org/docs/components/pipelines/user-guides/data-handling/artifacts/
    signer = load_signer("builder")
    parents = {name: {"uri": item.uri, "sha256": _verified_digest(name, item)} for name, item in inputs.items()}
    step, clock = StepReport({}, [], [], {}), step_clock(signer, Path(before.path) if before else None)
    record: dict[str, Any] = {"stage": stage, "status": "running", "started": clock.started, "inputs": parents}
    record |= {"config": dict(config), "code": code_version()}
    _write(stage, record)
    try:
        lineages = {"": Path(before.path), **siblings} if before else siblings
        _refuse_altered(inputs, {name: item["sha256"] for name, item in parents.items()}, lineages, signer)
        with writing(Path(lineage.path).parent):
            yield step
        results = _results(outputs)
        if BASE in outputs:
            results[BASE]["sha256"] = _verified_digest(BASE, outputs[BASE])
        record |= {"ended": clock.now(), "outputs": results, "facts": step.facts}
        algorithms = {item.uri: algorithm_of(Path(item.path)) for item in (*inputs.values(), *outputs.values())}
        sealed = _sign_statement(record, step, signer, algorithms)
        file_name = f"{stage}-{hashlib.sha256(sealed).hexdigest()[:12]}{ENVELOPE_SUFFIX}"
        with atomic_folder(Path(lineage.path)) as folder:
            if before is not None:
                shutil.copytree(before.path, folder, dirs_exist_ok=True)
            for name, content in {file_name: sealed, **step.papers}.items():
                (folder / name).write_bytes(content)
    except BaseException as error:  # also Ctrl-C and SIGTERM: the record must not stay "running"
        failed = {"status": "failed", "ended": clock.now(), "failure": _failure(error), "facts": step.facts}
        if isinstance(error, GateHeldError):  # the results are complete, and people want to read them
            failed["outputs"] = _results({name: item for name, item in outputs.items() if Path(item.path).exists()})
        _write(stage, record | failed)
        raise
    for name, item in outputs.items():
        item.metadata.update({key: value for key, value in results[name].items() if key != "uri"})
    lineage.metadata.update(sha256=digest(Path(lineage.path)))
    if records := os.environ.get(RECORDS_VARIABLE):
        shutil.copyfile(Path(lineage.path) / file_name, Path(records) / f"{stage}{ENVELOPE_SUFFIX}")
    _write(stage, record | {"status": "done", "lineage": lineage.uri})


def _refuse_altered(
    inputs: Mapping[str, Artifact], digests: Mapping[str, str], lineages: Mapping[str, Path], signer: Signer
) -> None:
    """Refuse changed inputs and lineages. `lineages` holds the lineage folder for each prefix of input names."""
    for start, folder in lineages.items():
        steps = read_earlier_steps(folder, signer)
        refuse_changed_lineage(folder, steps)
        for name, item in inputs.items():
            fault = input_fault(name.removeprefix(start), digests[name], steps) if name.startswith(start) else ""
            if fault:
                raise AlteredError(f"{item.path}: {fault}.")


def _verified_digest(name: str, item: Artifact) -> str:
    """Return an artifact's digest. For a reference to a base model, verify the weights and return their digest."""
    path = Path(item.path)
    if name != BASE or not is_reference(path):
        return digest(path)
    verify_reference(path)
    return base_digest(path)


def _results(outputs: Mapping[str, Artifact]) -> dict[str, dict[str, Any]]:
    return {name: {"uri": item.uri, **describe_artifact(item)} for name, item in outputs.items()}


def describe_artifact(item: Artifact) -> dict[str, Any]:
    """Return an artifact's digest and, for a dataset that is not a spreadsheet, its number of rows."""
    path = Path(item.path)
    if item.schema_title != DATASET or is_spreadsheet(path):
        return {"sha256": digest(path)}
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {"sha256": digest(path), "rows": sum(map(_rows, files))}


def _rows(path: Path) -> int:
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return int(pyarrow.parquet.read_metadata(path).num_rows)
    return count_lines(path)


def _sign_statement(
    record: Mapping[str, Any], step: StepReport, signer: Signer, algorithms: Mapping[str, str]
) -> bytes:
    """Sign the step's statement. `algorithms` holds the algorithm of each artifact's digest, by its URI."""

    def reference(name: str, item: Mapping[str, Any], about: Mapping[str, Any]) -> ArtifactRef:
        return ArtifactRef(name, item["sha256"], item["uri"], about, algorithms[item["uri"]])

    inputs = [
        reference(name, item, {EXTERNAL_INPUT: True} if name in EXTERNAL_INPUT_NAMES else {})
        for name, item in record["inputs"].items()
    ]
    outputs = [
        reference(name, item, {"rows": item["rows"]} if "rows" in item else {})
        for name, item in record["outputs"].items()
    ]
    statement = Statement(
        record["stage"],
        (*outputs, *step.outputs),
        (*inputs, *step.used, *environment_inputs(record["code"])),
        record["config"],
        step.facts,
        os.environ.get(RUN_VARIABLE, ""),
        record["started"],
        record["ended"],
        versions(),
    )
    return sign_envelope(to_payload(statement), IN_TOTO, [signer])


def environment_inputs(code: Mapping[str, Any]) -> list[ArtifactRef]:
    inputs = []
    if (revision := code.get("revision", "")) not in ("", "unknown"):
        about = {EXTERNAL_INPUT: True, "dirty": code.get("dirty", False)}
        inputs.append(ArtifactRef("code", revision, "", about, COMMIT))
    lock = Path(__file__).parents[3] / "requirements.lock"
    if lock.is_file():
        inputs.append(ArtifactRef("environment", sha256_file(lock), "", {EXTERNAL_INPUT: True}))
    image, _, pinned = os.environ.get(IMAGE_VARIABLE, "").partition("@sha256:")
    if pinned:
        inputs.append(ArtifactRef("image", pinned, f"docker://{image}", {EXTERNAL_INPUT: True}))
    return inputs


@cache
def code_version() -> dict[str, Any]:
    """Return the package version and the git revision; in an image, the revision from which it was built."""
    revision = os.environ.get("QINGLAN_REVISION", "")
    return {"version": qinglan.__version__, **({"revision": revision} if revision else _git_revision())}


@cache
def versions() -> Mapping[str, str]:
    packages = {"python": platform.python_version(), "qinglan": qinglan.__version__}
    for name in ("kfp", "torch", "transformers", "ms-swift", "verl", "trl"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return packages


def _git_revision() -> dict[str, Any]:
    def git(*arguments: str) -> str:
        folder = Path(__file__).parent
        command = ["git", *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return {"revision": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return {"revision": "unknown"}


def _failure(error: BaseException) -> dict[str, Any]:
    return {
        "type": type(error).__name__,
        "message": str(error),
        "traceback": traceback.format_exc(),
        "explained": isinstance(error, QinglanError),
        "exit_code": getattr(error, "exit_code", 1),
    }


def _write(stage: str, record: Mapping[str, Any]) -> None:
    if folder := os.environ.get(RECORDS_VARIABLE):
        with atomic_write(Path(folder) / f"{stage}.json") as partial:
            partial.write_bytes(orjson.dumps(record, option=orjson.OPT_INDENT_2))
