"""Where lineage is kept, behind one interface: which step made these bytes, from what, and who used them since.

    source = RunRecords(Path("runs/demo"))           # the records that a local run leaves
    source = Mlmd("metadata-grpc-service:8080")      # what KFP up to 2.18 writes
    for step in walk_back(source, "9f86d081..."):    # or an artifact's URI
        print(line(step))

Later KFP keeps no ML Metadata and answers over REST (artifacts, artifact_tasks, runs/{id}/tasks): that would be a
third Source. All of them are asked by what every store has, an artifact's URI and its digest.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from qinglan.errors import ConfigError, DataError

GENERATIONS = 1_000
"""A pipeline has tens; more than this is a store whose records never end."""

IMPORTER = "importer"
"""The stage of a step that made nothing: it names a file that the run was given."""


class Thing(NamedTuple):
    """An artifact as a store knows it."""

    name: str
    """In the step."""
    digest: str
    """Hex sha256, empty where the store does not know it."""
    uri: str


class Step(NamedTuple):
    """One execution that a store knows."""

    id: str
    stage: str
    run: str
    state: str
    """done, failed, running or cached."""
    inputs: tuple[Thing, ...]
    outputs: tuple[Thing, ...]
    started: str
    ended: str
    """ISO 8601 in UTC, or empty."""
    facts: Mapping[str, Any]
    """What the step said of itself; `code` is the version that ran. A store adds what only it knows."""


class Source(Protocol):
    """A store of lineage. What it does not know it leaves out; no answer at all is an OutageError."""

    def makers(self, things: Collection[Thing]) -> Mapping[Thing, Step]:
        """For each of these the step that made it: the one that ran, not one that took the result from a cache.

        A thing is looked for by its URI, else by its digest; one whose bytes have changed since is not it. Of several
        steps that made the same bytes it is the first, and an importer only if there is no other.
        """
        ...

    def users(self, digest_or_uri: str) -> Iterator[Step]:
        """Every step that read this, however it ended."""
        ...

    def steps(self, run: str = "") -> Iterator[Step]:
        """Every step of a run, or of all runs."""
        ...

    def maker(self, digest_or_uri: str) -> Step | None:
        """The step that made this, or None where the store knows of none."""
        return next(iter(self.makers([wanted(digest_or_uri)]).values()), None)


def wanted(digest_or_uri: str) -> Thing:
    """What a person asks for, as a thing to look for."""
    text = digest_or_uri.strip()
    if not text:
        raise ConfigError("Nothing to look for: give an artifact's sha256 (64 hex digits) or its URI.")
    return Thing("", text.lower(), "") if is_digest(text.lower()) else Thing("", "", text)


def is_digest(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{64}", text) is not None


def differ(one: Thing, other: Thing) -> bool:
    """Whether these surely are not the same bytes."""
    return bool(one.digest and other.digest and one.digest != other.digest)


def walk_back(source: Source, digest_or_uri: str) -> list[Step]:
    """Every ancestor once, nearest first; a cycle ends where it closes, and an endless chain is a DataError."""
    found: dict[str, Step] = {}
    asked: set[Thing] = set()
    things = [wanted(digest_or_uri)]
    for _ in range(GENERATIONS):
        made = source.makers(things)
        asked.update(things)
        steps = {made[thing].id: made[thing] for thing in things if thing in made}
        found |= steps
        things = list(dict.fromkeys(one for step in steps.values() for one in step.inputs if one not in asked))
        if not things:
            return list(found.values())
    raise DataError(
        f"{digest_or_uri} has more than {GENERATIONS:,} generations of ancestors, and no pipeline has. "
        f"Look at what the store says of {things[0].uri or things[0].digest}."
    )


def line(step: Step) -> str:
    """A step for a person, in one line."""
    inputs, outputs = (", ".join(map(_short, things)) or "nothing" for things in (step.inputs, step.outputs))
    return f"{step.stage}  {step.state}  {step.ended or step.started}  run {step.run}  {inputs} -> {outputs}"


def _short(thing: Thing) -> str:
    return f"{thing.name}@{thing.digest[:12] or thing.uri}"
