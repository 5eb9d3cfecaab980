"""ModelRollouts in files. The deploy stage creates them, and one controller at a time carries them out."""

import fcntl
from pathlib import Path
from typing import IO, Any

from qinglan.files.plain_files import open_lock
from qinglan.kubernetes.model_rollouts import Object, rollout_number, rollout_outcome
from serving.rollout.ports import RolloutSnapshot
from serving.rollout.spec import RolloutSpec
from serving.rollout.state import State
from standins.rollout_local.object_files import ObjectFiles

ROLLOUTS, LEADER = "rollouts", "controller.lock"


class FileRollouts:
    def __init__(self, folder: Path) -> None:
        self.objects = ObjectFiles(folder / ROLLOUTS)

    def all(self) -> list[Object]:
        return [self.objects.read(name) for name in self.objects.names()]

    def create(self, rollout: Object) -> bool:
        return self.objects.create(rollout["metadata"]["name"], rollout)

    def next(self) -> str:
        """Return the name of the oldest rollout that has not ended; "" if all have ended."""
        unfinished = [rollout for rollout in self.all() if not rollout_outcome(rollout)]
        return str(min(unfinished, key=rollout_number)["metadata"]["name"]) if unfinished else ""


class FileLedger:
    """Ledger of one ModelRollout in a file."""

    def __init__(self, folder: Path, name: str) -> None:
        self._objects, self._name = ObjectFiles(folder / ROLLOUTS), name

    def read(self) -> RolloutSnapshot:
        rollout = self._objects.read(self._name)
        return RolloutSnapshot(parse_spec(rollout), parse_state(rollout), str(rollout["metadata"]["resourceVersion"]))

    def write(self, state: State, expected: str) -> None:
        rollout = self._objects.read(self._name)
        rollout["metadata"]["resourceVersion"] = expected
        rollout["status"] = state.model_dump(mode="json", by_alias=True)
        self._objects.replace(self._name, rollout)


class FileLease:
    """Lock on a file, which is held until the process ends; the kernel releases it even after SIGKILL."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LEADER
        self._lock: IO[Any] | None = None

    def held(self) -> bool:
        if self._lock is not None:
            return True
        lock = open_lock(self._path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        self._lock = lock
        return True

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()


def parse_spec(rollout: Object) -> RolloutSpec:
    return RolloutSpec.parse(rollout["spec"], str(rollout["metadata"]["name"]))


def parse_state(rollout: Object) -> State:
    return State.parse(rollout.get("status") or {}, str(rollout["metadata"]["name"]))
