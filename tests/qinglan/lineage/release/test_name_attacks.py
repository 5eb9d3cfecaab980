"""Attacks of a writer of the store on a name's history and their exact findings, a row for each attack."""

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from commands.rollout.start import find_release
from components.release.register.config import RegisterConfig
from components.release.register.publish import current_digest, publish
from qinglan.errors import AlteredError, QinglanError
from qinglan.lineage.auditing.audit import audit
from qinglan.lineage.auditing.audit_targets import name_claim
from qinglan.lineage.signing.findings import State
from qinglan.lineage.signing.keys import Role, Signer, load_signer
from qinglan.lineage.signing.trust import Revocation, TrustPolicy, ensure_keys, load_trust, rotate_key
from qinglan.lineage.trace.name_moves import foreign_entry_fault, name_findings, sign_with
from qinglan.store import HistoryEntry, Store, open_store
from qinglan.store.name_history import SignEntry
from tests.qinglan.lineage import tampering as do
from tests.releases.registered_release import NAME, make_release, use_keys

OTHER = "fivedoctors/rewriter-small"


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class World(NamedTuple):
    """A store where NAME points to the second of two releases, and the keys."""

    root: Path
    digests: tuple[str, str]
    keys: Path
    foreign: Path

    @property
    def store(self) -> Store:
        return open_store(str(self.root))

    @property
    def policy(self) -> TrustPolicy:
        return load_trust(self.keys / "trust.yaml")

    def path(self, number: int, name: str = NAME) -> Path:
        return self.root / f"names/{name}/{number:06}.json"

    def signer(self, role: Role = "releaser", foreign: bool = False) -> Signer:
        return load_signer(role, self.foreign if foreign else self.keys)

    def rewrite(self, number: int, content: bytes) -> None:
        self.path(number).parent.mkdir(parents=True, exist_ok=True)
        self.path(number).unlink(missing_ok=True)
        self.path(number).write_bytes(content)

    def append(self, number: int, digest: str, sign: SignEntry | None = None, **fields: object) -> None:
        """An entry that follows the one before it, as a writer of the store can make it."""
        before = HistoryEntry.parse(self.path(number - 1).read_bytes(), "") if number > 1 else None
        values = {"digest": digest, "by": "gate", "time": utc_now(), "name": NAME, **fields}
        entry = HistoryEntry.model_validate({**values, "previous": before.sha256 if before else None})
        if sign:
            key, value = sign(entry.payload)
            entry = entry.model_copy(update={"key": key, "signature": value})
        self.rewrite(number, entry.dump())


@pytest.fixture(scope="module")
def first_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator["World"]:
    folder = tmp_path_factory.mktemp("names")
    with pytest.MonkeyPatch.context() as patch:
        keys = use_keys(folder / "keys", patch)
        ensure_keys(folder / "foreign")
        config = RegisterConfig(name=NAME, store=str(folder / "store"))
        digests = []
        for number, first in enumerate((0.5, 0.75)):
            release = make_release(folder / str(number), keys, NAME, first)
            publish(
                release.folder, release.registered.release, config, current_digest(config), load_signer("releaser")
            )
            digests.append(release.registered.release)
        yield World(folder / "store", (digests[0], digests[1]), keys, folder / "foreign")


