"""What the API server refused, as the errors that a look knows: a faster writer, no answer, or a person's task."""

from collections.abc import Iterator
from contextlib import contextmanager

from qinglan.errors import ConflictError, OutageError
from qinglan.kubernetes.api_errors import ApiError, explain_api_error
from qinglan.kubernetes.client import Api

CONFLICT = 409


@contextmanager
def translate_refusals(api: Api) -> Iterator[None]:
    try:
        yield
    except ApiError as refusal:
        if refusal.status == CONFLICT:
            raise ConflictError(f"{refusal.resource}: {refusal.message}") from refusal
        if refusal.passing and refusal.status != 403:  # a server that restarts knows no login for a while
            raise OutageError(str(explain_api_error(refusal, api.host, api.namespace))) from refusal
        raise explain_api_error(refusal, api.host, api.namespace) from refusal
