"""The real rewriter's server, with a switch: once the file named by --broken is there, it fails as that file says.

500  answers 500
die  ends at once, in the middle of a question
"""

import os
import sys
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.rewriter import __main__ as program
from serving.rewriter import app as real


class Faulty:
    """In front of the real application, so that its counters know nothing of what is failed here."""

    def __init__(self, app: ASGIApp, switch: Path) -> None:
        self._app, self._switch = app, switch

    def __getattr__(self, name: str) -> object:
        return getattr(self._app, name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = self._switch.read_text() if scope.get("method") == "POST" and self._switch.exists() else ""
        if fault == "die":
            os._exit(1)
        if fault == "500":
            await JSONResponse({"error": "broken on purpose"}, 500)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def main() -> None:
    switch = Path(sys.argv.pop(sys.argv.index("--broken") + 1))
    sys.argv.remove("--broken")
    create = real.create_app

    def create_faulty(model: Any) -> Any:
        return Faulty(create(model), switch)

    real.create_app = create_faulty
    program.main()


if __name__ == "__main__":
    main()