@pytest.fixture
def world(first_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    shutil.copytree(first_world.root, tmp_path / "store")
    shutil.copytree(first_world.keys, tmp_path / "keys")
    return first_world._replace(root=tmp_path / "store", keys=use_keys(tmp_path / "keys", monkeypatch))


def rechained(sign: Callable[[World], SignEntry] | None) -> Callable[[World], None]:
    """The whole history anew: the old release first and last."""

    def attack(world: World) -> None:
        seal = sign(world) if sign else None
        for number in (1, 2):
            world.path(number).unlink()
        for number in (1, 2, 3):
            world.append(number, world.digests[0], seal)

    return attack


def changed(number: int, **fields: object) -> Callable[[World], None]:
    """An entry with other fields under its signature."""

    def attack(world: World) -> None:
        entry = HistoryEntry.parse(world.path(number).read_bytes(), "")
        world.rewrite(number, entry.model_copy(update=fields).dump())

    return attack


def pointed_back(**fields: object) -> Callable[[World], None]:
    """The newest entry with the release before, and other fields."""
    return lambda world: changed(2, digest=world.digests[0], **fields)(world)


def stripped(world: World) -> None:
    changed(2, signature="", key="", name="")(world)


def replayed(world: World) -> None:
    """The first entry's signature on an entry that follows the second."""
    first = HistoryEntry.parse(world.path(1).read_bytes(), "")
    world.append(
        3, world.digests[0], lambda payload: type(sign_with(world.signer())(b""))(first.key, first.signature)
    )


def copied_first(world: World) -> None:
    world.rewrite(3, world.path(1).read_bytes())


def other_names_history(world: World) -> None:
    """A releaser's entry for another name, laid under this one."""
    world.append(3, world.digests[0], sign_with(world.signer()), name=OTHER)


def deleted(*numbers: int) -> Callable[[World], None]:
    def attack(world: World) -> None:
        for number in numbers:
            world.path(number).unlink()

    return attack


def deleted_with_its_release(world: World) -> None:
    world.path(2).unlink()
    shutil.rmtree(world.root / "releases" / world.digests[1])
    (world.root / "releases" / f"{world.digests[1]}.json").unlink()


def appended(role: Role = "releaser", foreign: bool = False, **fields: object) -> Callable[[World], None]:
    return lambda world: world.append(3, world.digests[0], sign_with(world.signer(role, foreign)), **fields)


def posing(world: World) -> SignEntry:
    """A foreign key's signature under the releaser's id."""
    sign = sign_with(world.signer(foreign=True))
    return lambda payload: sign(payload)._replace(key=world.signer().id)


TOMORROW = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="milliseconds")
EARLY = "2020-01-01T00:00:00.000+00:00"
FORGED = "forged"
"""The state of a history that cannot be read."""

