"""Load a knowledge base into OpenSearch: fill a new index, then switch the alias to it in one call.

The file is read twice, because a passage's weights depend on term counts over all passages. A killed load resumes at
the first missing passage; if the index is already complete, only the alias is switched. Passages are created, never
overwritten, so two loaders may run at the same time, and every copy of the index has the same term counts.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from qinglan.errors import DataError, OutageError
from qinglan.files.files import read_jsonl, sha256_file
from qinglan.rag.contract import Passage
from qinglan.rag.knowledge_base import inverse_frequency, read_knowledge_base
from qinglan.terminal.progress import progress
from serving.rag.opensearch.index_layout import FORMAT, TERMS, IndexMetadata, index_body, index_of
from serving.rag.opensearch.index_publisher import publish, read_index_metadata
from serving.rag.opensearch.outage_retry import OutageRetry, error_reason

if TYPE_CHECKING:
    from opensearchpy import OpenSearch

    from qinglan.rag.lexical.passage_terms import DocumentFrequencies

CHUNK = 1000
CHUNK_BYTES = 8_000_000
"""Largest bulk request in bytes; the node holds it in memory."""

REJECTED_TRIES = 8
LONGEST_PAUSE = 30
"""Longest pause in seconds before rejected documents are sent again.

A node with a full queue rejects single documents; only these are sent again, after 1, 2, 4 ... seconds."""

SHOWN = 5
CREATED, CONFLICT = 201, 409
DOCUMENT_ERRORS = (400, 413)
"""HTTP statuses for a faulty document. Any other error status counts as a temporary failure of the cluster."""


class KnowledgeBaseCounts(NamedTuple):
    """Counts over a knowledge base's file, from the first reading."""

    path: Path
    snapshot: str
    passages: int
    frequencies: "DocumentFrequencies"
    """Number of passages that contain each term."""


class LoadReport(NamedTuple):
    served: str
    """Name of the index to which the alias now points."""

    passages: int
    added: int
    """Number of passages that this load wrote; the rest already existed."""


class PassageOutcome(NamedTuple):
    """Outcome of one passage in a bulk request."""

    number: int
    created: bool
    """True if this load created the passage; False if it already existed or was refused."""

    reason: str = ""
    """Reason why the passage was refused; "" if the passage is in the index."""


class PassageSource(NamedTuple):
    """Line and id of a passage in the knowledge base's file."""

    line: int
    id: str


