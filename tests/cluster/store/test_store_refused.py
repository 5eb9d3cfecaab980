"""A store that the server refuses: each time a message with the next step, and nothing half-published."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from minio import Minio as Client
from minio import MinioAdmin
from minio.credentials.providers import StaticProvider

from qinglan.errors import ConfigError, OutageError, QinglanError
from qinglan.files.digests import digest
from qinglan.store import Store, open_store
from qinglan.store.backend import MIN_PART_SIZE
from tests.cluster.servers import Minio
from tests.cluster.store.s3_proxy import Answer, Proxy, Request, proxy

NAMES = itertools.count()
TENANT = "s3://{bucket}/tenants/fivedoctors"
OF_THE_BUCKET = ["s3:ListBucket", "s3:GetBucketLocation"]
OF_OBJECTS = ["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"]


class World:
    """A bucket, an artifact with a file of two parts, and users as an operator would make them."""

    def __init__(self, s3: Minio, folder: Path) -> None:
        self.s3, self.bucket = s3, f"refused-{next(NAMES)}"
        host = s3.endpoint.removeprefix("http://")
        self.client = Client(host, s3.key, s3.secret, secure=False)
        self.admin = MinioAdmin(endpoint=host, credentials=StaticProvider(s3.key, s3.secret), secure=False)
        self.client.make_bucket(self.bucket)
        self.address = TENANT.format(bucket=self.bucket)
        (folder / "artifact").mkdir()
        self.artifact = folder / "artifact"
        (self.artifact / "small").write_text("small")
        (self.artifact / "large").write_bytes(bytes(MIN_PART_SIZE) + b"and more")
        self.digest = digest(self.artifact)

    def store(self, environment: dict[str, str] | None = None) -> Store:
        return open_store(self.address, environment or self.s3.environment)

    def user(self, statements: list[dict[str, object]]) -> dict[str, str]:
        """The environment of a user with these rights alone."""
        name = f"user-{next(NAMES)}"
        self.admin.user_add(name, "a-long-secret")
        self.admin.policy_add(name, policy={"Version": "2012-10-17", "Statement": statements})
        self.admin.policy_set(name, user=name)
        return {**self.s3.environment, "AWS_ACCESS_KEY_ID": name, "AWS_SECRET_ACCESS_KEY": "a-long-secret"}

    def tenant(self, name: str) -> dict[str, str]:
        """As the documentation of the store tells an operator to: one prefix and nothing else."""
        bucket = f"arn:aws:s3:::{self.bucket}"
        under = {"StringLike": {"s3:prefix": [f"tenants/{name}/*"]}}
        return self.user([
            {"Effect": "Allow", "Action": OF_THE_BUCKET[:1], "Resource": [bucket], "Condition": under},
            {"Effect": "Allow", "Action": OF_THE_BUCKET[1:], "Resource": [bucket]},
            {"Effect": "Allow", "Action": OF_OBJECTS, "Resource": [f"{bucket}/tenants/{name}/*"]},
        ])  # fmt: skip

    def nothing_was_published(self) -> None:
        assert not self.store().has(self.digest)
        assert list(self.store().names()) == []

    def push_is_refused(self, kind: type[QinglanError], text: str, environment: dict[str, str] | None = None) -> None:
        with pytest.raises(kind, match=text):
            self.store(environment).push(self.artifact, self.digest)
        self.nothing_was_published()


@pytest.fixture
def world(s3: Minio, tmp_path: Path) -> World:
    return World(s3, tmp_path)


@pytest.fixture
def proxied(s3: Minio) -> Iterator[Proxy]:
    with proxy(s3.endpoint) as server:
        yield server


def through(proxied: Proxy, world: World) -> dict[str, str]:
    return {**world.s3.environment, "QINGLAN_S3_ENDPOINT": proxied.endpoint}


def test_a_full_bucket_says_so_and_what_was_sent_is_kept(world: World, tmp_path: Path) -> None:
    world.admin.bucket_quota_set(world.bucket, 1 << 20)

    world.push_is_refused(OutageError, "no room left .*quota raised, and push again: what was sent is kept")

    world.admin.bucket_quota_clear(world.bucket)
    world.store().push(world.artifact, world.digest)
    assert digest(world.store().pull(world.digest, tmp_path / "back")) == world.digest


@pytest.mark.parametrize("when", [lambda request: request.part == 2, lambda request: request.path.endswith(".json")])
def test_a_full_disk_says_so_wherever_it_comes(
    world: World, proxied: Proxy, tmp_path: Path, when: Callable[[Request], bool]
) -> None:
    full = Answer(507, "XMinioStorageFull")
    proxied.meddle = lambda request: full if request.method == "PUT" and when(request) else None

    world.push_is_refused(OutageError, "no room left", through(proxied, world))

    proxied.meddle = lambda request: None
    world.store(through(proxied, world)).push(world.artifact, world.digest)
    assert digest(world.store().pull(world.digest, tmp_path / "back")) == world.digest


def test_a_user_who_may_only_read_is_told_which_rights_are_missing(world: World, tmp_path: Path) -> None:
    bucket = f"arn:aws:s3:::{world.bucket}"
    reader = world.user([
        {"Effect": "Allow", "Action": OF_THE_BUCKET, "Resource": [bucket]},
        {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": [f"{bucket}/*"]},
    ])  # fmt: skip

    world.push_is_refused(ConfigError, "AccessDenied .*Let this key do .*PutObject", reader)

    world.store().push(world.artifact, world.digest)
    assert digest(world.store(reader).pull(world.digest, tmp_path / "back")) == world.digest
    with pytest.raises(ConfigError, match="AccessDenied"):
        world.store(reader).point("fivedoctors/rewriter", world.digest, expected=None, by="a reader")
    assert list(world.store().names()) == []


def test_a_server_that_is_busy_for_a_while_is_waited_for(world: World, proxied: Proxy, tmp_path: Path) -> None:
    busy = itertools.count()
    proxied.meddle = lambda request: Answer(503, "SlowDown") if request.part and next(busy) < 3 else None

    world.store(through(proxied, world)).push(world.artifact, world.digest)

    assert digest(world.store().pull(world.digest, tmp_path / "back")) == world.digest


def test_a_manifest_that_was_refused_leaves_an_artifact_that_nobody_sees(
    world: World, proxied: Proxy, tmp_path: Path
) -> None:
    proxied.meddle = lambda request: (
        Answer(503, "SlowDown") if request.method == "PUT" and request.path.endswith(f"{world.digest}.json") else None
    )

    world.push_is_refused(OutageError, "SlowDown", through(proxied, world))

    proxied.meddle, proxied.requests = (lambda request: None), []
    world.store(through(proxied, world)).push(world.artifact, world.digest)
    assert not any(request.part for request in proxied.requests)


def test_a_tenants_key_reaches_its_own_prefix_and_no_other(world: World, tmp_path: Path) -> None:
    own_key, other = world.tenant("fivedoctors"), world.tenant("chengla")
    name = "fivedoctors/rewriter"

    store = world.store(own_key)
    store.push(world.artifact, world.digest)
    store.point(name, world.digest, expected=None, by="gate")
    assert digest(store.pull(world.digest, tmp_path / "back")) == world.digest
    assert list(store.names()) == [name]

    foreign = world.store(other)
    for ask in (
        lambda: foreign.has(world.digest), lambda: foreign.name(name), lambda: list(foreign.digests()),
        lambda: foreign.push(world.artifact, world.digest), lambda: foreign.pull(world.digest, tmp_path / "theirs"),
        lambda: foreign.point(name, world.digest, expected=world.digest, by="another"),
        lambda: foreign.attach(world.digest, "break-glass", b"!"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="AccessDenied"):
            ask()
    at_home = open_store(f"s3://{world.bucket}/tenants/chengla", other)
    assert not at_home.has(world.digest)
    assert at_home.name(name) is None


def test_policies_are_what_the_documentation_says(world: World) -> None:
    """The rights of the tests above, and those that a message and the docstring name, are the same."""
    from qinglan import store
    from qinglan.store.s3_connection import RIGHTS

    for right in OF_THE_BUCKET + OF_OBJECTS:
        assert right.removeprefix("s3:") in RIGHTS
        assert right.removeprefix("s3:") in (store.__doc__ or "")
