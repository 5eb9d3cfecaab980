"""A rollout's history, signed and laid beside its release: what an audit makes of it, whoever has changed it."""

import base64
import logging
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from commands.rollout.history_verifier import verify_history
from commands.rollout.view import RolloutView
from qinglan.errors import AlteredError, ConfigError, IncompleteAuditError, OutageError
from qinglan.lineage.auditing.audit import Audit, as_json, audit
from qinglan.lineage.auditing.audit_page import page
from qinglan.lineage.auditing.terminal_tree import print_audit
from qinglan.lineage.release.release_notes import ROLLOUT_NOTE, sign_rollout
from qinglan.lineage.signing.keys import load_signer
from qinglan.lineage.signing.trust import TRUST_FILE, load_trust, new_key, revoke_key
from qinglan.store import Store, open_store
from serving.rollout.history import HistorySigner, history_record
from serving.rollout.ports import RolloutSnapshot
from serving.rollout.sequential import Count, Score
from serving.rollout.spec import RolloutSpec
from serving.rollout.state import StableRelease, State
from tests.releases.registered_release import NAME, SignedRelease, make_release, use_keys

WHERE = ("qinglan", "rewriter-3")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        yield make_release(folder / "release", use_keys(folder / "keys", patch))


@pytest.fixture
def store(built: SignedRelease, tmp_path: Path) -> Store:
    result = open_store(str(tmp_path / "store"))
    result.push(built.folder, built.registered.release)
    return result


