"""Allowed connections in a tenant's namespace: the promise that the rendered NetworkPolicies must keep."""

from collections.abc import Mapping, Sequence

from tests.manifests.network import Place, Policy, may_speak

INTERNET = Place(address="93.184.215.14")
CLOUD = Place(address="169.254.169.254")
PRIVATE = Place(address="10.96.0.1")
PODS: Mapping[str, Mapping[str, str]] = {
    "gateway": {"app.kubernetes.io/name": "qinglan-gateway"},
    "rag": {"app.kubernetes.io/name": "qinglan-rag"},
    "janitor": {"app.kubernetes.io/name": "qinglan-janitor"},
    "rollout": {"app.kubernetes.io/name": "qinglan-rollout"},
    "model": {"serving.kserve.io/inferenceservice": "rewriter"},
    "shadow": {"app.kubernetes.io/name": "qinglan-shadow"},
    "step": {"workflows.argoproj.io/workflow": "run-1"},
    "job": {"training.kubeflow.org/job-name": "sft-1"},
    "stranger": {"app": "stranger"},
}
MODEL, GATEWAY, RAG, ROLLOUT, SHADOW = 8080, 8300, 8200, 8500, 8090
KNATIVE, OF_KNATIVE = 8012, 9090
"""Its sidecar beside a model: questions, and how many there are."""


def pod(name: str, namespace: str) -> Place:
    return Place(PODS[name], namespace, {"kubernetes.io/metadata.name": namespace})


def outside(name: str, **labels: str) -> Place:
    """Some pod of another namespace."""
    return Place({"app": name}, name, {"kubernetes.io/metadata.name": name, **labels})


def ways(namespace: str) -> dict[str, tuple[Place, Place, int, bool]]:
    """Each way that must be open, or must not be."""
    here = {name: pod(name, namespace) for name in PODS}
    client = outside("app", **{"qinglan.dev/clients": "true"})
    store, ingress = (outside(label, **{f"qinglan.dev/{label}": "true"}) for label in ("store", "ingress"))
    return {
        "a step asks the gateway": (here["step"], here["gateway"], GATEWAY, True),
        "a job asks the gateway": (here["job"], here["gateway"], GATEWAY, True),
        "the gateway asks the RAG service": (here["gateway"], here["rag"], RAG, True),
        "the RAG service asks a model": (here["rag"], here["model"], MODEL, True),
        "the RAG service asks a Serverless model, by a name of the cluster": (here["rag"], ingress, 8081, True),
        "the RAG service asks at the ingress gateway's public door": (here["rag"], ingress, 8080, False),
        "the ingress gateway asks a Standard model": (ingress, here["model"], MODEL, True),
        "the ingress gateway asks a Serverless model": (ingress, here["model"], KNATIVE, True),
        "the ingress gateway reads a model's numbers": (ingress, here["model"], OF_KNATIVE, False),
        "the ingress gateway asks the RAG service": (ingress, here["rag"], RAG, False),
        "the ingress gateway asks the gateway": (ingress, here["gateway"], GATEWAY, False),
        "an application asks the RAG service": (client, here["rag"], RAG, True),
        "an application asks a model": (client, here["model"], MODEL, True),
        "a model is fetched from the store": (here["model"], store, 9000, True),
        "a step writes to the store": (here["step"], store, 9000, True),
        "a job writes to the store": (here["job"], store, 9000, True),
        "a job's pods find each other": (here["job"], here["job"], 29500, True),
        "a step asks the API server": (here["step"], PRIVATE, 443, True),
        "the janitor asks the API server": (here["janitor"], PRIVATE, 443, True),
        "the rollout asks the API server": (here["rollout"], PRIVATE, 443, True),
        "the rollout asks Prometheus": (here["rollout"], outside("monitoring"), 9090, True),
        "the rollout reads a release": (here["rollout"], store, 9000, True),
        "Prometheus reads the rollout's numbers": (outside("monitoring"), here["rollout"], ROLLOUT, True),
        "the rollout asks a model": (here["rollout"], here["model"], MODEL, False),
        "the rollout asks the gateway": (here["rollout"], here["gateway"], GATEWAY, False),
        "an application asks the rollout": (client, here["rollout"], ROLLOUT, False),
        "a step tells KFP": (here["step"], outside("kubeflow"), 8887, True),
        "Prometheus reads a model's numbers": (outside("monitoring"), here["model"], MODEL, True),
        "Prometheus reads the gateway's numbers": (outside("monitoring"), here["gateway"], GATEWAY, True),
        "an application asks the gateway": (client, here["gateway"], GATEWAY, False),
        "a model asks the gateway": (here["model"], here["gateway"], GATEWAY, False),
        "the RAG service asks the gateway": (here["rag"], here["gateway"], GATEWAY, False),
        "a stranger asks the gateway": (here["stranger"], here["gateway"], GATEWAY, False),
        "an application asks a stranger": (client, here["stranger"], 80, False),
        "a stranger asks a model": (here["stranger"], here["model"], MODEL, False),
        "a stranger asks a stranger": (here["stranger"], here["stranger"], 80, False),
        "a job asks the API server": (here["job"], PRIVATE, 443, False),
        "a model asks at the ingress gateway": (here["model"], ingress, 8081, False),
        "a model asks the API server": (here["model"], PRIVATE, 443, False),
        "the gateway asks a cloud's metadata service": (here["gateway"], CLOUD, 80, False),
        "the gateway asks a private address": (here["gateway"], PRIVATE, 443, False),
        "the gateway goes out without TLS": (here["gateway"], INTERNET, 80, False),
        "another tenant asks the gateway": (pod("step", "qinglan-other"), here["gateway"], GATEWAY, False),
        "another tenant asks the RAG service": (pod("gateway", "qinglan-other"), here["rag"], RAG, False),
        "a step asks another tenant's gateway": (here["step"], pod("gateway", "qinglan-other"), GATEWAY, False),
    }


