"""Make a loaded index the one that is searched, and remove those that no search can use any more."""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from qinglan.errors import DataError
from serving.rag.opensearch.index_layout import IndexMetadata, alias_of, metadata_mapping
from serving.rag.opensearch.outage_retry import describe_error

if TYPE_CHECKING:
    from opensearchpy import OpenSearch

MERGE_SECONDS = 3600.0
DELETE_IT = "delete that index, then load again."
NOT_DELETED_HINT = "It is left as it is; delete it if nobody needs it"

log = logging.getLogger("serving.rag")


def read_index_metadata(client: "OpenSearch", index: str) -> IndexMetadata | None:
    """The index's metadata; None if there is no such index."""
    mappings = _mappings(client, index)
    if index not in mappings:
        return None
    return IndexMetadata.read(index, mappings[index], f"It stands where this file belongs: {DELETE_IT}")


def _mappings(client: "OpenSearch", pattern: str) -> dict[str, Any]:
    """Of every index whose name fits."""
    answer: dict[str, Any] = client.indices.get_mapping(index=pattern, ignore_unavailable=True, allow_no_indices=True)
    return answer


def publish(client: "OpenSearch", index: str, notes: IndexMetadata, replicas: int) -> None:
    """Each step may be done again: a load that is killed here begins here anew."""
    alias = alias_of(notes.tenant_id, notes.kb_name)
    if not notes.whole:
        _complete(client, index, notes, replicas)
    holders = _indexes_of_alias(client, alias)
    before = {name for name in holders if name.startswith(f"{alias}.")}
    _switch(client, alias, index, holders - before)
    log.info("%s: names %s now, %d passages", alias, index, notes.passages)
    if before - {index}:
        _delete_old_indexes(client, alias, {index, *before})


def _complete(client: "OpenSearch", index: str, notes: IndexMetadata, replicas: int) -> None:
    """Counted, in one piece, and marked as whole."""
    client.indices.refresh(index=index)
    documents = int(client.count(index=index)["count"])
    if documents != notes.passages:
        raise DataError(
            f"{index}: holds {documents} passages and the file {notes.passages}. "
            f"Somebody else wrote to it: delete the index and load it again."
        )
    # The index never changes again: in one piece a search of it is quickest.
    client.indices.forcemerge(index=index, max_num_segments=1, request_timeout=MERGE_SECONDS)
    client.indices.put_settings(index=index, body={"index": {"number_of_replicas": replicas}})
    client.indices.put_mapping(
        index=index, body={"_meta": metadata_mapping(notes.model_copy(update={"whole": True}))}
    )


def _indexes_of_alias(client: "OpenSearch", alias: str) -> set[str]:
    """Every index that the alias names: by hand it may have been put on anything."""
    indexes = client.indices.get_alias(index=alias, name=alias, ignore=404)  # rights on our own names are enough
    return {name for name, held in indexes.items() if isinstance(held, dict) and alias in held.get("aliases", {})}


def _switch(client: "OpenSearch", alias: str, index: str, strangers: Iterable[str]) -> None:
    """Switch the alias in one call: at every moment exactly one index answers."""
    former = [f"{alias}.*", *strangers]
    actions = [{"remove": {"index": name, "alias": alias, "must_exist": False}} for name in former]
    client.indices.update_aliases(body={"actions": [*actions, {"add": {"index": index, "alias": alias}}]})


def _delete_old_indexes(client: "OpenSearch", alias: str, protected: set[str]) -> None:
    """Only what the loader made, and whole: another loader may be filling the others."""
    for index, mapping in _mappings(client, f"{alias}.*").items():
        if index in protected:
            continue
        try:
            notes = IndexMetadata.read(index, mapping, NOT_DELETED_HINT)
        except DataError as error:
            log.warning("%s", error)
            continue
        if not notes.named(index):
            log.warning("%s: a copy of another index. %s", index, NOT_DELETED_HINT)
        elif notes.whole:
            _delete(client, index)
        else:
            log.info("%s: was not loaded to its end. If nobody is loading it, delete it", index)


def _delete(client: "OpenSearch", index: str) -> None:
    """What cannot be deleted now (a backup of it is under way) waits for a later load: this one has succeeded."""
    from opensearchpy.exceptions import AuthorizationException, RequestError

    try:
        client.indices.delete(index=index, ignore_unavailable=True)
    except (AuthorizationException, RequestError) as error:
        log.warning("%s: an older snapshot, not deleted: %s", index, describe_error(error))
    else:
        log.info("%s: deleted, an older snapshot", index)
