"""Explain errors of the API server, with the next step, by pure functions over its answers."""

import re

import orjson

from qinglan.errors import ConfigError, OutageError, QinglanError

VERBS = {"GET": "read", "POST": "create", "PUT": "change", "PATCH": "change", "DELETE": "delete"}
INSTALL_HINTS = {
    "pytorchjobs": ("PyTorchJobs", "training-operator is not installed there. Ask for it (version 1.8 or newer)"),
    "workflows": ("Workflows", "Argo Workflows, which Kubeflow Pipelines runs on, is not installed there"),
    "modelrollouts": ("ModelRollouts", "apply manifests/platform there"),
    "inferenceservices": ("InferenceServices", "KServe is not installed there. Ask for it"),
}
UNKNOWN_PATH = "404 page not found"


class ApiError(Exception):
    """Raised if the API server refused a call, or did not answer it (`status` is then 0)."""

    def __init__(self, method: str, resource: str, status: int, body: str | bytes) -> None:
        super().__init__(f"{method} {resource}: {status} {body!r}")
        self.method, self.resource, self.status = method, resource, status
        self.text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body

    @property
    def message(self) -> str:
        """Message of the Status object in the answer; the whole text if the answer has none."""
        try:
            body = orjson.loads(self.text)
        except orjson.JSONDecodeError:
            return self.text.strip()
        return str(body.get("message", self.text)) if isinstance(body, dict) else self.text

    @property
    def missing(self) -> bool:
        """True if the object does not exist, although the server knows its kind."""
        return self.status == 404 and UNKNOWN_PATH not in self.text

    @property
    def passing(self) -> bool:
        """True if the error may be temporary. A server that restarts may also answer 401 or 403 for a while."""
        return self.status in (0, 401, 403, 429) or self.status >= 500

    @property
    def at_once(self) -> bool:
        """True if a retry makes sense even before the first successful call. Unlike `passing`, it excludes 401 and
        403."""
        return self.status in (0, 429) or self.status >= 500


def explain_api_error(refusal: ApiError, host: str, namespace: str) -> QinglanError:
    """Convert an ApiError to an error with the cause and the next step in plain words."""
    message, what = refusal.message, f"{VERBS[refusal.method]} {refusal.resource} in {namespace}"
    if refusal.status == 0 and "certificate" in message.lower():
        return ConfigError(
            f"The API server {host} and this login do not trust each other: {message}. Renew KUBECONFIG."
        )
    if refusal.at_once:
        return OutageError(f"The API server {host} did not {what}: {message}. Check that it runs and can be reached.")
    if refusal.status == 401:
        return ConfigError(
            f"The API server {host} does not know this login: its token has expired, or is of another cluster. "
            "Get a new one (in a pod: start the step again; else renew KUBECONFIG), and run again."
        )
    if refusal.status == 403 and (who := re.search(r'User "([^"]+)" cannot (\w+) resource "([^"]+)"', message)):
        user, verb, resource = who.groups()
        account = re.fullmatch(r"system:serviceaccount:([^:]+):([^:]+)", user)
        name = f"ServiceAccount {account[2]} of {account[1]}" if account else f"User {user}"
        return ConfigError(
            f"{name} may not {verb} {resource} in namespace {namespace}. Give it a Role with this verb and a "
            f"RoleBinding there, then check: kubectl auth can-i {verb} {resource} -n {namespace} --as {user}"
        )
    if refusal.status == 404 and not refusal.missing and refusal.resource in INSTALL_HINTS:
        kind, step = INSTALL_HINTS[refusal.resource]
        return ConfigError(f"The API server {host} knows no {kind}: {step}.")
    if refusal.status == 404:
        return ConfigError(f"The API server {host} could not {what}: {message}. Check the namespace's name.")
    return ConfigError(f"The API server {host} refused to {what}: {message}. Mend what it names, and run again.")
