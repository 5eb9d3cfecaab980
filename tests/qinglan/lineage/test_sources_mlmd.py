"""A real ML Metadata store, filled as KFP 2.17 fills it, tells where everything came from."""

import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from qinglan.errors import OutageError
from qinglan.files import sha256_text
from qinglan.lineage.sources import walk_back
from qinglan.lineage.sources.mlmd import Mlmd, main
from qinglan.lineage.sources.protocol import mlmd_pb2
from tests.mlmd import Kfp, engine_python, mlmd_server
from tests.qinglan.lineage.thread import Thread

NUMBERS = count()
ROOT = Path(__file__).parents[3]
PROTOCOL = "qinglan/lineage/sources/protocol"


@pytest.fixture
def kfp(mlmd: str) -> Kfp:
    return Kfp(mlmd, f"run-{next(NUMBERS)}")


@pytest.fixture
def source(mlmd: str) -> Mlmd:
    return Mlmd(mlmd)


def made(kfp: Kfp, name: str, **metadata: Any) -> int:
    """An artifact with a URI and a digest of its own."""
    own = {"sha256": digest(kfp, name), **metadata}
    return kfp.artifacts([(name, uri(kfp, name), own)])[0]


def uri(kfp: Kfp, name: str) -> str:
    return f"minio://mlpipeline/v2/artifacts/rewriter/{kfp.run}/{name}"


def digest(kfp: Kfp, name: str) -> str:
    return sha256_text(kfp.run, name)


def tasks(source: Mlmd, digest_or_uri: str) -> list[str]:
    return [step.stage for step in walk_back(source, digest_or_uri)]


def test_the_walk_ends_at_the_importers_and_never_passes_a_graph(kfp: Kfp, source: Mlmd) -> None:
    questions = kfp.importer(uri(kfp, "questions"))
    graph = kfp.graph("condition-1", {"questions": [questions]})
    rewrites, model = made(kfp, "rewrites"), made(kfp, "model")
    kfp.container("generate", {"questions": [questions]}, {"rewrites": [rewrites]}, above=graph)
    kfp.container("sft", {"chats": [rewrites]}, {"sft_model": [model]}, above=kfp.graph("for-loop", above=graph))

    steps = walk_back(source, digest(kfp, "model"))

    assert [step.stage for step in steps] == ["sft", "generate", "importer"]
    assert {step.run for step in steps} == {kfp.run}
    assert [step.stage for step in source.users(uri(kfp, "questions"))] == ["generate"]
    assert [step.stage for step in source.steps(kfp.run)] == ["importer", "generate", "sft"]


def test_a_cached_step_leads_to_the_one_that_ran(mlmd: str, kfp: Kfp, source: Mlmd) -> None:
    rows, model = made(kfp, "rows"), made(kfp, "model")
    ran = kfp.container("sft", {"chats": [rows]}, {"sft_model": [model]})
    again = Kfp(mlmd, f"{kfp.run}-again")
    cached = again.cached("sft", ran, {"chats": [rows]}, {"sft_model": [model]})

    maker = source.maker(digest(kfp, "model"))

    assert maker is not None and (maker.id, maker.run, maker.state) == (str(ran), kfp.run, "done")
    assert [(step.id, step.state) for step in source.users(digest(kfp, "rows"))] == [
        (str(ran), "done"), (str(cached), "cached"),
    ]  # fmt: skip
    (shown,) = source.steps(again.run)
    assert shown.outputs == maker.outputs and shown.facts["cached_from"] == str(ran)


def test_an_artifact_with_cached_makers_alone_leads_to_the_one_they_name(kfp: Kfp, source: Mlmd) -> None:
    ran = kfp.container("sft", {}, {"sft_model": [made(kfp, "model")]})
    cached = kfp.cached("sft", ran, {}, {"sft_model": [made(kfp, "another")]})
    kfp.cached("sft", cached, {}, {"sft_model": [made(kfp, "copy")]})

    maker = source.maker(digest(kfp, "copy"))

    assert maker is not None and maker.id == str(ran)


