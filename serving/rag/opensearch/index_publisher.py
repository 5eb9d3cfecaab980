"""Switch the alias to a loaded index, and delete indexes that no search uses any more."""

import logging
from typing import TYPE_CHECKING, Any

from qinglan.errors import DataError
from serving.rag.opensearch.index_layout import IndexMetadata, alias_of, metadata_mapping
from serving.rag.opensearch.outage_retry import describe_error

if TYPE_CHECKING:
    from opensearchpy import OpenSearch

MERGE_SECONDS = 3600.0
NOT_DELETED_HINT = "It is left as it is; delete it if nobody needs it"

log = logging.getLogger("serving.rag")


def read_index_metadata(client: "OpenSearch", index: str) -> IndexMetadata | None:
    """Read the metadata of an index; None if the index does not exist."""
    mappings = _mappings(client, index)
    if index not in mappings:
        return None
    hint = "It stands where this file belongs: delete that index, then load again."
    return IndexMetadata.read(index, mappings[index], hint)


def _mappings(client: "OpenSearch", pattern: str) -> dict[str, Any]:
    answer: dict[str, Any] = client.indices.get_mapping(index=pattern, ignore_unavailable=True, allow_no_indices=True)
    return answer


def publish(client: "OpenSearch", index: str, notes: IndexMetadata, replicas: int) -> None:
    """Complete the index and switch the alias to it. Each step can be repeated if the load is killed here."""
    alias = alias_of(notes.tenant_id, notes.kb_name)
    if not notes.whole:
        _complete(client, index, notes, replicas)
    # A person may have put the alias on any index by hand. This request needs rights only on Qinglan's own names.
    indexes = client.indices.get_alias(index=alias, name=alias, ignore=404)
    holders = {name for name, held in indexes.items() if isinstance(held, dict) and alias in held.get("aliases", {})}
    before = {name for name in holders if name.startswith(f"{alias}.")}
    # Done in one call, so that exactly one index answers at every moment.
    former = [f"{alias}.*", *(holders - before)]
    actions = [{"remove": {"index": name, "alias": alias, "must_exist": False}} for name in former]
    client.indices.update_aliases(body={"actions": [*actions, {"add": {"index": index, "alias": alias}}]})
    log.info("%s: names %s now, %d passages", alias, index, notes.passages)
    if before - {index}:
        _delete_old_indexes(client, alias, {index, *before})


def _complete(client: "OpenSearch", index: str, notes: IndexMetadata, replicas: int) -> None:
    """Check the number of passages, merge the index into one segment, and mark it as completely loaded (`whole`)."""
    client.indices.refresh(index=index)
    documents = int(client.count(index=index)["count"])
    if documents != notes.passages:
        raise DataError(
            f"{index}: holds {documents} passages and the file {notes.passages}. "
            f"Somebody else wrote to it: delete the index and load it again."
        )
    # The index never changes again, and a search of one segment is quickest.
    client.indices.forcemerge(index=index, max_num_segments=1, request_timeout=MERGE_SECONDS)
    client.indices.put_settings(index=index, body={"index": {"number_of_replicas": replicas}})
    whole = notes.model_copy(update={"whole": True})
    client.indices.put_mapping(index=index, body={"_meta": metadata_mapping(whole)})


def _delete_old_indexes(client: "OpenSearch", alias: str, protected: set[str]) -> None:
    """Delete the old indexes that were loaded completely. Others stay, because another loader may be filling them."""
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
    """Delete an index. If the cluster refuses (as during a backup), only warn; a later load tries again."""
    from opensearchpy.exceptions import AuthorizationException, RequestError

    try:
        client.indices.delete(index=index, ignore_unavailable=True)
    except (AuthorizationException, RequestError) as error:
        log.warning("%s: an older snapshot, not deleted: %s", index, describe_error(error))
    else:
        log.info("%s: deleted, an older snapshot", index)
