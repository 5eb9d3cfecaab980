"""Sources of the cluster: programs of Go modules, and the manifests in the same modules.

A folder under go/ pins one module graph with go.mod and go.sum. The programs do not share one: KWOK breaks on the
Kubernetes libraries of the API server, and Knative on the telemetry of KServe.
"""

from typing import NamedTuple

KUBERNETES, KSERVE, TRAINING = (
    "k8s.io/kubernetes",
    "github.com/kserve/kserve",
    "github.com/kubeflow/training-operator",
)
KWOK, SERVING, OPERATOR = (
    "sigs.k8s.io/kwok",
    "knative.dev/serving",
    "github.com/prometheus-operator/prometheus-operator",
)


class Change(NamedTuple):
    """Text that must stand in a program's source exactly once, and what stands there instead."""

    old: str
    new: str


class Source(NamedTuple):
    """A main.go copied out of its module and changed."""

    module: str
    path: str
    changes: tuple[Change, ...]


class Copied(NamedTuple):
    """Files of a Go module, kept under a name of ours."""

    module: str
    files: tuple[str, ...]
    folder: str


class Module(NamedTuple):
    programs: dict[str, str]
    """Each program with its package; "." is a main.go of this folder."""
    source: Source | None = None
    manifests: tuple[Copied, ...] = ()
    flags: tuple[str, ...] = ()
    stamped: tuple[str, tuple[str, ...]] | None = None
    """A Go module, and the variables that its version is linked into."""


# A certificate folder of our choice and an address: upstream has a flag for neither, and listens everywhere.
LOOPBACK = """
\t\t\tHost: "127.0.0.1",
\t\t\tCertDir: os.Getenv("WEBHOOK_CERT_DIR"),"""

# training-operator makes its webhook's certificate itself, into a fixed folder, from a Secret that a kubelet mounts.
# There is no kubelet, and the certificate is ours: the rotation goes, and who waits for it waits no longer.
ROTATION = """\tdefer close(certsReady)
\tcertGenerationConfig := cert.Config{
\t\tWebhookSecretName:  webhookSecretName,
\t\tWebhookServiceName: webhookServiceName,
\t}
\tif err = cert.ManageCerts(mgr, certGenerationConfig, certsReady); err != nil {
\t\tsetupLog.Error(err, "Unable to set up cert rotation")
\t\tos.Exit(1)
\t}
"""

MODULES = {
    "etcd": Module({"etcd": "go.etcd.io/etcd/server/v3"}),
    "k8s": Module(
        {
            name: f"{KUBERNETES}/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
        },
        # Without it the server says v0.0.0-master, which kubectl cannot read.
        stamped=(KUBERNETES, ("k8s.io/component-base/version.gitVersion", "k8s.io/client-go/pkg/version.gitVersion")),
    ),
    "kwok": Module(
        {"kwok": f"{KWOK}/cmd/kwok"},
        manifests=(
            Copied(KWOK, ("kustomize/rbac/role.yaml", "kustomize/rbac/role_binding.yaml"), "rbac"),
            Copied(KWOK, ("kustomize/rbac/service_account.yaml",), "rbac"),
            Copied(KWOK, ("kustomize/stage/node/fast/node-initialize.yaml",), "stages"),
            Copied(KWOK, ("kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",), "stages"),
        ),
    ),
    "kserve": Module(
        {"kserve-manager": f"{KSERVE}/cmd/manager"},
        Source(
            KSERVE,
            "cmd/manager/main.go",
            (Change("\t\t\tPort: options.webhookPort,", "\t\t\tPort: options.webhookPort," + LOOPBACK),),
        ),
        (
            Copied(KSERVE, ("config/crd/full/*_*.yaml", "config/crd/full/clusterstoragecontainer/*_*.yaml"), "crds"),
            Copied(KSERVE, ("config/crd/full/localmodel/*_*.yaml",), "crds"),
            Copied(KSERVE, tuple(f"test/crds/gatewayapi_{it}.yaml" for it in ("gateway*", "httproute")), "crds"),
            Copied(
                KSERVE, tuple(f"config/rbac/{it}.yaml" for it in ("service_account", "role", "role_binding")), "rbac"
            ),
            Copied(KSERVE, ("config/rbac/leader_election_role*.yaml",), "rbac"),
            Copied(KSERVE, ("config/webhook/manifests.yaml",), "webhooks"),
        ),
    ),
    "knative": Module(
        {"knative-controller": "."},
        manifests=(
            Copied(SERVING, ("config/core/300-resources/*.yaml",), "crds"),
            Copied(
                "knative.dev/networking",
                tuple(f"config/{it}.yaml" for it in ("certificate", "domain-claim", "ingress", "serverlessservice")),
                "crds",
            ),
            Copied("knative.dev/caching", ("config/image.yaml",), "crds"),
            Copied(SERVING, ("config/core/200-serviceaccount.yaml", "config/core/200-roles/*.yaml"), "rbac"),
        ),
    ),
    "training-operator": Module(
        {"training-operator": f"{TRAINING}/cmd/training-operator.v1"},
        Source(
            TRAINING,
            "cmd/training-operator.v1/main.go",
            (
                Change("\t\t\tPort: webhookServerPort,", "\t\t\tPort: webhookServerPort," + LOOPBACK),
                Change(ROTATION, "\tclose(certsReady)\n\t_, _ = webhookServiceName, webhookSecretName\n"),
                Change(f'\t"{TRAINING}/pkg/cert"\n', ""),
            ),
        ),
        (
            Copied(TRAINING, ("manifests/base/crds/kubeflow.org_pytorchjobs.yaml",), "crds"),
            Copied(TRAINING, ("manifests/base/rbac/*.yaml",), "rbac"),
            Copied(TRAINING, ("manifests/base/webhook/manifests.yaml",), "webhooks"),
        ),
    ),
    "minio": Module({"minio": "github.com/minio/minio"}),
    # Scrapes what tests serve, and checks alerting rules; the clouds that it finds targets in are left out of it.
    "prometheus": Module(
        {name: f"github.com/prometheus/prometheus/cmd/{name}" for name in ("prometheus", "promtool")},
        flags=("-tags=remove_all_sd",),
    ),
    # No program: its kinds only, so that monitors and rules have a schema to be checked against.
    "prometheus-operator": Module(
        {},
        manifests=(
            Copied(
                OPERATOR,
                tuple(
                    f"example/prometheus-operator-crd/monitoring.coreos.com_{it}.yaml"
                    for it in ("servicemonitors", "podmonitors", "prometheusrules")
                ),
                "crds",
            ),
        ),
    ),
}


def module_of(program: str) -> str:
    return next(name for name, module in MODULES.items() if program in module.programs)
