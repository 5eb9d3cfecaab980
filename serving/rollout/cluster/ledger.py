"""One ModelRollout: its spec and state, and the state written at the version that was read."""

from typing import Any

from qinglan.errors import ConfigError, OutageError
from qinglan.jobs.api import Api
from qinglan.rollouts import GROUP, KIND, VERSION
from serving.rollout.cluster.reading import Object
from serving.rollout.cluster.refused import explained
from serving.rollout.cluster.shelf import Shelf
from serving.rollout.ports import Entry
from serving.rollout.spec import RolloutSpec
from serving.rollout.state import State

ROLLOUTS = "modelrollouts"


class Unreadable(ConfigError):
    """A spec that the API server admits and we do not understand."""


class ClusterLedger:
    def __init__(self, api: Api, shelf: Shelf, name: str) -> None:
        self.api, self.shelf, self.name = api, shelf, name

    def read(self) -> Entry:
        return entry_of(self._object())

    def write(self, state: State, expected: str) -> None:
        """Conflict where anybody wrote to it meanwhile, be it a person's word in the spec."""
        found = self._object()
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "spec": found["spec"],
            "metadata": {**found["metadata"], "resourceVersion": expected},
            "status": status_of(state),
        }
        with explained(self.api):
            self.shelf.put(ROLLOUTS, self.api.replace(ROLLOUTS, f"{self.name}/status", body))

    def refuse(self, why: str, now: float) -> None:
        """The end of one whose spec cannot be read: nothing was changed for it, and nothing will be."""
        found = self._object()
        done = State(phase="Done", outcome="Refused", reasons=(why,)).noted(now, "Refused", why)
        self.write(done, str(found["metadata"]["resourceVersion"]))

    def _object(self) -> Object:
        found = self.shelf.get(ROLLOUTS, self.name)
        if found is None:
            raise OutageError(f"modelrollout {self.name} is gone: it was deleted. What it asked for last stays so.")
        return found


def entry_of(rollout: Object) -> Entry:
    meta = rollout["metadata"]
    where = f"modelrollout {meta['namespace']}/{meta['name']}"
    try:
        spec = RolloutSpec.parse(rollout["spec"], f"{where}: spec")
    except ConfigError as error:
        raise Unreadable(str(error)) from None
    return Entry(spec, state_of(rollout), str(meta["resourceVersion"]))


def state_of(rollout: Object) -> State:
    where = f"modelrollout {rollout['metadata']['namespace']}/{rollout['metadata']['name']}"
    return State.parse(rollout.get("status") or {}, f"{where}: status")


def status_of(state: State) -> dict[str, Any]:
    return state.model_dump(mode="json", by_alias=True, exclude_none=True)
