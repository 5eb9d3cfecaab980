"""Sign the history of an ended rollout, and attach it to its release in the store for later audits."""

import logging
from pathlib import Path

from qinglan.errors import ConfigError, DataError, OutageError
from qinglan.lineage.release.release_address import parse_release_uri
from qinglan.lineage.release.release_notes import ROLLOUT_NOTE, RolloutStatement, is_same_statement, sign_rollout
from qinglan.lineage.signing.keys import Signer, load_signer
from qinglan.store import open_store
from serving.rollout.ports import RolloutSnapshot

log = logging.getLogger("serving.rollout")


class HistorySigner:
    """Signer of histories, with the key of the role `rollout`. Without a key, it warns once and attaches nothing."""

    def __init__(self, keys: Path | None = None) -> None:
        self._signer: Signer | None = None
        try:
            self._signer = load_signer("rollout", keys)
        except ConfigError as error:
            log.warning("Histories of rollouts are not signed, and so not kept beside their releases: %s", error)

    def attach(self, namespace: str, name: str, snapshot: RolloutSnapshot) -> None:
        """Attach the history of an ended rollout, unless it is already attached. Call again after an OutageError."""
        if self._signer is None or snapshot.state.phase != "Done":
            return
        statement = history_record(namespace, name, snapshot)
        try:
            address = parse_release_uri(snapshot.spec.release.uri)
            store = open_store(address.store)
            if not any(is_same_statement(note, statement) for note in store.notes(statement.digest)):
                store.attach(statement.digest, ROLLOUT_NOTE, sign_rollout(statement, self._signer))
        except DataError as error:
            log.error("%s: its history is not kept: %s", statement.rollout, error)
        except (ConfigError, OSError) as error:
            raise OutageError(f"{statement.rollout}: its history cannot be kept now: {error}") from error


def history_record(namespace: str, name: str, snapshot: RolloutSnapshot) -> RolloutStatement:
    """Build the statement to sign. It depends only on the ledger, so a later call gives the same bytes."""
    spec, state = snapshot.spec, snapshot.state
    history = tuple(record.model_dump(mode="json", by_alias=True) for record in state.history)
    return RolloutStatement(
        digest=spec.release.digest,
        name=spec.release.name,
        rollout=f"{namespace}/{name}",
        service=spec.inference_service,
        outcome=state.outcome,
        reasons=state.reasons,
        began=state.history[0].at if state.history else "",
        ended=state.history[-1].at if state.history else "",
        spec=spec.model_dump(mode="json", by_alias=True),
        history=history,
        stable=state.stable.model_dump(mode="json", by_alias=True) if state.stable else {},
    )
