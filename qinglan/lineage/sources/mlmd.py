"""KFP's ML Metadata as a source of lineage, read over gRPC; nothing is ever written there.

    with Mlmd("metadata-grpc-service:8080") as source: ...
    python -m qinglan.lineage.sources.mlmd HOST:PORT DIGEST_OR_URI     # prints the walk back, a line a step

An artifact that our steps made is found by its digest and by its URI; a file that a run was given only by its URI,
as KFP's importer notes no digest. Ids travel in batches: a generation of a walk costs a few calls, and one for each
run met for the first time, not some for each artifact.
"""

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypeVar

import orjson

from qinglan.errors import OutageError, QinglanError
from qinglan.lineage.sources import Source, Step, Thing, differ, is_digest, line, walk_back, wanted
from qinglan.lineage.sources.kfp_nodes import (
    INPUT,
    OUTPUT,
    RUN_CONTEXT,
    digest,
    first,
    is_step,
    original,
    outermost,
    parent,
    really_ran,
    step,
)
from qinglan.terminal import say, say_error

SERVICE = "ml_metadata.MetadataStoreService"
BATCH = 1_000
PAGE = 100
"""The most that the server sends at once."""
DEADLINE_SECONDS = 20.0
MESSAGE_BYTES = 100 * 1024 * 1024
"""KFP's own limit; gRPC's is 4 MB."""

RETRIES = {
    "maxAttempts": 4,
    "initialBackoff": "0.2s",
    "maxBackoff": "2s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE", "ABORTED"],
}
"""A server that restarts, or a deadlock in its MySQL, costs a second or two and is no outage."""

SERVICE_CONFIG = {"methodConfig": [{"name": [{"service": SERVICE}], "retryPolicy": RETRIES}]}
OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.service_config", orjson.dumps(SERVICE_CONFIG).decode()),
    ("grpc.enable_http_proxy", 0),
]

Item = TypeVar("Item")


