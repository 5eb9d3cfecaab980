"""Answers that were paid for through the batch API: half the price, once, and every row's outcome its own."""

import asyncio
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import orjson
import pytest

from commands.prepay.prepay import Quote, prepay, result_in_words
from qinglan.errors import BudgetError, ConfigError, OutageError
from qinglan.llm.call_plan import PaidRequest
from qinglan.llm.paid.journal import Entry
from qinglan.llm.paid.journal_reader import read_report
from standins.teacher.app import create_app
from standins.teacher.batches import FakeBatchService
from standins.teacher.config import Behaviour
from tests.servers.echo_servers import EchoBrain, Reply, Scripted, gateway_config, running
from tests.servers.small_prepayments import (
    Meddled,
    ask_live,
    echoes,
    echoing,
    fails,
    in_json,
    messages,
    outcomes,
    pay_ahead,
    requests,
    short_pauses,
    stats,
    texts,
)

pytestmark = pytest.mark.slow

ROWS = [str(number) for number in range(20)]


@pytest.fixture(autouse=True)
def pauses() -> Iterator[None]:
    with short_pauses():
        yield


def test_the_run_finds_every_prepaid_answer_and_pays_half_the_live_price(tmp_path: Path) -> None:
    with running(echoing()) as teacher:
        _, live = ask_live(teacher, tmp_path / "live", ROWS)
        paid = pay_ahead(teacher, tmp_path, ROWS)
        billed = stats(teacher)["billed"]
        answers, report = ask_live(teacher, tmp_path, ROWS)
        assert stats(teacher)["billed"] == billed

    assert texts(answers) == echoes(ROWS)
    assert all(answer.cached for answer in answers)
    assert paid.cost == report["cost"] == pytest.approx(live["cost"] / 2)
    assert (paid.answered, paid.unpaid, paid.problems) == (20, (), ())
    assert (report["attempts"], report["hits"], report["batches"]) == (20, 20, [])


def test_a_raised_limit_prepays_only_the_answers_that_were_cut(tmp_path: Path) -> None:
    with running(echoing()) as teacher:
        assert pay_ahead(teacher, tmp_path, ["1", "2", "很长"]).answered == 3
        assert pay_ahead(teacher, tmp_path, ["1", "2", "很长"]).answered == 0, "the same limit would cut it again"
        raised = gateway_config(teacher, model={"max_output_tokens": 5_000})
        assert pay_ahead(raised, tmp_path, ["1", "2", "很长"]).answered == 1


def test_answers_in_the_journal_are_not_prepaid_and_equal_prompts_are_paid_once(tmp_path: Path) -> None:
    quotes: list[Quote] = []

    def note(quote: Quote) -> bool:
        quotes.append(quote)
        return True

    with running(echoing()) as teacher:
        ask_live(teacher, tmp_path, ["一/甲"])
        pay_ahead(teacher, tmp_path, ["一/乙", "二/甲", "二/乙"], approve=note)
        assert (stats(teacher)["billed"], stats(teacher)["batches"]) == (2, 1)
        assert pay_ahead(teacher, tmp_path, ["一", "二"], approve=lambda _: False).answered == 0
    assert [(quote.rows, quote.journaled) for quote in quotes] == [(1, 1)]


def test_more_rows_than_a_batch_holds_go_in_several(tmp_path: Path) -> None:
    with running(echoing()) as teacher:
        assert pay_ahead(teacher, tmp_path, ROWS, most_rows=8).answered == 20
        assert stats(teacher)["batches"] == 3


