"""A real ML Metadata server for tests, and what KFP 2.17's driver, importer and launcher write to one."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import orjson

from qinglan.files import cache_folder, replaced_folder, sha256_file
from qinglan.lineage.sources.kfp_nodes import CACHED, CANCELED, COMPLETE, DAG, FAILED, RUN_CONTEXT, RUNNING
from qinglan.lineage.sources.mlmd import SERVICE
from qinglan.lineage.sources.protocol import mlmd_pb2 as pb
from qinglan.services import end_with_parent

HERE = Path(__file__).parent
PINS = HERE / "mlmd.lock"
IMPORTER = "system.ImporterExecution"
CONTAINER = "system.ContainerExecution"
PIPELINE_CONTEXT = "system.Pipeline"
READS, WRITES = 3, 4
LIVE = 2

Names = Mapping[str, Sequence[int]]
"""Artifact ids by the name that a step has for them."""


def engine_python() -> Path:
    """The Python of an environment that has the engine; made once for these pins, in a second or two."""
    home = cache_folder(f"mlmd-{sha256_file(PINS)[:12]}")
    if not (home / "bin" / "python").exists():
        with replaced_folder(home) as partial:
            uv = [sys.executable, "-m", "uv", "--quiet"]
            subprocess.run([*uv, "venv", "--python", sys.executable, "--allow-existing", str(partial)], check=True)
            install = [
                "pip",
                "install",
                "--python",
                str(partial / "bin" / "python"),
                "--require-hashes",
                "-r",
                str(PINS),
            ]
            subprocess.run([*uv, *install], check=True)
    return home / "bin" / "python"


@contextmanager
def mlmd_server(folder: Path) -> Iterator[str]:
    """A server with an empty store of its own: its address."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    with (folder / "mlmd.log").open("wb") as log:
        process = subprocess.Popen(
            [str(engine_python()), str(HERE / "mlmd_server.py"), str(folder / "mlmd.sqlite")],
            stdout=subprocess.PIPE, stderr=log, env=environment, preexec_fn=end_with_parent,
        )  # fmt: skip
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert said, (folder / "mlmd.log").read_text()
        yield f"127.0.0.1:{orjson.loads(said)['port']}"
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


class Kfp:
    """Writes one run the way KFP does. Ids are the store's."""

    def __init__(self, address: str, run: str, pipeline: str = "rewriter") -> None:
        self._channel = grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])
        self.run = run
        self._contexts = [self._context(PIPELINE_CONTEXT, pipeline), self._context(RUN_CONTEXT, run)]
        self.root = self._execution(DAG, "", RUNNING)

    def calls(self) -> "Counter[str]":
        """How often each method of the server was called."""
        return Counter(orjson.loads(self._channel.unary_unary("/Counted/Calls")(b"")))

    def graph(self, name: str, inputs: Names | None = None, above: int = 0) -> int:
        """A condition's or a loop's own execution; it reads what its tasks read."""
        return self._execution(DAG, name, COMPLETE, inputs, above)

    def importer(self, uri: str, metadata: Mapping[str, Any] | None = None) -> int:
        execution = self._execution(IMPORTER, "importer", RUNNING)
        artifact = self.artifacts([("artifact", uri, metadata or {})])[0]
        self._publish(execution, COMPLETE, {"artifact": [artifact]})
        return artifact

    def container(self, task: str, inputs: Names | None = None, outputs: Names | None = None, above: int = 0) -> int:
        execution = self._execution(
            CONTAINER, task, RUNNING, inputs, above, image="qinglan@sha256:0", pod_name=f"{task}-pod"
        )
        self._publish(execution, COMPLETE, outputs or {})
        return execution

    def cached(self, task: str, of: int, inputs: Names, outputs: Names) -> int:
        execution = self._execution(CONTAINER, task, RUNNING, inputs, cached_execution_id=str(of))
        self._publish(execution, CACHED, outputs)
        return execution

    def failed(self, task: str, inputs: Names, outputs: Names | None = None) -> int:
        execution = self._execution(CONTAINER, task, RUNNING, inputs)
        self._publish(execution, FAILED, outputs or {})
        return execution

    def running(self, task: str, inputs: Names) -> int:
        return self._execution(CONTAINER, task, RUNNING, inputs)

    def not_triggered(self, task: str) -> int:
        return self._execution(CONTAINER, task, CANCELED)

    def artifacts(self, made: Sequence[tuple[str, str, Mapping[str, Any]]]) -> list[int]:
        """Artifacts of these names, URIs and metadata, as the launcher records them."""
        kind = self._call("PutArtifactType", artifact_type={"name": "system.Dataset"}).type_id
        artifacts = [
            pb.Artifact(
                type_id=kind, uri=uri, state=LIVE,
                custom_properties={
                    "display_name": {"string_value": name},
                    **{key: value_of(value) for key, value in metadata.items()},
                },
            )
            for name, uri, metadata in made
        ]  # fmt: skip
        return list(self._call("PutArtifacts", artifacts=artifacts).artifact_ids)

    def _context(self, kind: str, name: str) -> Any:
        known = self._call("GetContextByTypeAndName", type_name=kind, context_name=name)
        if known.HasField("context"):
            return known.context
        type_id = self._call("PutContextType", context_type={"name": kind}).type_id
        self._call("PutContexts", contexts=[{"name": name, "type_id": type_id}])
        return self._call("GetContextByTypeAndName", type_name=kind, context_name=name).context

    def _execution(
        self, kind: str, task: str, state: int, inputs: Names | None = None, above: int = 0, **noted: str
    ) -> int:
        type_id = self._call("PutExecutionType", execution_type={"name": kind}).type_id
        own: dict[str, Any] = {key: {"string_value": value} for key, value in {"task_name": task, **noted}.items()}
        if task:
            own["parent_dag_id"] = {"int_value": above or self.root}
        execution = pb.Execution(type_id=type_id, last_known_state=state, custom_properties=own)
        pairs = events(inputs or {}, READS)
        return int(self._put(execution, pairs))

    def _publish(self, execution: int, state: int, outputs: Names) -> None:
        found = self._call("GetExecutionsByID", execution_ids=[execution]).executions[0]
        found.last_known_state = state
        self._put(found, events(outputs, WRITES))

    def _put(self, execution: Any, pairs: Sequence[Any]) -> int:
        request = {"execution": execution, "artifact_event_pairs": pairs, "contexts": self._contexts}
        return int(self._call("PutExecution", **request).execution_id)

    def _call(self, method: str, **request: Any) -> Any:
        asked, answer = getattr(pb, f"{method}Request"), getattr(pb, f"{method}Response")
        ask = self._channel.unary_unary(f"/{SERVICE}/{method}", asked.SerializeToString, answer.FromString)
        return ask(asked(**request))


def events(names: Names, kind: int) -> list[Any]:
    return [
        {"event": {"artifact_id": one, "type": kind, "path": {"steps": [{"key": name}]}}}
        for name, ids in names.items()
        for one in ids
    ]


def value_of(value: Any) -> dict[str, Any]:
    """A value of an artifact's metadata as KFP's converter.go turns it into a property."""
    if isinstance(value, str):
        return {"string_value": value}
    if isinstance(value, bool):
        return {"int_value": int(value)}
    if isinstance(value, int | float):
        return {"double_value": float(value)}
    return {"struct_value": {"list" if isinstance(value, list) else "struct": value}}