class Mlmd(Source):
    """An ML Metadata server, "host:port", as KFP 2.x fills it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._runs: dict[int, str] = {}

    def makers(self, things: Collection[Thing]) -> Mapping[Thing, Step]:
        artifacts = self._artifacts(things)
        ids = {artifact.id for found in artifacts.values() for artifact in found}
        makers = self._ran(self._touching(ids, OUTPUT))
        chosen = {thing: first(makers[artifact.id] for artifact in found) for thing, found in artifacts.items()}
        steps = self._steps({execution.id: execution for execution in chosen.values() if execution}.values())
        return {thing: steps[execution.id] for thing, execution in chosen.items() if execution}

    def users(self, digest_or_uri: str) -> Iterator[Step]:
        thing = wanted(digest_or_uri)
        readers = self._touching({artifact.id for artifact in self._artifacts([thing])[thing]}, INPUT)
        for ids in batches(sorted({one for found in readers.values() for one in found}), BATCH):
            yield from self._known(self._executions(ids).values())

    def steps(self, run: str = "") -> Iterator[Step]:
        if not run:
            pages = self._pages("GetExecutions", "executions")
        elif (context := self._context(run)) is None:
            return
        else:
            pages = self._pages("GetExecutionsByContext", "executions", context_id=context)
        for page in batches(pages, PAGE):
            yield from self._known(page)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def _known(self, executions: Iterable[Any]) -> Iterator[Step]:
        return iter(self._steps([one for one in executions if is_step(one)]).values())

    def _artifacts(self, things: Collection[Thing]) -> dict[Thing, list[Any]]:
        """What the store has of each thing: by its URI where that is known, else by its digest."""
        found: defaultdict[str, list[Any]] = defaultdict(list)
        for uris in batches({thing.uri for thing in things if thing.uri}, BATCH):
            for artifact in self._call("GetArtifactsByURI", uris=uris).artifacts:
                found[artifact.uri].append(artifact)
        digests = {thing.digest for thing in things if not thing.uri and is_digest(thing.digest)}
        for batch in batches(digests, PAGE):
            words = ", ".join(f"'{digest}'" for digest in batch)
            query = f"custom_properties.sha256.string_value IN ({words})"
            for artifact in self._pages("GetArtifacts", "artifacts", query):
                found[digest(artifact)].append(artifact)
        return {
            thing: [one for one in found[thing.uri or thing.digest] if not differ(thing, Thing("", digest(one), ""))]
            for thing in things
        }

    def _touching(self, artifacts: Collection[int], kinds: Collection[int]) -> defaultdict[int, set[int]]:
        """By artifact, the executions that have such an event with it."""
        found: defaultdict[int, set[int]] = defaultdict(set)
        for ids in batches(sorted(artifacts), BATCH):
            for event in self._call("GetEventsByArtifactIDs", artifact_ids=ids).events:
                if event.type in kinds:
                    found[event.artifact_id].add(event.execution_id)
        return found

    def _ran(self, makers: Mapping[int, Collection[int]]) -> defaultdict[int, list[Any]]:
        """By artifact, the executions that made it; in place of cached ones those whose result they took."""
        known = self._executions({one for found in makers.values() for one in found})
        missing = {one for execution in known.values() if (one := original(execution))} - known.keys()
        while missing:
            fetched = self._executions(missing)
            known |= fetched
            missing = {one for execution in fetched.values() if (one := original(execution))} - known.keys()
        ran: defaultdict[int, list[Any]] = defaultdict(list)
        for artifact, found in makers.items():
            ran[artifact] = [one for one in (really_ran(each, known) for each in found) if one is not None]
        return ran

    def _steps(self, executions: Collection[Any]) -> dict[int, Step]:
        events: defaultdict[int, list[Any]] = defaultdict(list)
        for ids in batches([execution.id for execution in executions], BATCH):
            for event in self._call("GetEventsByExecutionIDs", execution_ids=ids).events:
                events[event.execution_id].append(event)
        artifacts: dict[int, Any] = {}
        for ids in batches(sorted({one.artifact_id for found in events.values() for one in found}), BATCH):
            artifacts |= {one.id: one for one in self._call("GetArtifactsByID", artifact_ids=ids).artifacts}
        runs = self._runs_of(executions)
        return {one.id: step(one, events[one.id], artifacts, runs[one.id]) for one in executions}

    def _executions(self, ids: Collection[int]) -> dict[int, Any]:
        found: dict[int, Any] = {}
        for batch in batches(sorted(ids), BATCH):
            found |= {one.id: one for one in self._call("GetExecutionsByID", execution_ids=batch).executions}
        return found

    def _runs_of(self, executions: Collection[Any]) -> dict[int, str]:
        """By execution, its run: that of the outermost DAG, as a context can be asked for one execution at a time."""
        parents = {execution.id: parent(execution) for execution in executions}
        while above := {parent for parent in parents.values() if parent} - parents.keys():
            fetched = self._executions(above)
            parents |= {dag: parent(fetched[dag]) if dag in fetched else 0 for dag in above}
        tops = {execution.id: outermost(execution.id, parents) for execution in executions}
        for top in set(tops.values()) - self._runs.keys():
            contexts = self._call("GetContextsByExecution", execution_id=top).contexts
            self._runs[top] = next((one.name for one in contexts if one.type == RUN_CONTEXT), "")
        return {execution: self._runs[top] for execution, top in tops.items()}

    def _context(self, run: str) -> int | None:
        answer = self._call("GetContextByTypeAndName", type_name=RUN_CONTEXT, context_name=run)
        return int(answer.context.id) if answer.HasField("context") else None

    def _pages(self, method: str, field: str, query: str = "", **request: Any) -> Iterator[Any]:
        token = ""
        while True:
            options = {"max_result_size": PAGE, "next_page_token": token, "filter_query": query}
            answer = self._call(method, options=options, **request)
            yield from getattr(answer, field)
            if not (token := answer.next_page_token):
                return

    def _call(self, method: str, **request: Any) -> Any:
        import grpc

        messages = _messages()
        asked, answer = (getattr(messages, f"{method}{half}") for half in ("Request", "Response"))
        ask = self._channel.unary_unary(f"/{SERVICE}/{method}", asked.SerializeToString, answer.FromString)
        try:
            return ask(asked(**request), timeout=DEADLINE_SECONDS)
        except grpc.RpcError as error:
            raise OutageError(
                f"The ML Metadata server {self._address} did not answer {method}: "
                f"{error.code().name}, {error.details()}. See that it runs and can be reached from here, say by "
                "kubectl -n kubeflow port-forward svc/metadata-grpc-service 8080, and ask again."
            ) from None

    @cached_property
    def _channel(self) -> Any:
        import grpc

        return grpc.insecure_channel(self._address, options=OPTIONS)


def _messages() -> Any:
    from qinglan.lineage.sources.protocol import mlmd_pb2

    return mlmd_pb2


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def main(arguments: Sequence[str]) -> int:
    """The walk back to where something came from, a line a step, nearest first."""
    if len(arguments) != 2:
        say("python -m qinglan.lineage.sources.mlmd HOST:PORT DIGEST_OR_URI", to=sys.stderr)
        return 2
    address, digest_or_uri = arguments
    try:
        with Mlmd(address) as source:
            steps = walk_back(source, digest_or_uri)
    except QinglanError as error:
        say_error(error)
        return error.exit_code
    for one in steps:
        say(line(one))
    if not steps:
        say(f"{address} knows of no step that made {digest_or_uri}.", to=sys.stderr)
    return 0 if steps else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
