"""One record per step: what went in, what came out, by which code, how it ended.

    with recorded("generate", inputs={"questions": questions}, outputs={"rewrites": rewrites}, config) as facts:
        facts.update(rows=500)

The facts, digests and parents also go into each output's metadata, which survives in every store that KFP has.
Under `qinglan run` the records land in the run's folder, named by RECORDS_VARIABLE.
"""

import os
import subprocess
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import orjson

import qinglan
from qinglan.errors import QinglanError
from qinglan.files import count_lines, replaced, sha256_file, sha256_text
from qinglan.tables import is_spreadsheet

RECORDS_VARIABLE = "QINGLAN_RECORDS"
DATASET = "system.Dataset"


class Artifact(Protocol):
    """What we need of a KFP artifact, without KFP."""

    metadata: dict[str, Any]
    schema_title: str

    @property
    def uri(self) -> str: ...
    @property
    def path(self) -> str: ...


def digest(path: Path) -> str:
    """Of a file's bytes, or of a folder's files by name."""
    if path.is_file():
        return sha256_file(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return sha256_text(*(f"{file.relative_to(path)} {sha256_file(file)}" for file in files))


def describe(item: Artifact) -> dict[str, Any]:
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


@cache
def code_version() -> dict[str, Any]:
    """Package version and git revision; in an image, the revision it was built from."""
    revision = os.environ.get("QINGLAN_REVISION", "")
    return {"version": qinglan.__version__, **({"revision": revision} if revision else _git())}


def _git() -> dict[str, Any]:
    def git(*words: str) -> str:
        here = Path(__file__).parent
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return {"revision": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return {"revision": "unknown"}


@contextmanager
def recorded(
    stage: str, inputs: Mapping[str, Artifact], outputs: Mapping[str, Artifact], config: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Run a stage between its record's two halves; the record tells of a failure too."""
    parents = {name: {"uri": item.uri, "sha256": digest(Path(item.path))} for name, item in inputs.items()}
    facts: dict[str, Any] = {}
    record: dict[str, Any] = {"stage": stage, "status": "running", "started": _now(), "inputs": parents}
    record |= {"config": dict(config), "code": code_version()}
    _write(stage, record)
    try:
        yield facts
    except BaseException as error:
        failure: dict[str, Any] = {
            "type": type(error).__name__,
            "message": str(error),
            "traceback": traceback.format_exc(),
        }
        failure |= {"explained": isinstance(error, QinglanError), "exit_code": getattr(error, "exit_code", 1)}
        _write(stage, record | {"status": "failed", "ended": _now(), "failure": failure, "facts": facts})
        raise
    made = {name: {"uri": item.uri, **describe(item)} for name, item in outputs.items()}
    for name, item in outputs.items():
        own = {key: value for key, value in made[name].items() if key != "uri"}
        item.metadata.update(**own, stage=stage, parents=parents, code=record["code"], facts=facts)
    _write(stage, record | {"status": "done", "ended": _now(), "outputs": made, "facts": facts})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _write(stage: str, record: Mapping[str, Any]) -> None:
    if folder := os.environ.get(RECORDS_VARIABLE):
        with replaced(Path(folder) / f"{stage}.json") as partial:
            partial.write_bytes(orjson.dumps(record, option=orjson.OPT_INDENT_2))