@pytest.mark.parametrize(
    ("fault", "batches", "answered", "left", "reasons"),
    [
        ("missing", 1, 19, {"answered": 19, "lost": 1}, ["missing"]),
        ("twice", 1, 20, {"answered": 20}, []),
        ("stranger", 1, 20, {"answered": 20}, []),
        ("broken", 1, 19, {"answered": 19, "rejected": 1}, ["status 500"]),
        ("refused", 1, 19, {"answered": 19, "rejected": 1}, ["rejected"]),
        ("garbled", 1, 19, {"answered": 19, "lost": 1}, ["missing"]),
        ("quota", 3, 20, {"answered": 20, "rejected": 20}, []),
        ("validation", 2, 19, {"answered": 19, "rejected": 20}, ["rejected"]),
    ],
)
def test_a_row_without_an_answer_is_named_and_left_to_the_run(
    tmp_path: Path, fault: str, batches: int, answered: int, left: dict[str, int], reasons: list[str]
) -> None:
    with running(echoing(batch_fault=fault)) as teacher:
        paid = pay_ahead(teacher, tmp_path, ROWS)
        assert stats(teacher)["batches"] == batches
        assert outcomes(tmp_path) == left
        answers, report = ask_live(teacher, tmp_path, ROWS)
    assert (paid.answered, [row.reason for row in paid.unpaid], paid.problems) == (answered, reasons, ())
    assert all(row.row in ROWS and row.step == "generate" for row in paid.unpaid)
    assert texts(answers) == echoes(ROWS)
    assert len(report["possibly_billed"]) == left.get("lost", 0)


@pytest.mark.parametrize("fault", ["expired", "cancelled"])
def test_a_batch_that_ends_early_keeps_its_answers_and_is_a_problem_with_a_next_step(
    tmp_path: Path, fault: str
) -> None:
    with running(echoing(batch_fault=fault)) as teacher:
        paid = pay_ahead(teacher, tmp_path, ROWS)
        assert (paid.answered, len(paid.unpaid), outcomes(tmp_path)) == (10, 10, {"answered": 10, "rejected": 10})
        [problem] = paid.problems
        assert f"is {fault} at the service: 10 of 20 rows are answered" in problem
        assert "Run `qinglan prepay` again" in problem

        again = pay_ahead(teacher, tmp_path, ROWS)
        assert (again.answered, stats(teacher)["billed"]) == (10, 20)
    assert read_report(tmp_path / "journal.sqlite")["possibly_billed"] == []


def test_a_row_that_the_service_rejected_is_in_no_later_batch(tmp_path: Path) -> None:
    with running(echoing(batch_fault="validation")) as teacher:
        pay_ahead(teacher, tmp_path, ROWS)
        assert pay_ahead(teacher, tmp_path, ROWS).answered == 0
        assert stats(teacher)["batches"] == 2


def test_a_prepayment_above_the_budget_is_refused_before_anything_is_uploaded(tmp_path: Path) -> None:
    with running(echoing()) as teacher:
        with pytest.raises(BudgetError, match=r"of the budget of 0\.001 is spent.*Nothing was sent"):
            pay_ahead(gateway_config(teacher, budget=0.001), tmp_path, ROWS)
        assert stats(teacher)["files"] == 0


def test_batches_hold_no_more_than_the_budget_and_the_rest_is_said_to_be_unpaid(tmp_path: Path) -> None:
    wordy = [f"很长 {number}" for number in range(200)]
    with running(echoing()) as teacher:
        # With answers as long as usual the budget holds them all; these are longer.
        with pytest.raises(BudgetError, match="calls are not prepaid"):
            pay_ahead(gateway_config(teacher, budget=0.06), tmp_path, wordy)
        report = read_report(tmp_path / "journal.sqlite")
        assert 0.055 < report["cost"] <= 0.06
        assert (stats(teacher)["batches"] > 1, report["batches"]) == (True, [])


@pytest.mark.parametrize(
    "edit",
    [
        lambda status, body: (status, b"\xef\xbb\xbf" + body),
        lambda status, body: (status, body.replace(b'"status_code":200', b'"status_code":"200"')),
        lambda status, body: (status, body.replace(b'"status_code":200,', b"")),
    ],
    ids=["byte order mark", "status in words", "no status"],
)
def test_an_answer_that_was_paid_for_is_read_however_its_line_comes(tmp_path: Path, edit: Any) -> None:
    with running(Meddled(echoing(), "GET .*/content", edit)) as teacher:
        assert pay_ahead(teacher, tmp_path, ROWS).answered == 20


