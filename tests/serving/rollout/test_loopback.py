"""Real traffic through real servers while the shipped controller moves it, and while things break."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.models.tiny_rewriter import taught_model
from tests.releases.registered_release import SignedRelease, use_keys
from tests.releases.whole_release import make_whole_release
from tests.serving.rollout.loopback import Answer, Place, client_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        yield use_keys(tmp_path_factory.mktemp("keys"), patch)


@pytest.fixture(scope="module")
def releases(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[SignedRelease, SignedRelease]:
    """Two real models, each with the whole lineage that deploying asks for."""
    folder = tmp_path_factory.mktemp("releases")
    first, second = (
        make_whole_release(folder / str(seed), keys, model=taught_model(folder / f"model-{seed}", seed=seed))
        for seed in (1, 2)
    )
    return first, second


@pytest.fixture
def place(releases: tuple[SignedRelease, SignedRelease], tmp_path: Path) -> Place:
    built = Place(tmp_path, *releases)
    built.begin()
    return built


def done(place: Place) -> bool:
    return place.state.phase == "Done"


def failures(answers: list[Answer]) -> list[Answer]:
    return [answer for answer in answers if answer.status != 200]


def when_it_has(place: Place, percent: int, act: Callable[[], object]) -> Callable[[], None]:
    """Once the canary really has so much of the traffic."""
    acted: list[object] = []

    def poll() -> None:
        if not acted and place.served.traffic.get(place.address(place.canary)) == percent:
            acted.append(act())

    return poll


@pytest.mark.parametrize("fault", ["500", "die"])  # every way is in tests/standins/rollout_local/test_router.py
def test_a_canary_that_starts_failing_at_20_percent_is_taken_back_and_no_user_sees_an_error(
    place: Place, fault: str
) -> None:
    with place.serving() as url, place.controlled():
        answers = asyncio.run(
            client_of(url, lambda: done(place), when_it_has(place, 20, lambda: place.break_canary(fault)))
        )
        state, served = place.state, place.served

    assert not failures(answers)
    assert state.outcome == "RolledBack" and any(why.startswith("errors") for why in state.reasons), state.reasons
    assert served.traffic == {place.address(place.stable): 100}
    assert {answer.version for answer in answers} >= {place.stable.registered.model[:12]}


def test_a_good_canary_is_promoted_and_no_request_is_dropped_though_its_controller_is_killed(place: Place) -> None:
    with place.serving() as url:
        with place.controlled() as first:
            kill = when_it_has(place, 50, lambda: first.send_signal(signal.SIGKILL))
            answers = asyncio.run(client_of(url, lambda: first.poll() is not None, kill))
        at_50 = place.state
        with place.controlled():
            answers += asyncio.run(client_of(url, lambda: done(place)))
        served = place.served

    assert first.returncode == -signal.SIGKILL and at_50.phase == "Analyse"
    assert not failures(answers)
    assert place.state.outcome == "Promoted", place.state.reasons
    assert served.traffic == {place.address(place.canary): 100}
    assert {answer.version for answer in answers} == {
        built.registered.model[:12] for built in (place.stable, place.canary)
    }
    assert place.state.history[: len(at_50.history)] == at_50.history
    shares = [entry.why for entry in place.state.history if entry.action == "step"]
    assert shares == ["the canary is given 20 %", "the canary is given 50 %"]
