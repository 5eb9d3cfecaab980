"""Read and create ModelRollouts on a Kubernetes API server."""

from collections.abc import Iterator
from contextlib import contextmanager

from qinglan.kubernetes.api_errors import ApiError, explain_api_error
from qinglan.kubernetes.client import Api, connect
from qinglan.kubernetes.model_rollouts import PLURAL, Object

HTTP_CONFLICT = 409


class ClusterRollouts:
    """ModelRollouts of a namespace, with the rights of the pod's service account or of KUBECONFIG."""

    def __init__(self, namespace: str, api: Api | None = None) -> None:
        self._api = Api((api or connect()).client, namespace)

    def all(self) -> list[Object]:
        with self._explained():
            return list(self._api.all(PLURAL, {})["items"])

    def create(self, rollout: Object) -> bool:
        """Create the rollout; False if its name is taken, perhaps by our own request whose answer was lost."""
        with self._explained():
            try:
                self._api.create(PLURAL, rollout)
            except ApiError as refusal:
                if refusal.status != HTTP_CONFLICT:
                    raise
                return False
        return True

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except ApiError as refusal:
            raise explain_api_error(refusal, self._api.host, self._api.namespace) from refusal
