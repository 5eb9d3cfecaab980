"""A rollout's history as the API server has it, held against the one that its controller signed."""

from pipelines.rollout.shown import Shown
from qinglan.errors import Altered, ConfigError, Incomplete
from qinglan.lineage.addresses import read_address
from qinglan.lineage.rollouts import Kept, kept_beside, to_payload
from qinglan.lineage.subjects import notes_of
from qinglan.lineage.trust import TrustPolicy
from qinglan.store import open_store
from serving.rollout.history import told_of
from serving.rollout.ports import Entry


def verified(one: Shown, store: str, policy: TrustPolicy) -> Kept:
    """The statement that counts and says the same; Incomplete where there is none, Altered where it says another."""
    if not one.done:
        raise ConfigError(f"{one.name}: a history is signed when the rollout has ended, and this one is {one.phase}.")
    told = told_of(one.namespace, one.name, Entry(one.spec, one.state, ""))
    shelf = open_store(store or read_address(one.spec.release.uri).store)
    tenant = told.name.partition("/")[0]
    beside = kept_beside(notes_of(shelf, told.digest), policy, told.digest, tenant)
    own = [kept for kept in beside if (kept.told.rollout, kept.told.began) == (told.rollout, told.began)]
    if not own:
        raise Incomplete(
            f"{told.rollout}: no signed history lies beside {told.name} {told.digest[:12]} in {shelf.address}. Its "
            "controller keeps one where it has a key (rollout.pem); until then the API server's word is all there is."
        )
    same = [kept for kept in own if to_payload(kept.told) == to_payload(told)]
    if good := [kept for kept in same if kept.counts]:
        return good[0]
    why = same[0].why if same else "the API server's history is another than what was signed"
    raise Altered(f"{told.rollout}: {why}. Believe neither until you know who changed it.")
