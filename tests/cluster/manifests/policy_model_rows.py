"""Rows of the policy table about models: what is served, by which release, and through which objects."""

# ruff: noqa: F403, F405 - the two modules are the table's vocabulary
from tests.cluster.manifests.policy_actions import *
from tests.cluster.manifests.policy_objects import *
from tests.manifests.manifest_objects import Object

NEW = "2" * 64
RELEASE = f"s3://qinglan/fivedoctors/releases/{NEW}"
FRAMEWORKS = ("sklearn", "xgboost", "tensorflow", "triton", "onnx", "huggingface", "pmml", "lightgbm", "paddle")
WAYS: dict[str, Object] = {
    "storageUri": {"predictor": {"model": {"storageUri": f"s3://qinglan/fivedoctors/releases/{NEW}"}}},
    "a canary": {
        "canary": [
            {"trafficPercent": 100, "predictor": {"name": "c", "model": {
                "name": "", "modelFormat": {"name": "qinglan-rewriter-adapter"}, "runtime": "qinglan-rewriter-vllm",
                "storageUri": f"s3://qinglan/fivedoctors/releases/{NEW}"}, "storageContainerName": "qinglan-release"}}
        ]
    },
    "storageUris": {"predictor": {"storageUris": [{"uri": f"s3://q/releases/{NEW}", "mountPath": "/mnt/models"}]}},
    "model.storage": {"predictor": {"model": {"storageUri": None, "storage": {"path": "other"}}}},
    "containers": {"predictor": {"containers": [{"name": "kserve-container", "image": "evil"}]}},
    "a framework's own field": {"predictor": {"model": None, "pytorch": {"storageUri": "s3://evil/model"}}},
    "a transformer": {"transformer": {"containers": [{"name": "kserve-container", "image": "evil"}]}},
    "another runtime": {"predictor": {"model": {"runtime": "qinglan-rewriter-cpu"}}},
    "an image": {"predictor": {"model": {"image": "evil"}}},
    "arguments": {"predictor": {"model": {"args": ["--model=/evil"]}}},
    "another account": {"predictor": {"serviceAccountName": "stranger"}},
    "canaryTrafficPercent": {"predictor": {"canaryTrafficPercent": 50}},
    "another storage initialiser": {"predictor": {"storageContainerName": "evil"}},
    "an init container": {"predictor": {"initContainers": [{"name": "first", "image": "evil"}]}},
    "environment": {"predictor": {"model": {"env": [{"name": "HF_HUB_OFFLINE", "value": "0"}]}}},
    "an explainer": {"explainer": {"containers": [{"name": "kserve-container", "image": "evil"}]}},
    "workers": {"predictor": {"workerSpec": {"pipelineParallelSize": 2}}},
    **{
        f"the field {name}": {"predictor": {"model": None, name: {"storageUri": f"s3://q/releases/{NEW}"}}}
        for name in FRAMEWORKS
    },
}  # fmt: skip


def model_uri(uri: str) -> Object:
    return {"predictor": {"model": {"storageUri": uri}}}


UNPINNED: dict[str, Object] = {
    **{uri: model_uri(uri) for uri in (
        "s3://models/latest", f"s3://qinglan/releases/{NEW[:-1]}", f"s3://qinglan/releases/{NEW}/../latest",
        f"https://evil/releases/{NEW}", "pvc://claim/model", f"{RELEASE}/model", f"{RELEASE}/",
    )},
    **{name: WAYS[name] for name in (
        "storageUris", "model.storage", "containers", "a framework's own field", "a transformer", "an image",
        "arguments", "an init container", "another storage initialiser",
    )},
    "KServe's own storage initialiser": {"predictor": {"storageContainerName": None}},
    "a canary of another name": {"canary": [{"trafficPercent": 10, "predictor": {
        "name": "c", "model": {"name": "", "modelFormat": {"name": "qinglan-rewriter-adapter"},
                               "storageUri": "s3://models/latest"}}}]},
}  # fmt: skip
"""Changes that serve a model which no release's digest names."""

POD = {"spec": {"template": {"spec": {"containers": [{"name": "kserve-container", "image": DIGEST}]}}}}
ROUTE = {"rules": [{"backendRefs": [{"name": "evil", "port": 80}]}]}
BEHIND: dict[str, tuple[str, str, Object, str]] = {
    "the Deployment's image": ("deployment", "rewriter-predictor", POD, PART),
    "the Deployment's labels": ("deployment", "rewriter-predictor", {"metadata": {"labels": {"app": None}}}, PART),
    "the Service's selector": ("service", "rewriter-predictor", {"spec": {"selector": {"app": "evil"}}}, CONTROLLERS),
    "the Service's kind": ("service", "rewriter-predictor", {"spec": {"externalName": "evil.example"}}, CONTROLLERS),
    "Knative's service": ("ksvc", "serverless-predictor", POD, CONTROLLERS),
    "Knative's configuration": ("configuration.serving.knative.dev", "serverless-predictor", POD, CONTROLLERS),
    "Knative's route": ("route.serving.knative.dev", "serverless-predictor", {"spec": {"traffic": []}}, CONTROLLERS),
    "the HTTPRoute": ("httproute", "rewriter", {"spec": ROUTE}, CONTROLLERS),
}  # fmt: skip
"""Changes of the objects that KServe makes for a model."""

