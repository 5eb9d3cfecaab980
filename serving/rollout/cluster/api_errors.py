"""Translate errors of the API server to the errors that a reconcile handles: conflict, outage and configuration."""

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
        if refusal.passing and refusal.status != 403:  # a restarting API server refuses every login for a while
            raise OutageError(str(explain_api_error(refusal, api.host, api.namespace))) from refusal
        raise explain_api_error(refusal, api.host, api.namespace) from refusal
