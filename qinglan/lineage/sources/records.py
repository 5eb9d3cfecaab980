"""The records that local runs leave, as a source of lineage. A run's folder may have been copied or moved."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from qinglan.errors import DataError
from qinglan.lineage.looking import records_in
from qinglan.lineage.sources import IMPORTER, Source, Step, Thing, differ, wanted

DEPTH = 4
"""How far below a folder runs are looked for."""


class Run(NamedTuple):
    folder: Path
    name: str
    steps: tuple[Step, ...]
    given: tuple[Step, ...]
    """What came from outside, as the importers that KFP would have."""


class RunRecords(Source):
    """A run's folder, or a folder with several runs below it; read anew with each question."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise DataError(f"{root}: no such folder. Give a run's folder, or the one that holds the runs.")
        self._root = root

    def makers(self, things: Collection[Thing]) -> Mapping[Thing, Step]:
        made = self._by_key(ran=True)
        return {thing: step for thing in things if (step := _first(made, thing))}

    def users(self, digest_or_uri: str) -> Iterator[Step]:
        thing = wanted(digest_or_uri)
        found = self._by_key(ran=False)[thing.uri or thing.digest]
        yield from {step.id: step for step, _ in found}.values()

    def steps(self, run: str = "") -> Iterator[Step]:
        for one in self._runs():
            if run in ("", one.name):
                yield from (*one.given, *one.steps)

    def locate(self, uri: str) -> Path | None:
        """Where an artifact is now, or None; one that was below a run's old place is looked for in the new."""
        runs = [run for run in self._runs() if any(uri == thing.uri for step in run.steps for thing in _things(step))]
        places = [place for run in runs if (place := _moved(run, uri))]
        if uri and urlsplit(uri).scheme in ("", "file"):
            places.append(Path(urlsplit(uri).path if uri.startswith("file:") else uri))
        return next((place for place in places if place.exists()), None)

    def _runs(self) -> list[Run]:
        return [_run(folder, self._root) for folder in _folders(self._root, DEPTH)]

    def _by_key(self, ran: bool) -> defaultdict[str, list[tuple[Step, Thing]]]:
        """Steps by the URI, the digest and the place now of what they made (those that ran to the end), or read."""
        found: defaultdict[str, list[tuple[Step, Thing]]] = defaultdict(list)
        for run in self._runs():
            made = [*run.given, *(step for step in run.steps if step.state == "done")]
            for step in made if ran else run.steps:
                for thing in step.outputs if ran else step.inputs:
                    for key in {thing.uri, thing.digest, str(_moved(run, thing.uri) or "")} - {""}:
                        found[key].append((step, thing))
        return found


def _first(made: Mapping[str, list[tuple[Step, Thing]]], thing: Thing) -> Step | None:
    steps = [step for step, output in made.get(thing.uri or thing.digest, ()) if not differ(thing, output)]
    return min(steps, key=lambda step: (step.stage == IMPORTER, step.started, step.id), default=None)


def _folders(folder: Path, depth: int) -> Iterator[Path]:
    if (folder / "records").is_dir():
        yield folder
    elif depth:
        for below in sorted(folder.iterdir()):
            if below.is_dir() and not below.name.startswith("."):
                yield from _folders(below, depth - 1)


def _run(folder: Path, root: Path) -> Run:
    name = folder.resolve().name if folder == root else folder.relative_to(root).as_posix()
    records = {path.stem: _read(path, path.stat().st_mtime_ns) for path in records_in(folder / "records")}
    steps = sorted((_step(name, stage, record) for stage, record in records.items()), key=lambda one: one.started)
    bare = Run(folder, name, tuple(steps), ())
    return bare._replace(given=tuple(_given(bare)))


@lru_cache(maxsize=4096)
def _read(path: Path, changed: int) -> dict[str, Any]:
    """A record as it was at this time of change."""
    try:
        record: dict[str, Any] = orjson.loads(path.read_bytes())
        return record
    except (OSError, orjson.JSONDecodeError) as error:
        raise DataError(f"{path}: no step's record ({error}). Run the step again, or take the file away.") from None


def _step(run: str, stage: str, record: Mapping[str, Any]) -> Step:
    facts = {**record.get("facts", {}), **{key: record[key] for key in ("code", "failure") if key in record}}
    inputs, outputs = (_named(record.get(key, {})) for key in ("inputs", "outputs"))
    started, ended = record.get("started", ""), record.get("ended", "")
    return Step(f"{run}/{stage}", stage, run, record.get("status", ""), inputs, outputs, started, ended, facts)


def _named(things: Mapping[str, Mapping[str, Any]]) -> tuple[Thing, ...]:
    return tuple(Thing(name, thing.get("sha256", ""), thing.get("uri", "")) for name, thing in things.items())


def _things(step: Step) -> tuple[Thing, ...]:
    return step.inputs + step.outputs


def _given(run: Run) -> Iterator[Step]:
    """An importer for each input that the run did not make; what an own step made over since was not given."""
    made = {thing.uri for step in run.steps for thing in step.outputs}
    inputs = dict.fromkeys(Thing("artifact", thing.digest, thing.uri) for step in run.steps for thing in step.inputs)
    for thing in inputs:
        if thing.uri not in made and _moved(run, thing.uri) is None:
            step_id = f"{run.name}/{IMPORTER}/{thing.digest}/{thing.uri}"
            yield Step(step_id, IMPORTER, run.name, "done", (), (thing,), "", "", {})


def _moved(run: Run, uri: str) -> Path | None:
    """Where a run's own artifact belongs now, or None if it is not one of its own."""
    path = Path(uri)
    for home in _homes(run.steps):
        if path.is_relative_to(home) and ".." not in path.parts:
            return run.folder / "artifacts" / path.relative_to(home)
    return None


def _homes(steps: Iterable[Step]) -> set[Path]:
    """The artifacts folders that the run has written to: KFP's layout is artifacts/<pipeline's run>/<task>/<name>."""
    places = (Path(thing.uri).parents for step in steps for thing in step.outputs)
    return {parents[2] for parents in places if len(parents) > 2 and parents[2].name == "artifacts"}