@pytest.fixture
def keys(built: SignedRelease, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    copy = tmp_path / "keys"
    copy.mkdir()
    for path in built.keys.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    return copy


def entry(
    built: SignedRelease, store: Store, outcome: Any = "RolledBack", why: str = "errors: worse"
) -> RolloutSnapshot:
    release = {
        "name": NAME, "digest": built.registered.release, "model": "3" * 64,
        "uri": f"{store.address}/releases/{built.registered.release}",
    }  # fmt: skip
    spec = RolloutSpec.parse({"inferenceService": "rewriter", "release": release, "run": "a-run"}, "a test")
    score = Score(check="errors", margin=0.05, canary=Count(500, 30), stable=Count(9500, 20), until=1.0)
    state = State(
        phase="Analyse", evidence=(score,), stable=StableRelease(uri="s3://q/old", digest="1" * 64, model="4" * 64)
    )
    now = time.time() + 1  # a history's times are of whole seconds, and the key may be younger than one
    state = state.with_record(now - 60, "apply", "the canary starts").with_record(
        now, "roll back", why, with_figures=True
    )
    return RolloutSnapshot(
        spec, state.model_copy(update={"phase": "Done", "outcome": outcome, "reasons": (why,)}), "7"
    )


def audited(built: SignedRelease, store: Store, keys: Path) -> Audit:
    return audit(built.registered.release, load_trust(keys / TRUST_FILE), store=store.address)


def rollout_faults(hits: Audit) -> list[tuple[str, str]]:
    return [(finding.state, finding.why) for finding in hits.findings if finding.what.startswith("rollout ")]


def test_an_audit_of_the_release_tells_how_its_rollout_ended_and_who_signed_it(
    built: SignedRelease, store: Store, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    HistorySigner(keys).attach(*WHERE, entry(built, store))

    result = audited(built, store, keys)
    print_audit(result)

    [stored] = result.rollouts
    assert stored.is_trusted and rollout_faults(result) == []
    assert (stored.statement.rollout, stored.statement.outcome, stored.statement.spec["run"]) == (
        "qinglan/rewriter-3",
        "RolledBack",
        "a-run",
    )
    assert stored.statement.history[1]["figures"][0]["canary"] == [500, 30]
    signer = load_signer("rollout", keys).id
    output = capsys.readouterr().out
    assert "rollout qinglan/rewriter-3 to rewriter, RolledBack" in output and f"signed by key {signer[:8]}" in output
    assert as_json(result)["rollouts"][0]["statement"]["reasons"] == ("errors: worse",)
    assert "errors: worse" in (shown := page(result)) and f"key {signer[:8]}" in shown


def test_the_history_of_an_ended_rollout_is_stored_exactly_once(
    built: SignedRelease, store: Store, keys: Path
) -> None:
    item, history = entry(built, store), HistorySigner(keys)
    history.attach(*WHERE, item._replace(state=item.state.model_copy(update={"phase": "Rollback"})))
    assert store.notes(built.registered.release) == []

    for _ in range(3):
        history.attach(*WHERE, item)
    HistorySigner(keys).attach(*WHERE, item)
    assert len(store.notes(built.registered.release)) == 1


def test_without_a_key_nothing_is_kept_and_that_is_said_once(
    built: SignedRelease, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        history = HistorySigner(tmp_path / "nobodys")
        for _ in range(2):
            history.attach(*WHERE, entry(built, store))

    assert store.notes(built.registered.release) == []
    assert [record.message.count("not signed") for record in caplog.records] == [1]


def test_a_store_that_is_away_is_an_outage_and_a_release_that_is_not_there_is_none(
    built: SignedRelease, store: Store, keys: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = open_store(str(tmp_path / "away"))
    with pytest.raises(OutageError, match="cannot be kept now"):
        HistorySigner(keys).attach(*WHERE, entry(built, away))

    away.prepare()
    HistorySigner(keys).attach(*WHERE, entry(built, away))
    assert "its history is not kept" in caplog.text


def altered(note: bytes) -> bytes:
    """The same envelope, one word of its payload another."""
    body = orjson.loads(note)
    payload = base64.b64decode(body["payload"]).replace(b'"outcome":"RolledBack"', b'"outcome":"Promoted"')
    return orjson.dumps({**body, "payload": base64.b64encode(payload).decode()})


def test_a_changed_byte_of_a_stored_history_is_reported_as_altered(
    built: SignedRelease, store: Store, keys: Path, tmp_path: Path
) -> None:
    HistorySigner(keys).attach(*WHERE, entry(built, store))
    [file] = (tmp_path / "store/notes").rglob("rollout-*")
    content = file.read_bytes()
    for at in (5, len(content) // 2, len(content) - 5):
        file.chmod(0o644)
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        result = audited(built, store, keys)
        assert result.verdict == "altered"
        assert [(finding.what, finding.state) for finding in result.findings if "note" in finding.what] == [
            (f"note {file.name}", "altered")
        ]


def test_no_altered_history_counts_and_none_of_another_role_key_or_release(
    built: SignedRelease, store: Store, keys: Path, tmp_path: Path
) -> None:
    statement = history_record(*WHERE, entry(built, store))
    new_key(tmp_path / "stranger", "rollout")
    releaser, stranger = load_signer("releaser", keys), load_signer("rollout", tmp_path / "stranger")
    rollout_signer = load_signer("rollout", keys)
    notes = [
        sign_rollout(statement, releaser),
        sign_rollout(statement, stranger),
        sign_rollout(statement._replace(digest="9" * 64), rollout_signer),
        sign_rollout(statement._replace(name="chengla/rewriter"), rollout_signer),
        altered(sign_rollout(statement, rollout_signer)),
    ]
    for note in notes:
        store.attach(built.registered.release, ROLLOUT_NOTE, note)

    faults = rollout_faults(audited(built, store, keys))

    for state, word in (
        ("untrusted", "releaser's, and a rollout's is needed"), ("untrusted", "not in the trust policy"),
        ("altered", "stored beside another"), ("altered", "chengla"), ("altered", "not key"),
    ):  # fmt: skip
        assert [word in why for fault_state, why in faults if fault_state == state].count(True) == 1, faults


def test_a_key_that_was_revoked_before_counts_no_more(built: SignedRelease, store: Store, keys: Path) -> None:
    HistorySigner(keys).attach(*WHERE, entry(built, store))
    assert audited(built, store, keys).rollouts[0].is_trusted

    revoke_key(keys, load_signer("rollout", keys).id, "pod taken over", "2026-01-01T00:00:00Z")

    [(state, why)] = rollout_faults(audited(built, store, keys))
    assert state == "untrusted" and "pod taken over" in why


def shown(item: RolloutSnapshot) -> RolloutView:
    return RolloutView(WHERE[1], WHERE[0], "", True, item.spec, item.state)


def test_the_api_servers_history_is_compared_with_the_signed_one(
    built: SignedRelease, store: Store, keys: Path, tmp_path: Path
) -> None:
    item, policy = entry(built, store), load_trust(keys / TRUST_FILE)
    with pytest.raises(IncompleteAuditError, match="no signed history is beside"):
        verify_history(shown(item), "", policy)
    HistorySigner(keys).attach(*WHERE, item)

    assert verify_history(shown(item), "", policy).key == load_signer("rollout", keys).id
    first, *more = item.state.history
    later = first.model_copy(update={"at": "2026-11-23T00:00:00+00:00"})
    anew = item._replace(state=item.state.model_copy(update={"history": (later, *more)}))
    with pytest.raises(IncompleteAuditError, match="no signed history is beside"):
        verify_history(shown(anew), "", policy)  # the same name, a later rollout
    other = item.state.model_copy(update={"outcome": "Promoted"})
    with pytest.raises(AlteredError, match="differs from the signed one"):
        verify_history(shown(item._replace(state=other)), "", policy)
    with pytest.raises(ConfigError, match="when the rollout has ended"):
        verify_history(shown(item._replace(state=State(phase="Analyse"))), "", policy)
    [file] = (tmp_path / "store/notes").rglob("rollout-*")
    file.chmod(0o644)
    file.write_bytes(b"garbage")
    with pytest.raises(AlteredError, match="was changed after it was put beside"):
        verify_history(shown(item), "", policy)
