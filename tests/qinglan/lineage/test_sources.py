"""Every store of lineage gives the same answers, and no store can lead a walk astray or keep it for ever."""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import pytest

from qinglan.errors import ConfigError, DataError
from qinglan.lineage.sources import Source, Step, Thing, line, walk_back
from qinglan.lineage.sources.mlmd import Mlmd
from qinglan.lineage.sources.records import RunRecords
from tests.qinglan.lineage.thread import CODE, GIVEN, TABLE, Thread, facts


@pytest.fixture(scope="module")
def both(mlmd: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Thread, RunRecords, Mlmd]:
    """One run, kept both ways."""
    thread = Thread("both", tmp_path_factory.mktemp("both"))
    thread.write_records()
    thread.write_mlmd(mlmd)
    return thread, RunRecords(thread.root), Mlmd(mlmd)


def shape(steps: list[Step]) -> dict[tuple[str, str], tuple[object, ...]]:
    """What two stores agree on: all but ids, the run's name, times, and what only KFP notes."""
    own = set(facts(TABLE[0])) | {"code"}
    return {
        (step.stage, step.outputs[0].uri): (
            step.state,
            frozenset(step.inputs),
            frozenset((thing.name, thing.uri) for thing in step.outputs),
            {key: value for key, value in step.facts.items() if key in own},
        )
        for step in steps
    }


def test_records_and_ml_metadata_give_the_same_walk(both: tuple[Thread, RunRecords, Mlmd]) -> None:
    thread, *sources = both
    for wanted in (thread.uri("sft_model"), thread.digest("sft_model"), thread.digest("sft_model").upper()):
        local, cluster = (walk_back(source, wanted) for source in sources)

        assert shape(local) == shape(cluster)
        for steps in (local, cluster):
            assert [step.stage for step in steps[:1]] == ["sft"]
            assert sorted(step.stage for step in steps) == sorted(
                ["sft", "convert", "base", "validate", "generate", "importer", "importer"]
            )
            assert {step.outputs[0].uri for step in steps if step.stage == "importer"} == set(map(thread.uri, GIVEN))
            assert steps[0].facts["code"] == CODE


def test_nearer_steps_come_first(both: tuple[Thread, RunRecords, Mlmd]) -> None:
    thread, *sources = both
    for source in sources:
        stages = [step.stage for step in walk_back(source, thread.uri("base_model"))]

        assert stages[0] == "base" and set(stages[1:3]) == {"convert", "importer"}
        assert stages[3:] == ["validate", "generate", "importer"]


def test_numbers_lists_and_nested_values_come_back_as_they_were_written(
    both: tuple[Thread, RunRecords, Mlmd],
) -> None:
    thread, *sources = both
    for source in sources:
        maker = source.maker(thread.digest("validated"))

        assert maker is not None
        told = {key: value for key, value in maker.facts.items() if key in facts(TABLE[1])}
        assert told == facts(TABLE[1]) and isinstance(told["rows"], int)


def test_users_are_all_that_read_it_the_failed_one_too(both: tuple[Thread, RunRecords, Mlmd]) -> None:
    thread, *sources = both
    for source in sources:
        for wanted in (thread.uri("prompts"), thread.digest("prompts")):
            users = {step.stage: step.state for step in source.users(wanted)}

            assert users == {"base": "done", "ppo": "failed"}


def test_a_digest_of_an_input_is_known_even_where_the_importer_noted_none(
    both: tuple[Thread, RunRecords, Mlmd],
) -> None:
    thread, *sources = both
    for source in sources:
        (reader,) = source.users(thread.uri("questions"))

        assert reader.inputs == (Thing("questions", thread.digest("questions"), thread.uri("questions")),)


def test_steps_of_a_run(both: tuple[Thread, RunRecords, Mlmd]) -> None:
    thread, local, cluster = both
    stages = sorted([row.stage for row in TABLE] + ["importer", "importer"])

    assert sorted(step.stage for step in cluster.steps(thread.run)) == stages
    assert sorted(step.stage for step in local.steps(thread.root.name)) == stages
    assert not list(local.steps("another")) and not list(cluster.steps("another"))


@pytest.mark.parametrize("unknown", ["0" * 64, "/no/such/artifact", "' OR 1=1 --"])
def test_what_nobody_made_has_no_maker_and_no_walk(both: tuple[Thread, RunRecords, Mlmd], unknown: str) -> None:
    for source in both[1:]:
        assert source.maker(unknown) is None
        assert walk_back(source, unknown) == []
        assert list(source.users(unknown)) == []


def test_nothing_cannot_be_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="64 hex digits"):
        walk_back(RunRecords(tmp_path), " ")


def test_a_line_tells_what_went_in_and_out(both: tuple[Thread, RunRecords, Mlmd]) -> None:
    thread, local, _ = both
    maker = local.maker(thread.uri("rewrites"))

    assert maker is not None
    questions, rewrites = thread.digest("questions")[:12], thread.digest("rewrites")[:12]
    assert line(maker).startswith("generate  done  ")
    assert f"questions@{questions} -> rewrites@{rewrites}, quarantine@" in line(maker)


class Chain(Source):
    """A thing is made by the step of the same number out of the thing that `below` names."""

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below

    def makers(self, things: Collection[Thing]) -> Mapping[Thing, Step]:
        return {thing: self._step(int(thing.uri)) for thing in things}

    def _step(self, number: int) -> Step:
        inputs = (Thing("one", "", str(self._below(number))),)
        return Step(str(number), "stage", "run", "done", inputs, (Thing("one", "", str(number)),), "", "", {})

    def users(self, digest_or_uri: str) -> Iterator[Step]:
        raise NotImplementedError

    def steps(self, run: str = "") -> Iterator[Step]:
        raise NotImplementedError


@pytest.mark.parametrize("length", [1, 2, 7])
def test_a_cycle_ends_where_it_closes(length: int) -> None:
    source = Chain(lambda number: (number + 1) % length)

    assert [step.id for step in walk_back(source, "0")] == [str(number) for number in range(length)]


def test_an_endless_chain_is_an_error_that_says_where_to_look() -> None:
    with pytest.raises(DataError, match=r"1,000 generations .* 1000"):
        walk_back(Chain(lambda number: number + 1), "0")