def test_a_cached_step_tells_what_it_can_when_the_original_is_gone(kfp: Kfp, source: Mlmd) -> None:
    model = made(kfp, "model")
    cached = kfp.cached("sft", 10**9, {}, {"sft_model": [model]})

    maker = source.maker(digest(kfp, "model"))

    assert maker is not None and (maker.id, maker.state) == (str(cached), "cached")


def test_a_step_that_failed_runs_or_was_not_triggered_made_nothing(kfp: Kfp, source: Mlmd) -> None:
    rows, model = made(kfp, "rows"), made(kfp, "model")
    kfp.failed("sft", {"chats": [rows]}, {"sft_model": [model]})
    kfp.running("ppo", {"prompts": [rows]})
    kfp.not_triggered("candidate")

    assert source.maker(digest(kfp, "model")) is None
    assert {step.stage: (step.state, bool(step.ended)) for step in source.users(digest(kfp, "rows"))} == {
        "sft": ("failed", True), "ppo": ("running", False),
    }  # fmt: skip
    assert [step.stage for step in source.steps(kfp.run)] == ["sft", "ppo"]


def test_a_step_made_is_preferred_to_an_importer_of_the_same_place(kfp: Kfp, source: Mlmd) -> None:
    kfp.importer(uri(kfp, "model"))
    model = made(kfp, "model")
    kfp.container("sft", {}, {"sft_model": [model]})

    assert tasks(source, uri(kfp, "model")) == ["sft"]


def test_bytes_written_over_are_not_what_was_read(kfp: Kfp, source: Mlmd) -> None:
    read = kfp.artifacts([("rows", uri(kfp, "rows"), {"sha256": "0" * 63 + "1"})])[0]
    later = made(kfp, "rows")
    kfp.container("convert", {}, {"chats": [later]})
    kfp.container("sft", {"chats": [read]}, {"sft_model": [made(kfp, "model")]})

    assert tasks(source, digest(kfp, "model")) == ["sft"]


def test_what_kfp_notes_of_a_step_is_told(kfp: Kfp, source: Mlmd) -> None:
    model = made(kfp, "model", stage="base", code={"version": "1"}, facts={"rows": 3, "image": "mine"})
    kfp.container("text-base", {}, {"base_model": [model]})

    maker = source.maker(digest(kfp, "model"))

    assert maker is not None and maker.stage == "base"
    assert maker.facts == {"pod": "text-base-pod", "rows": 3, "image": "mine", "code": {"version": "1"}}
    assert maker.started <= maker.ended and maker.ended.endswith("+00:00")


def test_foreign_metadata_under_our_names_does_no_harm(kfp: Kfp, source: Mlmd) -> None:
    rows = made(kfp, "rows")
    model = made(kfp, "model", stage=3.5, parents=["x"], facts="none", rows=[1])
    odd = kfp.artifacts([("odd", uri(kfp, "odd"), {"sha256": 5})])[0]
    kfp.container("theirs", {"chats": [rows]}, {"model": [model], "odd": [odd]})

    maker = source.maker(uri(kfp, "odd"))

    assert maker is not None and [one.digest for one in maker.inputs] == [digest(kfp, "rows")]
    assert {one.name: one.digest for one in maker.outputs} == {"model": digest(kfp, "model"), "odd": ""}


@pytest.mark.slow
def test_users_are_found_past_a_page_of_artifacts_and_of_steps(kfp: Kfp, source: Mlmd) -> None:
    same = {"sha256": digest(kfp, "same")}
    copies = kfp.artifacts([("rows", f"{uri(kfp, 'rows')}/{number}", same) for number in range(150)])
    readers = [kfp.container("sft", {"chats": [copies[number + 40]]}) for number in range(110)]

    assert [int(step.id) for step in source.users(digest(kfp, "same"))] == readers
    assert [int(step.id) for step in source.steps(kfp.run)] == readers
    assert {str(one) for one in readers} <= {step.id for step in source.steps()}


