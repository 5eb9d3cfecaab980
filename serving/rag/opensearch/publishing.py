"""Makes a loaded index the one that is searched, and removes those that nobody can be searching any more."""

import logging
from typing import TYPE_CHECKING

from qinglan.errors import DataError
from serving.rag.opensearch.layout import Notes, alias_of, noted

if TYPE_CHECKING:
    from opensearchpy import OpenSearch

MERGE_SECONDS = 3600.0

log = logging.getLogger("serving.rag")


def notes_of(client: "OpenSearch", index: str) -> Notes | None:
    """What the index says of itself; None where there is no such index."""
    return all_notes(client, index).get(index)


def all_notes(client: "OpenSearch", pattern: str) -> dict[str, Notes]:
    """Of every index whose name fits."""
    found = client.indices.get_mapping(index=pattern, ignore_unavailable=True, allow_no_indices=True)
    return {index: Notes.read(index, answer) for index, answer in found.items()}


def publish(client: "OpenSearch", index: str, notes: Notes, replicas: int) -> None:
    """Each step may be done again: a load that is killed here begins here anew."""
    alias = alias_of(notes.tenant_id, notes.kb_name)
    if not notes.whole:
        _complete(client, index, notes, replicas)
    before = set(client.indices.get_alias(index=f"{alias}.*", name=alias, allow_no_indices=True, ignore=404))
    _switch(client, alias, index)
    log.info("%s: names %s now, %d passages", alias, index, notes.passages)
    if before - {index}:
        _sweep(client, alias, {index, *before})


def _complete(client: "OpenSearch", index: str, notes: Notes, replicas: int) -> None:
    """Counted, in one piece, and marked as whole."""
    client.indices.refresh(index=index)
    there = int(client.count(index=index)["count"])
    if there != notes.passages:
        raise DataError(
            f"{index}: holds {there} passages and the file {notes.passages}. "
            f"Somebody else wrote to it: delete the index and load it again."
        )
    # The index never changes again: in one piece a search of it is quickest.
    client.indices.forcemerge(index=index, max_num_segments=1, request_timeout=MERGE_SECONDS)
    client.indices.put_settings(index=index, body={"index": {"number_of_replicas": replicas}})
    client.indices.put_mapping(index=index, body={"_meta": noted(notes.model_copy(update={"whole": True}))})


def _switch(client: "OpenSearch", alias: str, index: str) -> None:
    """In one call: at no time is there no answer, or one of two."""
    former = {"remove": {"index": f"{alias}.*", "alias": alias, "must_exist": False}}
    client.indices.update_aliases(body={"actions": [former, {"add": {"index": index, "alias": alias}}]})


def _sweep(client: "OpenSearch", alias: str, kept: set[str]) -> None:
    """Only what is whole: another loader may be filling the others."""
    for index, notes in all_notes(client, f"{alias}.*").items():
        if index in kept:
            continue
        if notes.whole:
            client.indices.delete(index=index, ignore_unavailable=True)
            log.info("%s: deleted, an older snapshot", index)
        else:
            log.info("%s: was not loaded to its end. If nobody is loading it, delete it", index)
