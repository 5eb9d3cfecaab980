"""Requests to the API server as kubectl sends them, without starting a kubectl for each of hundreds."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlencode

from urllib3 import HTTPHeaderDict

from tests.manifests.manifest_objects import Object

DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
JSON = "application/json"
SECONDS = 300.0


class Resource(NamedTuple):
    """A kind of object and where the API server has it."""

    api_version: str
    kind: str
    plural: str
    names: frozenset[str]
    """Names that kubectl accepts: plural, singular and short names, each also with the group behind it."""

    namespaced: bool

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        root = f"/{'apis' if '/' in self.api_version else 'api'}/{self.api_version}"
        inside = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/".join(part for part in (f"{root}{inside}/{self.plural}", name, subresource) if part)


class Answer(NamedTuple):
    status: int
    body: Object

    @property
    def refusal(self) -> str:
        """The error as kubectl prints it; empty if there is none."""
        if self.status < 400:
            return ""
        return f"Error from server ({self.body.get('reason')}): {self.body.get('message')}"


class ApiServer:
    """One API server, with the login of a kubeconfig; `account` is namespace/name of a service account to act as."""

    def __init__(self, kubeconfig: Path) -> None:
        from kubernetes import config

        self._client: Any = config.new_client_from_config(str(kubeconfig))
        self._resources: list[Resource] = []

    def request(
        self, method: str, path: str, body: Object | None = None, account: str = "",
        query: Mapping[str, str] = MappingProxyType({}), accept: str = JSON, content_type: str = JSON,
    ) -> Answer:  # fmt: skip
        headers = HTTPHeaderDict({"Accept": accept, "Content-Type": content_type})
        if token := self._client.configuration.get_api_key_with_prefix("authorization"):
            headers.add("Authorization", token)
        for name, value in impersonation(account):
            headers.add(name, value)
        url = f"{self._client.configuration.host}{path}?{urlencode(query)}"
        sent = None if body is None else json.dumps(body).encode()
        pool = self._client.rest_client.pool_manager
        answer = pool.request(method, url, body=sent, headers=headers, timeout=SECONDS)
        return Answer(answer.status, json.loads(answer.data))

    def resource(self, name: str) -> Resource:
        """By what kubectl calls it; what was not known a moment ago may be by now."""
        result = [resource for resource in self._resources if name in resource.names]
        if not result:
            self._resources = list(self._discovered())
            result = [resource for resource in self._resources if name in resource.names]
        if not result:
            raise LookupError(f"the API server knows no {name}")
        return result[0]

    def of_kind(self, manifest: Object) -> Resource:
        api_version, kind = manifest["apiVersion"], manifest["kind"]
        group = api_version.rpartition("/")[0]
        return self.resource(f"{kind.lower()}.{group}" if group else kind.lower())._replace(api_version=api_version)

    def get(self, kind: str, name: str = "", namespace: str = "", labels: str = "") -> Answer:
        query = {"labelSelector": labels} if labels else {}
        return self.request("GET", self.resource(kind).path(namespace, name), query=query)

    def create(self, manifest: Object, account: str = "", **query: str) -> Answer:
        path = self.of_kind(manifest).path(manifest.get("metadata", {}).get("namespace", "default"))
        return self.request("POST", path, manifest, account, {"fieldValidation": "Strict", **query})

    def patch(self, path: str, change: Object, account: str = "", how: str = "merge", **query: str) -> Answer:
        return self.request("PATCH", path, change, account, query, content_type=f"application/{how}-patch+json")

    def _discovered(self) -> Iterator[Resource]:
        for root in ("/api", "/apis"):
            for group in self.request("GET", root, accept=DISCOVERY).body["items"]:
                yield from of_group(group)


def of_group(group: Mapping[str, Any]) -> Iterator[Resource]:
    name = group["metadata"].get("name", "")
    for version in group["versions"]:
        for resource in version.get("resources", ()):
            api_version = f"{name}/{version['version']}" if name else version["version"]
            known = {resource["resource"], resource["singularResource"], *resource.get("shortNames", ())}
            names = known | {f"{it}.{name}" for it in known} if name else known
            kind = resource["responseKind"]["kind"]
            yield Resource(
                api_version, kind, resource["resource"], frozenset(names), resource["scope"] == "Namespaced"
            )


def impersonation(account: str) -> Iterator[tuple[str, str]]:
    """The headers by which an administrator acts as a service account, namespace/name, or as another user."""
    if account and "/" not in account:
        yield "Impersonate-User", account
    elif account:
        namespace, name = account.split("/")
        yield "Impersonate-User", f"system:serviceaccount:{namespace}:{name}"
        for group in ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"):
            yield "Impersonate-Group", group


@cache
def api_server(kubeconfig: Path) -> ApiServer:
    return ApiServer(kubeconfig)