class RefusedPassages:
    """Report of refused passages: a file has one line for each, and the error message shows the first few."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._numbers: set[int] = set()
        self._shown: list[str] = []
        file.unlink(missing_ok=True)

    @property
    def count(self) -> int:
        return len(self._numbers)

    def below(self, number: int) -> int:
        """Number of refused passages among the first `number`."""
        return sum(refused < number for refused in self._numbers)

    def add(self, outcome: PassageOutcome, source: PassageSource) -> None:
        if outcome.number in self._numbers:
            return
        self._numbers.add(outcome.number)
        if len(self._shown) < SHOWN:
            self._shown.append(f"  line {source.line}, id {source.id[:80]!r}: {outcome.reason}")
        with self._file.open("ab") as report:
            report.write(orjson.dumps({**source._asdict(), "reason": outcome.reason}) + b"\n")

    def check(self, path: Path, passages: int) -> None:
        if self._numbers:
            raise DataError(
                f"{path}: {self.count} of {passages} passages were refused. The first:",
                *self._shown,
                f"All of them are in {self._file}. Correct them and load again; until then the snapshot before is "
                "searched.",
            )


def load(
    client: "OpenSearch",
    path: Path,
    tenant_id: str,
    kb_name: str,
    replicas: int,
    patience_seconds: float,
    refused: Path,
) -> LoadReport:
    """Fill an index and switch the alias to it. If passages were refused, raise a DataError and keep the alias."""
    if not path.is_file():
        raise DataError(f"{path}: no such knowledge base. Name a JSONL file: id, title, content, metadata.")
    snapshot = sha256_file(path)
    index = index_of(tenant_id, kb_name, snapshot)
    patience = OutageRetry(patience_seconds, index)
    notes = patience.until_answered(client, lambda: read_index_metadata(client, index))
    added = 0
    if notes is None or not notes.whole:
        counted = count_terms(path, snapshot, f"{tenant_id}/{kb_name}")
        notes = IndexMetadata(
            format=FORMAT,
            tenant_id=tenant_id,
            kb_name=kb_name,
            snapshot=snapshot,
            passages=counted.passages,
            whole=False,
        )
        refusals = RefusedPassages(refused)
        added = _fill_index(client, counted, notes, patience, refusals)
        refusals.check(path, counted.passages)
    if sha256_file(path) != snapshot:
        raise DataError(f"{path}: changed while it was loaded. Start again when nobody writes to it.")
    patience.until_answered(client, lambda: publish(client, index, notes, replicas))
    return LoadReport(index, notes.passages, added)


def count_terms(path: Path, snapshot: str, name: str) -> KnowledgeBaseCounts:
    """Read the file for the first time: check every passage and count terms, before anything is sent."""
    from qinglan.rag.lexical.passage_terms import DocumentFrequencies, extract_terms, passage_batches

    frequencies, passages = DocumentFrequencies(), 0
    with progress(f"read {name}") as tick:
        for batch in passage_batches(read_knowledge_base(path)):
            frequencies.add(extract_terms(batch))
            passages += len(batch)
            for _ in batch:
                tick()
    return KnowledgeBaseCounts(path, snapshot, passages, frequencies)


def _fill_index(
    client: "OpenSearch",
    counted: KnowledgeBaseCounts,
    notes: IndexMetadata,
    patience: OutageRetry,
    refusals: RefusedPassages,
) -> int:
    """Write all missing passages, and return the number of written passages.

    After an outage, loading continues at the first missing passage, which is searched again.
    """
    index, added = patience.index, 0

    def present(end: int) -> int:
        """Count the first `end` passages that need not be sent, because they are in the index or were refused."""
        client.indices.refresh(index=index)
        count = client.count(index=index, body={"query": {"range": {"number": {"lt": end}}}})["count"]
        return int(count) + refusals.below(end)

    def send() -> None:
        nonlocal added
        _create(client, index, notes)
        begin = first_missing(present, counted.passages)
        with progress(f"load {notes.tenant_id}/{notes.kb_name}", counted.passages - begin) as tick:
            under_way: dict[int, PassageSource] = {}
            for outcome in send_bulk(client, index, bulk_documents(counted, begin, under_way)):
                source = under_way.pop(outcome.number)
                if outcome.reason:
                    refusals.add(outcome, source)
                patience.renew()
                added += outcome.created
                tick(f"{refusals.count} refused" if refusals.count else "")

    patience.until_answered(client, send)
    return added


def _create(client: "OpenSearch", index: str, notes: IndexMetadata) -> None:
    from opensearchpy.exceptions import RequestError

    try:
        client.indices.create(index=index, body=index_body(notes))
    except RequestError as error:
        if error.error != "resource_already_exists_exception":
            raise


def first_missing(present: Callable[[int], int], passages: int) -> int:
    """Find the first missing passage by bisection. All passages before it exist; some after it may exist too."""
    low, high = 0, passages  # the first `low` passages all exist
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if present(middle) == middle else (low, middle - 1)
    return low


def bulk_documents(
    counted: KnowledgeBaseCounts, begin: int, under_way: dict[int, PassageSource]
) -> Iterator[tuple[dict[str, Any], str]]:
    """Read the file for the second time, from passage `begin` on. Yields the action and document of each passage.

    Stores the line and id of each passage in `under_way`.
    """
    from qinglan.rag.lexical.passage_terms import extract_terms, passage_batches

    weigh = counted.frequencies.weigher(lambda df: inverse_frequency(df, counted.passages))
    sources: deque[PassageSource] = deque()

    def rest() -> Iterator[Passage]:
        for line, passage in islice(read_jsonl(counted.path, Passage), begin, None):
            sources.append(PassageSource(line, passage.id))
            yield passage

    number = begin
    for batch in passage_batches(rest()):
        cut = extract_terms(batch)
        weights = weigh(cut.codes, cut.in_title, cut.counts).tolist()
        for passage, terms, weight in zip(batch, cut.bodies, weights, strict=True):
            under_way[number] = sources.popleft()
            document = {**vars(passage), "number": number, TERMS: terms, "weights": weight}
            yield {"create": {"_id": str(number)}}, orjson.dumps(document).decode()
            number += 1


def send_bulk(
    client: "OpenSearch", index: str, pairs: Iterator[tuple[dict[str, Any], str]]
) -> Iterator[PassageOutcome]:
    """Send bulk requests one after the other, and yield the outcome of each passage."""
    from opensearchpy.helpers import streaming_bulk

    for _, item in streaming_bulk(
        client,
        pairs,
        chunk_size=CHUNK,
        max_chunk_bytes=CHUNK_BYTES,
        raise_on_error=False,
        expand_action_callback=lambda pair: pair,
        max_retries=REJECTED_TRIES,
        initial_backoff=1,
        max_backoff=LONGEST_PAUSE,
        index=index,
    ):
        yield read_outcome(item["create"])


def read_outcome(item: dict[str, Any]) -> PassageOutcome:
    number, status = int(item["_id"]), int(item["status"])
    if status in (CREATED, CONFLICT):
        return PassageOutcome(number, status == CREATED)
    reason = error_reason(item.get("error"))
    if status not in DOCUMENT_ERRORS:
        raise OutageError(f"passage {number} was not taken, status {status}: {reason}")
    return PassageOutcome(number, False, reason)