@pytest.mark.parametrize("first", [b"", b"<html>busy</html>"])
def test_a_file_that_is_shorter_than_the_services_own_count_is_read_again(tmp_path: Path, first: bytes) -> None:
    service = Meddled(echoing(), "GET .*/content", lambda status, _: (status, first), times=1)
    with running(service) as teacher:
        assert pay_ahead(teacher, tmp_path, ROWS).answered == 20
    assert outcomes(tmp_path) == {"answered": 20}


@pytest.mark.parametrize(("looks", "left"), [(2, {"answered": 20}), (10**6, {"lost": 20})])
def test_a_file_that_comes_after_the_end_is_waited_for_and_not_for_ever(
    tmp_path: Path, looks: int, left: dict[str, int]
) -> None:
    """A batch may say `completed` before it names its files."""
    hasty = in_json(lambda batch: batch | ({"output_file_id": None} if batch["status"] == "completed" else {}))
    with running(Meddled(echoing(), "GET /v1/batches/.*", hasty, times=looks)) as teacher:
        paid = pay_ahead(teacher, tmp_path, ROWS)
    assert outcomes(tmp_path) == left
    assert bool(paid.problems) == ("lost" in left)


def test_a_line_separator_inside_an_answer_ends_no_line(tmp_path: Path) -> None:
    class Separating(EchoBrain):
        def answer(self, model: str, messages: list[dict[str, Any]], response_format: Any) -> str:
            return f"上\u2028下\u0085完 {messages[-1]['content']}"

    with running(create_app(Separating(), Behaviour())) as teacher:
        pay_ahead(teacher, tmp_path, ["1"])
        [answer], _ = ask_live(teacher, tmp_path, ["1"])
    assert answer.text.startswith("上\u2028下\u0085完")


