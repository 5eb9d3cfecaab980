"""A rollout's history as the API server has it, held against the one that its controller signed."""

from pipelines.rollout.view import RolloutView
from qinglan.errors import AlteredError, ConfigError, IncompleteAuditError
from qinglan.lineage.audit_targets import read_notes
from qinglan.lineage.release_address import parse_release_uri
from qinglan.lineage.rollout_statement import CheckedRollout, read_rollout_notes, rollout_payload
from qinglan.lineage.trust import TrustPolicy
from qinglan.store import open_store
from serving.rollout.history import history_record
from serving.rollout.ports import RolloutSnapshot


def verify_history(one: RolloutView, store: str, policy: TrustPolicy) -> CheckedRollout:
    """The statement that counts and says the same; Incomplete where there is none, Altered where it says another."""
    if not one.done:
        raise ConfigError(f"{one.name}: a history is signed when the rollout has ended, and this one is {one.phase}.")
    told = history_record(one.namespace, one.name, RolloutSnapshot(one.spec, one.state, ""))
    shelf = open_store(store or parse_release_uri(one.spec.release.uri).store)
    tenant = told.name.partition("/")[0]
    beside = read_rollout_notes(read_notes(shelf, told.digest), policy, told.digest, tenant)
    own = [kept for kept in beside if (kept.told.rollout, kept.told.began) == (told.rollout, told.began)]
    if not own:
        raise IncompleteAuditError(
            f"{told.rollout}: no signed history lies beside {told.name} {told.digest[:12]} in {shelf.address}. Its "
            "controller keeps one where it has a key (rollout.pem); until then the API server's word is all there is."
        )
    same = [kept for kept in own if rollout_payload(kept.told) == rollout_payload(told)]
    if good := [kept for kept in same if kept.counts]:
        return good[0]
    why = same[0].why if same else "the API server's history is another than what was signed"
    raise AlteredError(f"{told.rollout}: {why}. Believe neither until you know who changed it.")
