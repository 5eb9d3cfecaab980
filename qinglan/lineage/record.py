"""What each step says of itself: a record for people, and a signed statement for auditors.

    with recorded("generate", {"questions": questions}, {"rewrites": rewrites}, config, lineage) as step:
        step.facts.update(rows=500)
        step.used.append(Part("prices", digest))

`lineage` is one more output: a folder with the statement of this step and those of all before it, so that whoever
holds the last has them all. Under `qinglan run` the record and the statement also land in the run's folder, named by
RECORDS_VARIABLE. The facts, digests and parents go into each output's metadata, which survives in KFP's stores.
"""

import os
import shutil
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import orjson

from qinglan.digests import algorithm_of, digest
from qinglan.errors import QinglanError
from qinglan.files import atomic_folder, atomic_write, count_lines, sha256_file
from qinglan.lineage.code import code_version, versions
from qinglan.lineage.dsse import ENVELOPE_SUFFIX, IN_TOTO, sign_envelope
from qinglan.lineage.keys import Signer, load_signer
from qinglan.lineage.statement import COMMIT, EXTERNAL_INPUT, ArtifactRef, Statement, to_payload
from qinglan.tables import is_spreadsheet

RECORDS_VARIABLE = "QINGLAN_RECORDS"
RUN_VARIABLE = "QINGLAN_RUN"
"""The run's id: on Kubeflow that of the run, here its folder's name."""

IMAGE_VARIABLE = "QINGLAN_IMAGE"
"""The image that the step runs in, by digest where it is a release."""

DATASET = "system.Dataset"
EXTERNAL_INPUT_NAMES = frozenset({"questions", "knowledge_base", "labelled"})
"""Inputs that nothing of ours makes."""


class Artifact(Protocol):
    """What we need of a KFP artifact, without KFP."""

    metadata: dict[str, Any]
    schema_title: str

    @property
    def uri(self) -> str: ...
    @property
    def path(self) -> str: ...


class StepReport(NamedTuple):
    """What a step adds to its record while it runs."""

    facts: dict[str, Any]
    used: list[ArtifactRef]
    """What it took beside its input artifacts: prompts, prices, paid answers."""

    made: list[ArtifactRef]
    """What it made beside its output artifacts."""

    papers: dict[str, bytes]
    """Small files that the lineage keeps, by name; each is the bytes of one thing made or used."""


@contextmanager
def recorded(
    stage: str,
    inputs: Mapping[str, Artifact],
    outputs: Mapping[str, Artifact],
    config: Mapping[str, Any],
    lineage: Artifact,
    before: Artifact | None = None,
) -> Iterator[StepReport]:
    """Run a stage between its record's two halves; the record tells of a failure too.

    The key is asked for first: a training must not end with nobody to sign for it.
    """
    signer = load_signer("builder")
    parents = {name: {"uri": item.uri, "sha256": digest(Path(item.path))} for name, item in inputs.items()}
    step = StepReport({}, [], [], {})
    record: dict[str, Any] = {"stage": stage, "status": "running", "started": _now(), "inputs": parents}
    record |= {"config": dict(config), "code": code_version()}
    _write(stage, record)
    try:
        yield step
        made = {name: {"uri": item.uri, **describe_artifact(item)} for name, item in outputs.items()}
        record |= {"ended": _now(), "outputs": made, "facts": step.facts}
        sealed = _sign_statement(record, step, signer, {**_algorithms(inputs), **_algorithms(outputs)})
        _write_lineage(Path(lineage.path), Path(before.path) if before else None, stage, sealed, step.papers)
    except BaseException as error:
        failed = {"status": "failed", "ended": _now(), "failure": _failure(error), "facts": step.facts}
        _write(stage, record | failed)
        raise
    for name, item in outputs.items():
        own = {key: value for key, value in made[name].items() if key != "uri"}
        item.metadata.update(**own, stage=stage, parents=parents, code=record["code"], facts=step.facts)
    lineage.metadata.update(sha256=digest(Path(lineage.path)), stage=stage)
    if folder := os.environ.get(RECORDS_VARIABLE):
        shutil.copyfile(
            Path(lineage.path) / _statement_file_name(stage, sealed), Path(folder) / f"{stage}{ENVELOPE_SUFFIX}"
        )
    _write(stage, record | {"status": "done", "lineage": lineage.uri})


def describe_artifact(item: Artifact) -> dict[str, Any]:
    """An artifact's digest, and how many rows a dataset holds where that can be told at a glance."""
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


def _algorithms(items: Mapping[str, Artifact]) -> dict[str, str]:
    """By the artifacts' URIs."""
    return {item.uri: algorithm_of(Path(item.path)) for item in items.values()}


def _sign_statement(
    record: Mapping[str, Any], step: StepReport, signer: Signer, algorithms: Mapping[str, str]
) -> bytes:
    inputs = [
        ArtifactRef(
            name, found["sha256"], found["uri"], {EXTERNAL_INPUT: True} if name in EXTERNAL_INPUT_NAMES else {},
            algorithms[found["uri"]],
        )
        for name, found in record["inputs"].items()
    ]  # fmt: skip
    made = [
        ArtifactRef(
            name, found["sha256"], found["uri"], {"rows": found["rows"]} if "rows" in found else {},
            algorithms[found["uri"]],
        )
        for name, found in record["outputs"].items()
    ]  # fmt: skip
    statement = Statement(
        record["stage"],
        (*made, *step.made),
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
    """Code, environment and image: what every step stands on."""
    found = []
    if (revision := code.get("revision", "")) not in ("", "unknown"):
        found.append(
            ArtifactRef("code", revision, "", {EXTERNAL_INPUT: True, "dirty": code.get("dirty", False)}, COMMIT)
        )
    lock = Path(__file__).parents[2] / "requirements.lock"
    if lock.is_file():
        found.append(ArtifactRef("environment", sha256_file(lock), "", {EXTERNAL_INPUT: True}))
    image, _, pinned = os.environ.get(IMAGE_VARIABLE, "").partition("@sha256:")
    if pinned:
        found.append(ArtifactRef("image", pinned, f"docker://{image}", {EXTERNAL_INPUT: True}))
    return found


def _write_lineage(target: Path, before: Path | None, stage: str, sealed: bytes, papers: Mapping[str, bytes]) -> None:
    """The folder of statements: what was there before, and this step's."""
    with atomic_folder(target) as folder:
        if before is not None:
            shutil.copytree(before, folder, dirs_exist_ok=True)
        for name, content in {_statement_file_name(stage, sealed): sealed, **papers}.items():
            (folder / name).write_bytes(content)


def _statement_file_name(stage: str, sealed: bytes) -> str:
    import hashlib

    return f"{stage}-{hashlib.sha256(sealed).hexdigest()[:12]}{ENVELOPE_SUFFIX}"


def _failure(error: BaseException) -> dict[str, Any]:
    found: dict[str, Any] = {"type": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}
    return found | {"explained": isinstance(error, QinglanError), "exit_code": getattr(error, "exit_code", 1)}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _write(stage: str, record: Mapping[str, Any]) -> None:
    if folder := os.environ.get(RECORDS_VARIABLE):
        with atomic_write(Path(folder) / f"{stage}.json") as partial:
            partial.write_bytes(orjson.dumps(record, option=orjson.OPT_INDENT_2))
