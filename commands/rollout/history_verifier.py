"""Compare a rollout's history in the API server with the one that its controller signed."""

from commands.rollout.view import RolloutView
from qinglan.errors import AlteredError, ConfigError, IncompleteAuditError
from qinglan.lineage.release.release_address import parse_release_uri
from qinglan.lineage.release.release_notes import CheckedRollout, read_rollout_notes, rollout_payload
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.store import open_store
from serving.rollout.history import history_record
from serving.rollout.ports import RolloutSnapshot


def verify_history(view: RolloutView, store: str, policy: TrustPolicy) -> CheckedRollout:
    """Return the trusted signed statement with the same history. IncompleteAuditError if nothing is signed,
    AlteredError if the signed history differs or cannot be trusted."""
    if not view.done:
        raise ConfigError(
            f"{view.name}: a history is signed when the rollout has ended, and this one is {view.phase}."
        )
    record = history_record(view.namespace, view.name, RolloutSnapshot(view.spec, view.state, ""))
    release_store = open_store(store or parse_release_uri(view.spec.release.uri).store)
    tenant = record.name.partition("/")[0]
    beside = read_rollout_notes(release_store.notes(record.digest), policy, record.digest, tenant)
    histories = [
        history
        for history in beside
        if (history.statement.rollout, history.statement.began) == (record.rollout, record.began)
    ]
    if not histories and (changed := release_store.changed_notes(record.digest)):
        raise AlteredError(
            f"{record.rollout}: {release_store.address}: {', '.join(changed)} was changed after it was put "
            f"beside {record.digest[:12]}. Trust no history of this rollout until you know who changed it."
        )
    if not histories:
        raise IncompleteAuditError(
            f"{record.rollout}: no signed history is beside {record.name} {record.digest[:12]} in "
            f"{release_store.address}. A rollout's controller signs it if it has a key (rollout.pem); without a key "
            "only the API server vouches for the history."
        )
    same = [history for history in histories if rollout_payload(history.statement) == rollout_payload(record)]
    if good := [history for history in same if history.is_trusted]:
        return good[0]
    why = same[0].why if same else "the API server's history differs from the signed one"
    raise AlteredError(f"{record.rollout}: {why}. Trust neither history until you know who changed it.")
