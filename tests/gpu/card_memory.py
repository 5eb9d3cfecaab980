"""What all processes hold of a machine's first GPU, read some times a second by NVIDIA's own program."""

import subprocess
import threading
import time
from types import TracebackType
from typing import Self


class CardMemory:
    """GiB, once its block has ended: the `peak`, and `seconds`, the most in each second."""

    def __enter__(self) -> Self:
        command = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-lms", "200"]
        self.peak, self.seconds = 0.0, dict[int, float]()
        self._started = time.monotonic()
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        for line in self._process.stdout or ():
            used, second = float(line) / 1024, int(time.monotonic() - self._started)
            self.peak = max(self.peak, used)
            self.seconds[second] = max(self.seconds.get(second, 0.0), used)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()
        self._reader.join()