OF_THE_MODEL = template({"app": "isvc.rewriter-predictor"})
BESIDE: dict[str, tuple[Object, str]] = {
    **{f"a {kind} behind the model's Service": (workload(kind, "other", OF_THE_MODEL), PART)
       for kind in ("Pod", "Deployment", "Job")},
    "a pod with KServe's label": (
        workload("Pod", "other", template({"serving.kserve.io/inferenceservice": "rewriter"})), PART),
    "an address": (thing(
        "EndpointSlice", "other", "discovery.k8s.io/v1", addressType="IPv4",
        endpoints=[{"addresses": ["10.9.9.9"]}], ports=[{"port": 8080}]), CONTROLLERS),
    "an address in the old form": (thing(
        "Endpoints", "other", subsets=[{"addresses": [{"ip": "10.9.9.9"}], "ports": [{"port": 8080}]}]), CONTROLLERS),
    "a route": (thing("HTTPRoute", "other", "gateway.networking.k8s.io/v1", spec=ROUTE), CONTROLLERS),
    "a service of Knative": (thing("Service", "other", "serving.knative.dev/v1", spec=POD["spec"]), CONTROLLERS),
}  # fmt: skip
"""Objects by which users would reach another model."""

LIE: Object = {"status": {"components": {"predictor": {"latestReadyRevision": "other"}}}}
TRUST: Object = {"data": {"trust.yaml": "keys: {evil: true}"}}

WITHOUT_DIGESTS = [
    Row(account, f"another model by {field}", merge("isvc", "rewriter", {"spec": change}), ONLY_THE_ROLLOUT)
    for field, change in WAYS.items()
    for account in (STRANGER, ADMIN)
]
"""Tried without the policy on digests, which refuses most of these ways, too."""

MODELS = [
    Row(ROLLOUT_ACCOUNT, "another release", merge("isvc", "rewriter", {"spec": model_uri(RELEASE)}), ADMITTED),
    Row(ROLLOUT_ACCOUNT, "a canary", merge("isvc", "rewriter", {"spec": WAYS["a canary"]}), ADMITTED),
    *(Row(ROLLOUT_ACCOUNT, what, merge("isvc", "rewriter", {"spec": change}), BY_DIGEST)
      for what, change in UNPINNED.items()),
    Row("default/qinglan-rollout", "another release", merge("isvc", "rewriter", {"spec": model_uri(RELEASE)}),
        "cannot patch"),
    *(Row(STRANGER, f"KServe's annotation {name}",
          merge("isvc", "rewriter", {"metadata": {"annotations": {name: value}}}),
          "may change annotations of serving.kserve.io")
      for name, value in (
          ("serving.kserve.io/storageSecretName", "other"), ("serving.kserve.io/autoscalerClass", None),
          ("internal.serving.kserve.io/storage-initializer-sourceuri", "s3://evil/model"))),
    *(Row(account, "another model", create(isvc("second")), answer) for account, answer in (
        (STRANGER, ONLY_THE_ROLLOUT), (ADMIN, ONLY_THE_ROLLOUT), (PIPELINE, "cannot create"))),
    Row(STRANGER, "the model gone", delete("isvc", "rewriter"), "takes rewriter away"),
    *(Row(account, what, merge(kind, name, change), answer)
      for what, (kind, name, change, answer) in BEHIND.items() for account in (STRANGER, ADMIN)),
    *(Row(account, what, create(manifest), answer)
      for what, (manifest, answer) in BESIDE.items() for account in (STRANGER, ADMIN)),
    *(Row(account, what, action, answer) for account in (STRANGER, ADMIN) for what, action, answer in (
        ("the model at rest", scale("rewriter-predictor"), CONTROLLERS),
        ("the model's label on a running pod", merge("pod", RAG, {"metadata": {"labels": MODEL}}), PART),
        ("a container in the model's pod", patch("pod", PREDICTOR, PLAIN, "ephemeralcontainers"), PART),
        ("the model's status", merge("isvc", "rewriter", LIE, "status"), "controllers from its InferenceService"),
        ("a rollout's status", merge("modelrollouts", "rewriter-1", DONE, "status"),
         "only qinglan/qinglan-rollout writes down what rewriter-1 has come to"))),
    # Runtimes and trusted keys.
    *(Row(account, f"{name} changed", merge(kind, name, change), answer)
      for kind, name, change in (
          ("servingruntime", "qinglan-rewriter-vllm", {"spec": {"disabled": True}}),
          ("configmap", "qinglan-trust", TRUST))
      for account, answer in (
          (STRANGER, PLATFORM), (ROLLOUT_ACCOUNT, "cannot patch"), (PIPELINE, "cannot patch"),
          (SERVING, "cannot patch"), (ADMIN, ADMITTED))),
    Row(STRANGER, "a runtime gone", delete("servingruntime", "qinglan-rewriter-vllm"), PLATFORM),
    Row(STRANGER, "the trusted keys gone", delete("configmap", "qinglan-trust"), PLATFORM),
    # Steps ask for rollouts; the controller carries them out.
    Row(PIPELINE, "a rollout's pause", merge("modelrollouts", "rewriter-1", {"spec": {"paused": True}}),
        "cannot patch"),
    Row(PIPELINE, "a rollout gone", delete("modelrollouts", "rewriter-1"), "cannot delete"),
    Row(ROLLOUT_ACCOUNT, "another lease", merge("lease", "other", {"spec": {"holderIdentity": "a"}}), "cannot patch"),
    Row(ROLLOUT_ACCOUNT, "a rollout's spec", merge("modelrollouts", "rewriter-1", {"spec": {"paused": True}}),
        "cannot patch"),
    Row(ROLLOUT_ACCOUNT, "the model gone", delete("isvc", "rewriter"), "cannot delete"),
]  # fmt: skip
