"""The ModelRollouts of a real API server."""

from collections.abc import Iterator
from contextlib import contextmanager

from qinglan.kubernetes.api_errors import ApiError, explain_api_error
from qinglan.kubernetes.client import Api, connect
from qinglan.kubernetes.model_rollouts import PLURAL, Object

HTTP_CONFLICT = 409


class ClusterRollouts:
    """The ModelRollouts of a namespace, with the pod's own account or KUBECONFIG."""

    def __init__(self, namespace: str, api: Api | None = None) -> None:
        self._api = Api((api or connect()).client, namespace)

    def all(self) -> list[Object]:
        with self._explained():
            return list(self._api.all(PLURAL, {})["items"])

    def create(self, rollout: Object) -> bool:
        """After a lost answer the name is taken, by us: whoever decides again finds it."""
        try:
            with self._explained(HTTP_CONFLICT):
                self._api.create(PLURAL, rollout)
        except ApiError:
            return False
        return True

    @contextmanager
    def _explained(self, but: int = -1) -> Iterator[None]:
        try:
            yield
        except ApiError as refusal:
            if refusal.status == but:
                raise
            raise explain_api_error(refusal, self._api.host, self._api.namespace) from refusal
