"""Ports that log why they gave no answer; the rollout itself only notes that there was none."""

import logging

from qinglan.errors import OutageError
from serving.rollout.ports import Evidence, Proof, ReleaseVerifier, Window

log = logging.getLogger(__name__)


class LoggingEvidence:
    """Logs an outage with the rollout's name."""

    def __init__(self, name: str, evidence: Evidence) -> None:
        self._name, self._evidence = name, evidence

    def since(self, canary: str, stable: str, after: float | None) -> Window | None:
        try:
            return self._evidence.since(canary, stable, after)
        except OutageError as error:
            log.warning("%s: no measurements: %s", self._name, error)
            raise


class LoggingReleaseVerifier:
    """Logs an outage with the rollout's name."""

    def __init__(self, name: str, releases: ReleaseVerifier) -> None:
        self._name, self._releases = name, releases

    def prove(self, uri: str) -> Proof:
        try:
            return self._releases.prove(uri)
        except OutageError as error:
            log.warning("%s: not verified yet: %s", self._name, error)
            raise