def ways_of_the_shadow(namespace: str, present: bool) -> dict[str, tuple[Place, Place, int, bool]]:
    """Connections of the shadow. Without it, a pod with its name has none."""
    here = {name: pod(name, namespace) for name in PODS}
    store, ingress = (outside(label, **{f"qinglan.dev/{label}": "true"}) for label in ("store", "ingress"))
    client = outside("app", **{"qinglan.dev/clients": "true"})
    return {
        "the shadow reads the payload log": (here["shadow"], store, 9000, present),
        "the shadow searches": (here["shadow"], here["rag"], RAG, present),
        "the shadow asks a canary by the ingress gateway": (here["shadow"], ingress, 8080, present),
        "the shadow asks a canary by a name of the cluster": (here["shadow"], ingress, 8081, present),
        "the shadow asks the API server": (here["shadow"], PRIVATE, 443, present),
        "Prometheus reads the shadow's numbers": (outside("monitoring"), here["shadow"], SHADOW, present),
        "the shadow asks a model's pod itself": (here["shadow"], here["model"], MODEL, False),
        "the shadow asks the gateway": (here["shadow"], here["gateway"], GATEWAY, False),
        "the shadow asks an application": (here["shadow"], client, 8080, False),
        "the shadow asks Prometheus": (here["shadow"], outside("monitoring"), 9090, False),
        "the shadow asks a cloud's metadata service": (here["shadow"], CLOUD, 80, False),
        "the shadow asks another tenant": (here["shadow"], pod("rag", "qinglan-other"), RAG, False),
        "an application asks the shadow": (client, here["shadow"], SHADOW, False),
        "a step asks the shadow": (here["step"], here["shadow"], SHADOW, False),
    }


def wrong_ways(policies: Sequence[Policy], namespace: str, shadow: bool = False) -> list[str]:
    """The promises that these policies break."""
    promises = ways(namespace) | ways_of_the_shadow(namespace, shadow)
    return [
        f"{message}: {'open' if not promised else 'closed'}"
        for message, (item, other, port, promised) in promises.items()
        if may_speak(policies, item, other, port) is not promised
    ]


def reaching_out(policies: Sequence[Policy], namespace: str) -> set[str]:
    """Pods that reach the internet, on any port."""
    ports = (80, 443, 6443, 8080, 9000)
    return {name for name in PODS if any(may_speak(policies, pod(name, namespace), INTERNET, port) for port in ports)}
