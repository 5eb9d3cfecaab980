"""What KFP 2.x notes in ML Metadata, as plain data: which execution made something, and what step that was.

KFP names each task in its execution's custom properties, and writes an artifact's metadata into the artifact's.
A cached task is an execution of its own with the artifacts of the one whose result it took; a graph is an execution
too, and the outermost one stays RUNNING for ever; a task that its condition kept from running is CANCELED.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from qinglan.lineage.sources import IMPORTER, Step, Thing

RUN_CONTEXT = "system.PipelineRun"
DAG = "system.DAGExecution"
IMPORTERS = {"system.ImporterExecution", "system.ImporterWorkspaceExecution"}

INPUT, OUTPUT = {2, 3}, {1, 4}
"""Event types, declared or not."""

RUNNING, COMPLETE, FAILED, CACHED, CANCELED = 2, 3, 4, 5, 6
STATES = {COMPLETE: "done", FAILED: "failed", CACHED: "cached"}

EXACT = 2**53
"""Below this a double holds every whole number."""


def really_ran(execution: int, known: Mapping[int, Any]) -> Any | None:
    """The execution, if it made something; in place of a cached one the one whose result it took.

    Where that is gone from the store, the cached one is all that is left to tell.
    """
    seen: set[int] = set()
    one = known.get(execution)
    while one is not None and (before := original(one)) in known and before not in seen:
        seen.add(before)
        one = known[before]
    return one if one is not None and is_step(one) and one.last_known_state in (COMPLETE, CACHED) else None


def first(makers: Iterable[Sequence[Any]]) -> Any | None:
    """The execution that was first; one that ran before one that was cached, and those before importers."""
    found = (execution for each in makers for execution in each)
    return min(found, default=None, key=lambda one: (one.type in IMPORTERS, one.last_known_state, one.id))


def outermost(execution: int, parents: Mapping[int, int]) -> int:
    """The root of the DAGs that an execution stands in; 0 is no parent."""
    seen = {execution}
    while (parent := parents.get(execution, 0)) and parent not in seen:
        seen.add(parent)
        execution = parent
    return execution


def step(execution: Any, events: Sequence[Any], artifacts: Mapping[int, Any], run: str) -> Step:
    """An execution as the step it was. Our steps say more in their outputs' metadata than KFP notes of them."""
    outputs = [one for one in events if one.type in OUTPUT and one.artifact_id in artifacts]
    said: Mapping[str, Any] = next(
        (found for one in outputs if "stage" in (found := metadata(artifacts[one.artifact_id]))), {}
    )
    parents = _dict(said.get("parents"))
    inputs = [one for one in events if one.type in INPUT and one.artifact_id in artifacts]
    own = properties(execution)
    importer = execution.type in IMPORTERS
    return Step(
        id=str(execution.id),
        stage=IMPORTER if importer else str(said.get("stage") or own.get("task_name", "")),
        run=run,
        state=STATES.get(execution.last_known_state, "running"),
        inputs=tuple(_thing(one, artifacts[one.artifact_id], parents) for one in inputs),
        outputs=tuple(_thing(one, artifacts[one.artifact_id], {}) for one in outputs),
        started=_time(execution.create_time_since_epoch),
        ended=_time(execution.last_update_time_since_epoch) if execution.last_known_state in STATES else "",
        facts=_facts(own, {} if importer else said),
    )


FACTS: Mapping[str, str] = {
    "image": "image", "pod_name": "pod", "inputs": "parameters", "outputs": "returned",
    "cached_execution_id": "cached_from",
}  # fmt: skip
"""What KFP notes of a step, and what we call it."""


def _facts(own: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    noted = {name: own[key] for key, name in FACTS.items() if own.get(key)}
    return {**noted, **_dict(said.get("facts")), **({"code": said["code"]} if "code" in said else {})}


def _thing(event: Any, artifact: Any, parents: Mapping[str, Any]) -> Thing:
    """An artifact in a step; a step that read it has noted its digest where the artifact itself bears none."""
    name = event.path.steps[0].key if event.path.steps else ""
    noted = _dict(parents.get(name))
    told = noted.get("sha256", "") if noted.get("uri") == artifact.uri else ""
    return Thing(name, digest(artifact) or told, artifact.uri)


def _dict(value: Any) -> Mapping[str, Any]:
    """What a foreign component left under a name of ours may be anything."""
    return value if isinstance(value, dict) else {}


def digest(artifact: Any) -> str:
    """What our steps noted in an artifact; empty for another's, and for what an importer names."""
    return str(artifact.custom_properties["sha256"].string_value) if "sha256" in artifact.custom_properties else ""


def metadata(artifact: Any) -> dict[str, Any]:
    """An artifact's metadata as its step wrote it, but for true and false, which KFP stores as 1 and 0."""
    return {key: _unwrapped(value) for key, value in properties(artifact).items()}


def properties(node: Any) -> dict[str, Any]:
    """A node's custom properties as plain data; all of KFP's numbers are doubles, so whole ones become ints again."""
    return {key: _value(value) for key, value in node.custom_properties.items()}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "struct_value":
        from google.protobuf.json_format import MessageToDict

        return _whole(MessageToDict(value.struct_value))
    return _whole(getattr(value, kind)) if kind else None


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < EXACT else value


def _unwrapped(value: Any) -> Any:
    """KFP wraps a list or a dictionary of an artifact's metadata, as a property can only be a struct."""
    if isinstance(value, dict) and len(value) == 1 and (key := next(iter(value))) in ("struct", "list"):
        return value[key]
    return value


def is_step(execution: Any) -> bool:
    """Neither a graph, nor a task that its condition kept from running."""
    return not (execution.type == DAG or execution.last_known_state == CANCELED)


def original(execution: Any) -> int:
    """The execution whose result a cached one took; 0 for one that ran."""
    noted = execution.custom_properties
    if execution.last_known_state != CACHED or "cached_execution_id" not in noted:
        return 0
    text = noted["cached_execution_id"].string_value
    return int(text) if text.isdecimal() else 0


def parent(execution: Any) -> int:
    """The graph that an execution stands in; 0 for a run's outermost."""
    noted = execution.custom_properties
    return int(noted["parent_dag_id"].int_value) if "parent_dag_id" in noted else 0


def _time(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds") if milliseconds else ""
