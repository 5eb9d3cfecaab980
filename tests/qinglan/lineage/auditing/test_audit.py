"""A run's folder and a release's, whole, copied, changed: what an audit says of each."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from pipelines.lines.all_lines import ARTIFACT_FILES
from qinglan.errors import AlteredError, ConfigError, DataError, IncompleteAuditError
from qinglan.files.digests import digest
from qinglan.lineage.auditing.audit import Audit, as_json, audit, audit_error
from qinglan.lineage.auditing.audit_targets import shown_name
from qinglan.lineage.trace.name_moves import sign_with
from qinglan.llm.paid.journal import APPLICATION_ID, SCHEMA, SCHEMA_VERSION
from qinglan.store import open_store
from tests.releases.lineage_release import write_release
from tests.releases.lineage_world import NOW, Keys, call_named, request_named, write_run

pytestmark = pytest.mark.usefixtures("no_release_check")


@pytest.fixture
def run(tmp_path: Path, keys: Keys) -> Path:
    return write_run(tmp_path / "run", keys)


def of(target: Path, keys: Keys, **options: object) -> Audit:
    return audit(str(target), keys.policy, now=NOW, **options)  # type: ignore[arg-type]


def found_states(audited: Audit) -> list[tuple[str, str]]:
    return [(finding.what.split()[0], finding.state) for finding in audited.findings]


def states(audited: Audit) -> dict[str, str]:
    return {thing.name: thing.state for thing in audited.graph.things.values()}


def write_journal(path: Path, answers: dict[str, bytes]) -> None:
    with sqlite3.connect(path) as database:
        database.executescript(SCHEMA)
        database.execute(f"PRAGMA application_id={APPLICATION_ID}")
        database.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        for name, response in answers.items():
            row = (call_named(name), "m", 0, request_named(name), "answered", response)
            database.execute(
                "INSERT INTO calls (key, model, sample, request, state, response) VALUES (?,?,?,?,?,?)", row
            )
            database.execute(
                "INSERT INTO attempts (call, step, row, role, sent_at, reserved, outcome, cost)"
                " VALUES (?, 'generate', ?, 'teacher', 0, 0, 'answered', 0.01)", (call_named(name), name)
            )  # fmt: skip
            database.execute(
                "INSERT INTO entries (step, row, role, call, hits) VALUES ('generate', ?, 'teacher', ?, 0)",
                (name, call_named(name)),
            )
    database.close()


def test_a_run_is_intact_and_all_its_bytes_verified(run: Path, keys: Keys) -> None:
    result = of(run, keys)

    assert (result.verdict, result.findings, result.tenant) == ("intact", (), "fivedoctors")
    assert states(result) == dict.fromkeys(("sft_model", "rewrites", "questions", "journal"), "verified")
    assert audit_error(result) is None


def test_a_copied_run_is_looked_at_where_it_lies_now(run: Path, keys: Keys, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(run, tmp_path / "elsewhere" / "artifacts" / "copy"))
    (copied / "artifacts/line-1/generate/rewrites").write_text("anders")

    assert (of(run, keys).verdict, of(copied, keys).verdict) == ("intact", "altered")


def test_a_moved_run_needs_nothing_of_its_old_place(run: Path, keys: Keys, tmp_path: Path) -> None:
    moved = Path(shutil.move(run, tmp_path / "moved"))
    (tmp_path / "questions.xlsx").unlink()

    result = of(moved, keys)

    assert (result.verdict, states(result)["questions"]) == ("intact", "attested")


def test_a_run_that_calls_itself_another_tenants_is_untrusted(run: Path, keys: Keys) -> None:
    (run / "config.yaml").write_text("tenant_id: chengla\n")

    result = of(run, keys)

    assert result.verdict == "altered"
    assert "it is of tenant 'fivedoctors', and 'chengla' is asked about" in " ".join(
        finding.why for finding in result.findings
    )


def test_changed_bytes_are_altered(run: Path, keys: Keys) -> None:
    (run / "artifacts/line-1/sft/model/model.safetensors").write_bytes(b"Weights")

    result = of(run, keys)

    assert (result.verdict, found_states(result)) == ("altered", [("sft_model", "altered")])
    assert isinstance(audit_error(result), AlteredError)


def test_bytes_that_a_record_promises_and_are_gone_are_missing(run: Path, keys: Keys) -> None:
    (run / "artifacts/line-1/generate/rewrites").unlink()

    result = of(run, keys)

    assert (result.verdict, found_states(result)) == ("incomplete", [("rewrites", "missing")])
    assert isinstance(audit_error(result), IncompleteAuditError)


def test_an_answer_that_was_changed_in_the_journal_is_named_by_its_key(run: Path, keys: Keys) -> None:
    write_journal(run / "journal.sqlite", {"k1": b"one", "k2": b"zwei"})

    result = of(run, keys)

    assert (result.verdict, [finding.what for finding in result.findings]) == (
        "altered",
        [f"answer {call_named('k2')[:12]}"],
    )


def shown(run: Path) -> Path:
    """files/ with links to the artifacts, as a run leaves it."""
    files = run / "files"
    files.mkdir()
    (files / "sft_model").symlink_to("../artifacts/line-1/sft/model")
    (files / "rewrites.jsonl").symlink_to("../artifacts/line-1/generate/rewrites")
    (files / "blind_sheet.xlsx").write_bytes(b"filled in")
    (files / "notes.txt").write_text("a person's own")
    return files


def other_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"other weights")
    return folder


def relinked(files: Path, run: Path) -> None:
    (files / "sft_model").unlink()
    (files / "sft_model").symlink_to(other_model(run.parent / "tampered"))


def replaced_file(files: Path, run: Path) -> None:
    (files / "rewrites.jsonl").unlink()
    (files / "rewrites.jsonl").write_text("anders")


def exchanged(files: Path, run: Path) -> None:
    (files / "sft_model").unlink()
    (files / "sft_model").symlink_to("../artifacts/line-1/generate/rewrites")


def dangling(files: Path, run: Path) -> None:
    (files / "sft_model").unlink()
    (files / "sft_model").symlink_to("../artifacts/gone")


def test_the_audit_knows_by_which_names_a_run_shows_its_artifacts() -> None:
    shown = {name: shown_name(Path(file)) for name, file in ARTIFACT_FILES.items()}

    assert shown == {name: name for name in shown}


def test_files_that_show_the_artifacts_are_no_finding(run: Path, keys: Keys) -> None:
    files = shown(run)
    (files / "rewrites.copy").write_text("改写", encoding="utf-8")

    assert of(run, keys).findings == ()


@pytest.mark.parametrize(
    ("attack", "name"),
    [(relinked, "sft_model"), (exchanged, "sft_model"), (dangling, "sft_model"), (replaced_file, "rewrites.jsonl")],
)
def test_a_file_that_shows_another_artifact_is_altered(run: Path, keys: Keys, attack: object, name: str) -> None:
    files = shown(run)
    attack(files, run)  # type: ignore[operator]

    result = of(run, keys)

    assert (result.verdict, [finding.what for finding in result.findings]) == ("altered", [f"files/{name}"])


def test_a_filled_in_sheet_and_a_removed_link_are_remarks_and_no_fault(run: Path, keys: Keys) -> None:
    sheet = run / "artifacts/line-1/generate/rewrites_table"
    sheet.write_bytes(b"as written")
    path = run / "records/generate.json"
    body = json.loads(path.read_bytes())
    body["outputs"]["rewrites_table"] = {"uri": str(sheet), "sha256": digest(sheet)}
    path.write_text(json.dumps(body))
    files, copy = shown(run), sheet.with_name("rewrites.xlsx")
    copy.write_bytes(sheet.read_bytes())
    (files / "rewrites.xlsx").symlink_to(copy)
    before = of(run, keys)
    copy.write_bytes(b"filled in")
    (files / "sft_model").unlink()

    after = of(run, keys)

    assert before.remarks == () and after.verdict == before.verdict == "intact"
    changed, gone = after.remarks
    assert changed.startswith(f"{files / 'rewrites.xlsx'}: filled in or changed since a step wrote it.")
    assert "what is signed is rewrites_table" in changed
    assert gone.startswith(f"{files} does not show sft_model any more")
    assert as_json(after)["remarks"] == [changed, gone]


JOURNAL_ATTACKS = {
    "an answer as text": ("UPDATE calls SET response = 'two' WHERE response = x'74776f'", "altered", "text or noth"),
    "a key that is a number": ("UPDATE calls SET key = x'00' WHERE response = x'74776f'", "altered", "text or noth"),
    "another request": ("UPDATE calls SET request = CAST('{\"model\":\"m\"}' AS BLOB)", "altered", "its key is the"),
    "another sample": ("UPDATE calls SET sample = 1", "altered", "its key is the digest"),
    "another model": ("UPDATE calls SET model = 'cheap'", "altered", "the journal names another"),
    "another cost": ("UPDATE attempts SET cost = 0", "altered", "it cost 0.0"),
    "no payment": ("DELETE FROM attempts", "altered", "no request for it was ever sent"),
    "paid and not answered": ("UPDATE attempts SET outcome = 'lost'", "altered", "no request for it was ever sent"),
    "two answers exchanged": (
        "UPDATE calls SET response = CASE response WHEN x'74776f' THEN x'6f6e65' ELSE x'74776f' END",
        "altered", "has digest",
    ),
    "an answer taken out": ("DELETE FROM calls WHERE response = x'74776f'", "incomplete", "the journal lacks it"),
    "no table": ("DROP TABLE calls", "altered", "no such table"),
    "another version": ("PRAGMA user_version = 99", "altered", "no journal of version"),
}  # fmt: skip


@pytest.mark.parametrize("attack", JOURNAL_ATTACKS)
def test_a_journal_that_was_edited_is_found(run: Path, keys: Keys, attack: str) -> None:
    query, verdict, why = JOURNAL_ATTACKS[attack]
    write_journal(run / "journal.sqlite", {"k1": b"one", "k2": b"two"})
    with sqlite3.connect(run / "journal.sqlite") as database:
        database.execute(query)
    database.close()

    result = of(run, keys)

    assert result.verdict == verdict
    assert why in " ".join(finding.why for finding in result.findings)


def test_a_list_of_paid_answers_that_is_gone_is_missed_where_the_journal_gives_another(run: Path, keys: Keys) -> None:
    (run / "artifacts/line-1/sft/lineage/paid-generate.jsonl").unlink()
    write_journal(run / "journal.sqlite", {"k1": b"one", "k2": b"zwei"})

    result = of(run, keys)

    assert (result.verdict, [finding.what for finding in result.findings]) == (
        "incomplete",
        ["paid answers of generate"],
    )


def test_a_file_of_a_run_is_audited_alone(run: Path, keys: Keys) -> None:
    rewrites = run / "artifacts/line-1/generate/rewrites"

    assert states(of(rewrites, keys)) == dict.fromkeys(("rewrites", "questions", "journal"), "verified")

    rewrites.write_text("anders")
    assert of(rewrites, keys).verdict == "altered"


def test_a_file_outside_of_any_run_cannot_be_audited(tmp_path: Path, keys: Keys) -> None:
    (tmp_path / "x").write_text("x")

    with pytest.raises(ConfigError, match="nor in one"):
        of(tmp_path / "x", keys)
    with pytest.raises(ConfigError, match="no such file"):
        of(tmp_path / "none at all", keys)


def test_a_release_is_walked_back_through_its_lineage(keys: Keys, tmp_path: Path) -> None:
    release = write_release(tmp_path / "release", keys)

    result = of(release, keys)

    assert (result.verdict, result.name, result.tenant) == ("intact", "fivedoctors/rewriter", "fivedoctors")
    assert states(result)["rl_model"] == "verified", "the release's copy is the artifact's bytes"
    assert states(result)["rewrites"] == "attested"
    assert "verdict" in states(result)


def test_a_release_comes_from_a_store_by_name_digest_or_its_beginning(keys: Keys, tmp_path: Path) -> None:
    release, address = write_release(tmp_path / "release", keys), str(tmp_path / "store")
    name, store = digest(release), open_store(address)
    store.push(release, name)
    store.point("fivedoctors/rewriter", name, None, "a test", sign_with(keys.releaser))

    for target in ("fivedoctors/rewriter", name, name[:10], f"{address}/{name}"):
        audited = audit(target, keys.policy, store=address)
        assert (audited.verdict, audited.digest) == ("intact", name)
    with pytest.raises(DataError, match=r"^fivedoctors/other: "):
        audit("fivedoctors/other", keys.policy, store=address)
    with pytest.raises(
        ConfigError,
        match=r"^runs/nope: .*there is no store here",
    ):
        audit("runs/nope", keys.policy, store=str(tmp_path / "nowhere"))

    backup = next((tmp_path / "store").rglob("report.html"))
    backup.chmod(0o644)
    backup.write_text("changed")
    with pytest.raises(AlteredError, match="not the bytes that were pushed"):
        audit(name, keys.policy, store=address)
