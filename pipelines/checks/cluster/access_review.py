"""Ask the API server which rights a run's service account has."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from qinglan.jobs.cluster.rbac import Permission

KFP_PERMISSIONS = (
    Permission("argoproj.io", "workflowtaskresults", ("create", "patch")),
    Permission("", "configmaps", ("get",), "kfp-launcher"),
)
"""Rights that each pod of KFP 2.17 needs: Argo's executor reports its end, driver and launcher read settings."""

ROLLOUT_PERMISSIONS = (Permission("qinglan.dev", "modelrollouts", ("create", "get", "list")),)
"""Rights that the deploy stage needs in the rollout's namespace."""

Read = Callable[[str, Callable[[], Any]], Any]
"""Calls the API for an object, which is named in messages; None if that is refused."""


def denied_permissions(
    api: Any, read: Read, account: tuple[str, str], namespace: str, permissions: Iterable[Permission]
) -> tuple[Permission, ...]:
    """The permissions that an account, by its namespace and name, lacks in a namespace."""
    denied = []
    for permission in permissions:
        verbs = [verb for verb in permission.verbs if _may(api, read, account, namespace, permission, verb) is False]
        denied += [permission._replace(verbs=tuple(verbs))] if verbs else []
    return tuple(denied)


def _may(
    api: Any, read: Read, account: tuple[str, str], namespace: str, permission: Permission, verb: str
) -> bool | None:
    from kubernetes import client

    home, name = account
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{home}", "system:authenticated"]
    resource, _, part = permission.resource.partition("/")
    access = client.V1ResourceAttributes(
        namespace=namespace, verb=verb, group=permission.group, resource=resource, subresource=part or None,
        name=permission.name or None,
    )  # fmt: skip
    review = client.V1LocalSubjectAccessReview(
        metadata=client.V1ObjectMeta(namespace=namespace),
        spec=client.V1SubjectAccessReviewSpec(
            user=f"system:serviceaccount:{home}:{name}", groups=groups, resource_attributes=access
        ),
    )
    create = client.AuthorizationV1Api(api).create_namespaced_local_subject_access_review
    answer = read(
        f"the rights of ServiceAccount {name} in namespace {namespace}",
        partial(create, namespace, review, _request_timeout=(5, 30)),
    )
    return None if answer is None else bool(answer.status.allowed)
