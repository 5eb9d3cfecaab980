"""Loads a knowledge base into OpenSearch: a new index for its bytes, then the alias is switched to it at once.

The file is read twice, a passage at a time: a passage's weight needs the count of all passages. A load that was
killed goes on at the first passage that is not there; one whose snapshot is there already only switches the alias.
Passages are created and never written anew, so that two loaders at once, or one after the other, do no harm, and
every copy of the index counts its words alike.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from qinglan.errors import DataError
from qinglan.files import read_jsonl, sha256_file
from qinglan.progress import progress
from qinglan.rag.contract import Passage
from qinglan.rag.index import inverse_frequency, read_knowledge_base
from serving.rag.opensearch.layout import FORMAT, Notes, index_of, new_index
from serving.rag.opensearch.patience import Patience
from serving.rag.opensearch.publishing import notes_of, publish
from serving.rag.opensearch.refusals import Outcome, Place, Refusals, outcome_of

if TYPE_CHECKING:
    from opensearchpy import OpenSearch

    from qinglan.rag.pairs import Frequencies

CHUNK = 1000
CHUNK_BYTES = 8_000_000
"""Of one bulk request: the node holds it in memory."""

REJECTED_TRIES = 8
LONGEST_PAUSE = 30
"""A node whose queue is full rejects documents one by one; those alone are sent again, after 1, 2, 4 ... seconds."""


class Counted(NamedTuple):
    """A knowledge base's file, after the first reading."""

    path: Path
    snapshot: str
    passages: int
    frequencies: "Frequencies"
    """In how many passages each pair stands."""


class Loaded(NamedTuple):
    served: str
    """The index that the alias names now."""

    passages: int
    added: int
    """By this load; the others were there already."""


def load(
    client: "OpenSearch",
    path: Path,
    tenant_id: str,
    kb_name: str,
    replicas: int,
    patience_seconds: float,
    refused: Path,
) -> Loaded:
    """The index that the alias names then; where passages were refused it is a DataError, and nothing is switched."""
    if not path.is_file():
        raise DataError(f"{path}: no such knowledge base. Name a JSONL file: id, title, content, metadata.")
    snapshot = sha256_file(path)
    index = index_of(tenant_id, kb_name, snapshot)
    patience = Patience(patience_seconds, index)
    notes = patience.until_answered(client, lambda: notes_of(client, index))
    added = 0
    if notes is None or not notes.whole:
        counted = count(path, snapshot, f"{tenant_id}/{kb_name}")
        notes = Notes(format=FORMAT, tenant_id=tenant_id, kb_name=kb_name, snapshot=snapshot,
                      passages=counted.passages, whole=False)  # fmt: skip
        refusals = Refusals(refused)
        added = _fill(client, counted, notes, patience, refusals)
        refusals.check(path, counted.passages)
    if sha256_file(path) != snapshot:
        raise DataError(f"{path}: changed while it was loaded. Start again when nobody writes to it.")
    patience.until_answered(client, lambda: publish(client, index, notes, replicas))
    return Loaded(index, notes.passages, added)


def count(path: Path, snapshot: str, name: str) -> Counted:
    """The first reading: every passage is checked, before anything is sent."""
    from qinglan.rag.pairs import Frequencies, batches, cut_passages

    frequencies, passages = Frequencies(), 0
    with progress(f"read {name}") as tick:
        for batch in batches(read_knowledge_base(path)):
            frequencies.add(cut_passages(batch))
            passages += len(batch)
            for _ in batch:
                tick()
    return Counted(path, snapshot, passages, frequencies)


def _fill(client: "OpenSearch", counted: Counted, notes: Notes, patience: Patience, refusals: Refusals) -> int:
    """Everything that is not there yet; how many passages that were."""
    index, added = patience.index, 0

    def start() -> int:
        _create(client, index, notes)
        return first_missing(lambda end: _present(client, index, end) + refusals.below(end), counted.passages)

    def send() -> None:
        nonlocal added
        begin = start()
        left = counted.passages - begin
        with progress(f"load {notes.tenant_id}/{notes.kb_name}", left) as tick:
            under_way: dict[int, Place] = {}
            for outcome in sent(client, index, documents(counted, begin, under_way)):
                place = under_way.pop(outcome.number)
                if outcome.refused:
                    refusals.add(outcome, place)
                patience.renew()
                added += outcome.created
                tick(f"{refusals.count} refused" if refusals.count else "")

    patience.until_answered(client, send)
    return added


def _create(client: "OpenSearch", index: str, notes: Notes) -> None:
    from opensearchpy.exceptions import RequestError

    try:
        client.indices.create(index=index, body=new_index(notes))
    except RequestError as error:
        if error.error != "resource_already_exists_exception":
            raise


def _present(client: "OpenSearch", index: str, end: int) -> int:
    """How many of the first so many passages are there."""
    client.indices.refresh(index=index)
    below = {"query": {"range": {"number": {"lt": end}}}}
    return int(client.count(index=index, body=below)["count"])


def first_missing(present: Callable[[int], int], passages: int) -> int:
    """The first passage that is not there, by halving: all before it are, and after it some may be."""
    low, high = 0, passages  # of the first `low` passages all are there
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if present(middle) == middle else (low, middle - 1)
    return low


def documents(counted: Counted, begin: int, under_way: dict[int, Place]) -> Iterator[tuple[dict[str, Any], str]]:
    """The second reading, from one passage on: what is sent of each; where it stands is noted in `under_way`."""
    from qinglan.rag.pairs import batches, cut_passages

    weigh = counted.frequencies.weigher(lambda df: inverse_frequency(df, counted.passages))
    places: deque[Place] = deque()

    def rest() -> Iterator[Passage]:
        for line, passage in islice(read_jsonl(counted.path, Passage), begin, None):
            places.append(Place(line, passage.id))
            yield passage

    number = begin
    for batch in batches(rest()):
        cut = cut_passages(batch)
        weights = weigh(cut.pairs, cut.in_title, cut.counts).tolist()
        for passage, pairs, weight in zip(batch, cut.bodies, weights, strict=True):
            under_way[number] = places.popleft()
            document = {**vars(passage), "number": number, "pairs": pairs, "weights": weight}
            yield {"create": {"_id": str(number)}}, orjson.dumps(document).decode()
            number += 1


def sent(client: "OpenSearch", index: str, pairs: Iterator[tuple[dict[str, Any], str]]) -> Iterator[Outcome]:
    """What became of each passage, in bulk requests one after the other."""
    from opensearchpy.helpers import streaming_bulk

    for _, item in streaming_bulk(
        client, pairs, chunk_size=CHUNK, max_chunk_bytes=CHUNK_BYTES, raise_on_error=False,
        expand_action_callback=lambda pair: pair, max_retries=REJECTED_TRIES, initial_backoff=1,
        max_backoff=LONGEST_PAUSE, index=index,
    ):  # fmt: skip
        yield outcome_of(item["create"])
