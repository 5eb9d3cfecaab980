"""Certificates made on the spot: an authority of the cluster's own, what servers show, and who its clients are."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = datetime.timedelta(days=30)
HOSTS = ("localhost", *(f"kubernetes{end}" for end in ("", ".default", ".default.svc", ".default.svc.cluster.local")))
ADDRESSES = ("127.0.0.1", "::1", "10.96.0.1")
ADMIN = "admin"

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: qinglan
clusters: [{{name: qinglan, cluster: {{server: "{server}", certificate-authority: "{folder}/ca.crt"}}}}]
users: [{{name: {name}, user: {{client-certificate: "{folder}/{name}.crt", client-key: "{folder}/{name}.key"}}}}]
contexts: [{{name: qinglan, context: {{cluster: qinglan, user: {name}}}}}]
"""


class Client(NamedTuple):
    user: str
    groups: tuple[str, ...] = ()


def account(namespace: str, name: str) -> Client:
    """A client that is authorised exactly like a service account, so that upstream's RBAC applies as it is."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return Client(f"system:serviceaccount:{namespace}:{name}", groups)


CLIENTS = {
    ADMIN: Client("admin", ("system:masters",)),
    "kube-controller-manager": Client("system:kube-controller-manager"),
    "kube-scheduler": Client("system:kube-scheduler"),
    "kwok": account("kube-system", "kwok-controller"),
    "kserve": account("kserve", "kserve-controller-manager"),
    "knative": account("knative-serving", "controller"),
    "training-operator": account("kubeflow", "training-operator"),
}


class Authority(NamedTuple):
    name: x509.Name
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def make(folder: Path, server: str) -> None:
    """Everything under `folder`: ca.crt, tls.crt and tls.key, sa.key and sa.pub, and a kubeconfig of each client."""
    folder.mkdir(parents=True, mode=0o700)
    authority = _authority()
    (folder / "ca.crt").write_bytes(_pem(authority.certificate))
    names = [*map(x509.DNSName, HOSTS), *(x509.IPAddress(ipaddress.ip_address(it)) for it in ADDRESSES)]
    shown = x509.SubjectAlternativeName(names)
    _issue(folder / "tls", authority, _name("localhost"), [ExtendedKeyUsageOID.SERVER_AUTH], shown)
    _signing_key(folder)
    for name, client in CLIENTS.items():
        subject = _name(client.user, client.groups)
        _issue(folder / name, authority, subject, [ExtendedKeyUsageOID.CLIENT_AUTH])
        (folder / f"{name}.kubeconfig").write_text(KUBECONFIG.format(server=server, folder=folder, name=name))


def _authority() -> Authority:
    key, name = ec.generate_private_key(ec.SECP256R1()), _name("qinglan-cluster-ca")
    certificate = _builder(name, name, key.public_key()).add_extension(
        x509.BasicConstraints(True, None), critical=True
    )
    return Authority(name, key, certificate.sign(key, hashes.SHA256()))


def _issue(
    path: Path, authority: Authority, subject: x509.Name, uses: Sequence[x509.ObjectIdentifier],
    shown: x509.ExtensionType | None = None,
) -> None:  # fmt: skip
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(subject, authority.name, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    if shown is not None:
        builder = builder.add_extension(shown, critical=False)
    path.with_suffix(".crt").write_bytes(_pem(builder.sign(authority.key, hashes.SHA256())))
    _keep(path.with_suffix(".key"), key)


def _signing_key(folder: Path) -> None:
    """What the tokens of service accounts are signed with."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _keep(folder / "sa.key", key)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    (folder / "sa.pub").write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return x509.CertificateBuilder(
        issuer, subject, key, x509.random_serial_number(), now - datetime.timedelta(minutes=5), now + LIFE
    )


def _name(user: str, groups: Sequence[str] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    return x509.Name([*parts, *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _keep(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.touch(mode=0o600)
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
