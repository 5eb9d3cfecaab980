"""What all processes hold of a machine's first GPU, read some times a second by NVIDIA's own program."""

import subprocess
import threading
from types import TracebackType
from typing import Self


class CardMemory:
    """`peak`, GiB, once its block has ended."""

    def __enter__(self) -> Self:
        command = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-lms", "200"]
        self.peak = 0.0
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.peak = max(self.peak, float(line) / 1024)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()
        self._reader.join()