@pytest.mark.slow
def test_a_walk_over_thousands_of_artifacts_asks_in_batches(kfp: Kfp, source: Mlmd) -> None:
    shards = kfp.artifacts(
        [("shard", uri(kfp, f"shard/{n}"), {"sha256": digest(kfp, f"shard/{n}")}) for n in range(2_500)]
    )
    given = kfp.importer(uri(kfp, "questions"))
    for start in range(0, 2_500, 100):
        kfp.container("generate", {"questions": [given]}, {"rewrites": shards[start : start + 100]})
    kfp.container("convert", {"shards": shards}, {"chats": [made(kfp, "chats")]})
    before = kfp.calls()

    steps = walk_back(source, digest(kfp, "chats"))

    calls = kfp.calls() - before
    assert len(steps) == 27 and len(steps[0].inputs) == 2_500
    assert max(calls.values()) <= 10 and calls.total() <= 35, calls
    assert calls["GetContextsByExecution"] == 1


def test_a_stopped_server_is_an_outage_within_seconds(tmp_path: Path) -> None:
    with mlmd_server(tmp_path) as address:
        source = Mlmd(address)
        assert source.maker("a" * 64) is None
    start = time.monotonic()

    with pytest.raises(OutageError, match=f"{address} did not answer .*UNAVAILABLE") as caught:
        source.maker("a" * 64)

    assert "port-forward" in str(caught.value)
    assert time.monotonic() - start < 60


def test_what_is_no_ml_metadata_is_an_outage_that_says_so(
    kfp: Kfp, mlmd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qinglan.lineage.sources.mlmd.SERVICE", "another.Service")

    with pytest.raises(OutageError, match="UNIMPLEMENTED"):
        Mlmd(mlmd).maker("a" * 64)


def test_the_command_prints_a_walk_a_line_a_step(
    mlmd: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    thread = Thread("printed", tmp_path)
    thread.write_mlmd(mlmd)

    assert main([mlmd, thread.digest("rewrites")]) == 0

    generate, importer = capsys.readouterr().out.splitlines()
    assert generate.startswith("generate  done  ") and "run printed" in generate
    assert importer.startswith("importer  done  ") and importer.endswith(
        f"nothing -> artifact@{thread.uri('questions')}"
    )
    assert main([mlmd, "nowhere"]) == 1 and main([]) == 2
    assert main(["127.0.0.1:1", "nowhere"]) == OutageError.exit_code


def test_the_committed_messages_are_what_the_compiler_writes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}", f"--python_out={tmp_path}"]
    subprocess.run([*command, f"{ROOT}/{PROTOCOL}/mlmd.proto"], check=True)

    written, kept = (folder / PROTOCOL / "mlmd_pb2.py" for folder in (tmp_path, ROOT))
    assert written.read_text() == kept.read_text(), "run `make protocol`"


def test_every_field_that_we_know_is_the_engines_own() -> None:
    theirs = engine_fields()
    ours = fields(mlmd_pb2.DESCRIPTOR.serialized_pb)

    assert ours and {name: theirs.get(name) for name in ours} == ours


PRINT_ENGINE = """
import sys
from ml_metadata.proto import metadata_store_pb2, metadata_store_service_pb2
for one in metadata_store_pb2, metadata_store_service_pb2:
    print(one.DESCRIPTOR.serialized_pb.hex())
"""


def engine_fields() -> dict[str, Any]:
    told = subprocess.run([str(engine_python()), "-c", PRINT_ENGINE], check=True, capture_output=True, text=True)
    return {name: field for text in told.stdout.split() for name, field in fields(bytes.fromhex(text)).items()}


def fields(serialized: bytes) -> dict[str, Any]:
    """Every field and every enum's value of a proto file: number, type, and whether it is repeated."""
    file = descriptor_pb2.FileDescriptorProto.FromString(serialized)
    found: dict[str, Any] = {}

    def note(message: Any, above: str) -> None:
        name = f"{above}.{message.name}"
        for field in message.field:
            found[f"{name}.{field.name}"] = (field.number, field.type, field.type_name, field.label)
        for enum in message.enum_type:
            found.update({f"{name}.{enum.name}.{value.name}": value.number for value in enum.value})
        for nested in message.nested_type:
            note(nested, name)

    for message in file.message_type:
        note(message, file.package)
    return found