@pytest.mark.parametrize("request_", ["POST /v1/files", "POST /v1/batches", "GET /v1/batches/.*", "GET /v1/files/.*"])
@pytest.mark.parametrize("status", [500, 429])
def test_a_single_failure_of_the_batch_service_is_no_outage_and_pays_nothing_twice(
    tmp_path: Path, request_: str, status: int, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    service = Meddled(echoing(), request_, fails(status), times=1)
    with running(service) as teacher:
        assert pay_ahead(teacher, tmp_path, ROWS).answered == 20
        assert (stats(teacher)["batches"], stats(teacher)["billed"], service.left) == (1, 20, 0)
    assert capsys.readouterr().out == "", "stdout is only for the command's result"
    assert f"{teacher}/v1 gives no answer" in caplog.text


@pytest.mark.parametrize(
    "edit",
    [in_json(lambda body: {**body, "data": [{**entry, "metadata": None} for entry in body["data"]]}),
     in_json(lambda body: {**body, "data": []})],
    ids=["keeps no metadata", "is a look behind"],
)  # fmt: skip
def test_a_batch_whose_creation_nobody_heard_of_is_found_in_a_listing_that(tmp_path: Path, edit: Any) -> None:
    unheard = Meddled(echoing(), "POST /v1/batches", fails(500), times=1)
    with running(Meddled(unheard, "GET /v1/batches", edit, times=1)) as teacher:
        assert pay_ahead(teacher, tmp_path, ROWS).answered == 20
        assert (stats(teacher)["batches"], stats(teacher)["billed"]) == (1, 20)


@pytest.mark.parametrize(
    ("request_", "edit", "says"),
    [
        ("GET /v1/batches/.*", fails(500), "status 500"),
        ("GET /v1/batches/.*", fails(404), r"is not known there.*--give-up"),
        ("GET /v1/files/.*", fails(404), r"is not known there.*--give-up"),
        ("GET /v1/batches/.*", fails(401), "set another"),
        ("GET /v1/batches/.*", in_json(lambda batch: batch | {"status": "resting"}), "'resting'"),
    ],
)
def test_a_service_that_does_not_say_how_a_batch_is_is_an_outage_and_the_next_prepayment_fetches_it(
    tmp_path: Path, request_: str, edit: Any, says: str
) -> None:
    service = Meddled(echoing(), request_, edit)
    with running(service) as teacher:
        with short_pauses(patience=0.3), pytest.raises(OutageError, match=says):
            pay_ahead(teacher, tmp_path, ROWS)
        [left] = read_report(tmp_path / "journal.sqlite")["batches"]
        assert (left["role"], left["rows"]) == ("teacher", 20)
        with pytest.raises(ConfigError, match=r"is not fetched yet.*Run `qinglan prepay` once more"):
            ask_live(teacher, tmp_path, ROWS)

        service.left = 0
        assert pay_ahead(teacher, tmp_path, ROWS, approve=lambda _: False).answered == 20
        assert stats(teacher)["billed"] == 20
    assert outcomes(tmp_path) == {"answered": 20}


def test_a_listing_that_is_refused_or_has_no_end_does_not_dissolve_the_batch_that_it_would_have_shown(
    tmp_path: Path,
) -> None:
    circle = in_json(lambda _: {"data": [{"id": "batch_of_somebody"}], "has_more": True})
    for folder, edit, says in (("a", fails(403), "set another"), ("b", circle, "list of batches has no end")):
        unheard = Meddled(echoing(), "POST /v1/batches", fails(500), times=1)
        service = Meddled(unheard, "GET /v1/batches", edit)
        with running(service) as teacher:
            with short_pauses(patience=0.3), pytest.raises(OutageError, match=says):
                pay_ahead(teacher, tmp_path / folder, ROWS)
            service.left = 0
            assert pay_ahead(teacher, tmp_path / folder, ROWS).answered == 20
            assert (stats(teacher)["batches"], stats(teacher)["billed"]) == (1, 20)


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [(401, "invalid_api_key", "set another"), (429, "insufficient_quota", "top it up"), (307, "x", "base_url")],
)
def test_a_service_that_takes_no_batch_leaves_the_rows_unpaid(
    tmp_path: Path, status: int, code: str, says: str
) -> None:
    body = orjson.dumps({"error": {"message": "no", "code": code}})
    with running(Scripted(Reply(status, body))) as service:
        paid = pay_ahead(service, tmp_path, ROWS)
    assert says in paid.problems[0]
    assert "20 rows are unpaid" in paid.problems[0]
    assert paid.unpaid == ()
    report = read_report(tmp_path / "journal.sqlite")
    assert (report["cost"], report["batches"], report["possibly_billed"]) == (0, [], [])
    with running(echoing()) as teacher:
        assert pay_ahead(teacher, tmp_path, ROWS).answered == 20


@pytest.mark.parametrize("status", [404, 405])
def test_a_provider_without_a_batch_api_is_named_once(tmp_path: Path, status: int) -> None:
    """For teacher and judge together, and for no row by itself; the same calls can then be paid live."""
    needs = (PaidRequest(Entry("validate", row, "judge"), messages(f"need {row}")) for row in ROWS)
    journal = tmp_path / "journal.sqlite"
    with running(Scripted(Reply(status, b'{"detail": "Not Found"}'))) as service:
        paid = asyncio.run(prepay(chain(requests(ROWS), needs), gateway_config(service), journal, lambda _: True))
    assert paid is not None and len(paid.problems) == 1
    assert f"{service}/v1: this provider has no /files, so no batch API." in paid.problems[0]
    assert (paid.answered, paid.unpaid, result_in_words(paid, journal)) == (0, (), [])
    assert read_report(journal)["cost"] == 0


def test_too_many_tokens_at_the_service_make_batches_smaller_until_they_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    work = FakeBatchService._work

    async def small(service: FakeBatchService, batch: Any, fault: Any) -> None:
        sizes.append(len(service.contents[batch["input_file_id"]].splitlines()))
        await work(service, batch, "quota" if sizes[-1] > 6 else fault)

    monkeypatch.setattr(FakeBatchService, "_work", small)
    with running(echoing()) as teacher:
        assert pay_ahead(teacher, tmp_path, ROWS).answered == 20
    assert sizes == [20, 10, 5, 5, 5, 5]
