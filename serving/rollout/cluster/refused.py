"""What the API server refused, as the errors that a look knows: a faster writer, no answer, or a person's task."""

from collections.abc import Iterator
from contextlib import contextmanager

from qinglan.errors import Conflict, OutageError
from qinglan.kubernetes.client import Api
from qinglan.kubernetes.refusals import Refusal, explain

CONFLICT = 409


@contextmanager
def explained(api: Api) -> Iterator[None]:
    try:
        yield
    except Refusal as refusal:
        if refusal.status == CONFLICT:
            raise Conflict(f"{refusal.resource}: {refusal.message}") from refusal
        if refusal.passing and refusal.status != 403:  # a server that restarts knows no login for a while
            raise OutageError(str(explain(refusal, api.host, api.namespace))) from refusal
        raise explain(refusal, api.host, api.namespace) from refusal