ROWS: list[tuple[str, Callable[[World], object], State | str, bool]] = [
    # name, attack, state in the audit, and whether register refuses to sign on top of it
    ("an entry appended without a signature", lambda w: w.append(3, w.digests[0]), "untrusted", True),
    ("an entry appended by an unknown key", appended(foreign=True), "untrusted", True),
    ("an entry appended by a builder", appended("builder"), "untrusted", True),
    ("an entry appended with a releaser's id and a foreign signature",
        lambda w: w.append(3, w.digests[0], posing(w)),
        "altered", True),
    ("an entry signed as a statement, not as an entry",
        lambda w: w.append(3, w.digests[0], lambda p: sign_with(w.signer())(p + b" ")), "altered", True),
    ("an entry of tomorrow", appended(time=TOMORROW), "altered", False),
    ("an entry from before the key", appended(time=EARLY), "untrusted", False),
    ("an entry that was signed for another name", other_names_history, "altered", True),
    ("the first entry's signature used again", replayed, "altered", True),
    ("the first entry copied to the end", copied_first, FORGED, True),
    ("the newest entry points back", pointed_back(), "altered", True),
    ("the newest entry's signature is no base64", changed(2, signature="%%%"), "altered", True),
    ("the newest entry loses its signature", stripped, "untrusted", True),
    ("the first entry changed", changed(1, by="周姐"), FORGED, True),
    ("the first entry deleted", deleted(1), FORGED, True),
    ("the newest entry deleted", deleted(2), "missing", False),
    ("the history chained anew by a foreign key", rechained(lambda w: sign_with(w.signer(foreign=True))),
        "untrusted", True),
    ("an entry that is no JSON", lambda w: w.rewrite(3, b"[" * 9999), FORGED, True),
    ("an entry with a field more", lambda w: w.rewrite(3, orjson.dumps({"digest": w.digests[0], "x": 1})),
        FORGED, True),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("attack, state, refused", [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_an_attack_on_a_history_is_named_by_the_audit(
    world: World, attack: Callable[[World], object], state: str, refused: bool
) -> None:
    attack(world)

    if state == FORGED:
        with pytest.raises(AlteredError, match=r"Do not trust where it points|by other means than ours"):
            audit(NAME, world.policy, store=str(world.root))
    else:
        result = audit(NAME, world.policy, store=str(world.root))
        named = {finding.state for finding in result.findings if finding.what == f"name {NAME}"}
        assert named == {state}
        assert result.verdict == ("incomplete" if state == "missing" else "altered")

    with pytest.raises(QinglanError):
        find_release(world.store, NAME, world.policy, [])
    config = RegisterConfig(name=NAME, store=str(world.root))
    if refused:
        with pytest.raises(QinglanError):
            current_digest(config)
    else:
        assert current_digest(config) is not None


def test_an_untouched_history_proves_where_its_name_points(world: World) -> None:
    result = audit(NAME, world.policy, store=str(world.root))

    assert [finding for finding in result.findings if finding.what.startswith("name ")] == []
    assert find_release(world.store, NAME, world.policy, []) == world.digests[1]
    assert [entry.key for entry in world.store.history(NAME)] == [world.signer().id] * 2


def brought(digest: str, name: str = NAME) -> dict[str, Any]:
    return {"metadata": {"name": "rewriter-1"}, "spec": {"release": {"name": name, "digest": digest}}}


def test_a_name_whose_newest_entries_and_releases_are_gone_starts_nothing_that_a_rollout_has_passed(
    world: World,
) -> None:
    deleted_with_its_release(world)
    assert find_release(world.store, NAME, world.policy, [brought(world.digests[0])]) == world.digests[0]

    with pytest.raises(AlteredError, match=f"rewriter-1 deployed {world.digests[1][:12]}, which the name's history"):
        find_release(world.store, NAME, world.policy, [brought(world.digests[1])])
    assert find_release(world.store, NAME, world.policy, [brought(world.digests[1], OTHER)]) == world.digests[0]
    assert find_release(world.store, world.digests[0], world.policy, [brought(world.digests[1])]) == world.digests[0]


def test_a_rotated_or_revoked_key_at_the_end_of_a_history_lets_register_go_on(world: World) -> None:
    policy, key = world.policy, world.signer().id
    revoked = policy.keys[key].model_copy(update={"revoked": Revocation(at=policy.keys[key].since, reason="lost")})
    assert find_release(world.store, NAME, policy, []) == world.digests[1]
    history = world.store.name(NAME)
    assert history is not None
    lost = TrustPolicy(keys={**policy.keys, key: revoked})
    assert [finding.state for finding in name_findings(name_claim(world.store, NAME), lost, datetime.now(UTC))] == [
        "untrusted"
    ]
    assert foreign_entry_fault(history, lost) == ""

    rotate_key(world.keys, "releaser")
    before = current_digest(RegisterConfig(name=NAME, store=str(world.root)))
    moved = world.store.point(NAME, world.digests[0], before, "a person", sign_with(world.signer()))
    assert find_release(world.store, NAME, world.policy, []) == world.digests[0]
    assert len(moved.history) == 3


def test_a_name_that_moved_under_a_clock_ahead_says_by_how_much_and_register_moves_it_again(world: World) -> None:
    later = (datetime.now(UTC) + timedelta(hours=3, seconds=9)).isoformat(timespec="milliseconds")
    world.append(3, world.digests[1], sign_with(world.signer()), time=later)

    [findings] = name_findings(name_claim(world.store, NAME), world.policy, datetime.now(UTC))

    assert "it is dated 3.0 h in the future" in findings.why and "moves the name again" in findings.why
    world.store.point(NAME, world.digests[1], world.digests[1], "gate", sign_with(world.signer()))
    assert find_release(world.store, NAME, world.policy, []) == world.digests[1]


def test_a_history_from_before_entries_were_signed_is_not_believed_until_register_signs_on_top(
    world: World,
) -> None:
    rechained(None)(world)
    history = world.store.name(NAME)
    assert history is not None and foreign_entry_fault(history, world.policy) == ""

    world.store.point(NAME, world.digests[1], world.digests[0], "gate", sign_with(world.signer()))

    assert find_release(world.store, NAME, world.policy, []) == world.digests[1]


def test_a_held_release_that_is_newer_than_a_name_is_no_removed_entry(world: World) -> None:
    deleted(2)(world)
    statement = world.root / "releases" / world.digests[1] / "provenance.dsse.json"
    statement.chmod(0o644)
    do.reseal(
        statement,
        world.signer(),
        lambda statement: statement["predicate"]["runDetails"]["byproducts"][0]["annotations"].update(verdict="none"),
    )

    assert name_findings(name_claim(world.store, NAME), world.policy, datetime.now(UTC)) == []
