"""Start Ray again if its processes did not start within half a minute.

A busy machine can take longer, and Ray has no setting for this limit (ray/_private/node.py, "timed out during
startup").
"""

import functools
from typing import Any

from components.training.ppo.plugin.import_hooks import when_imported
from qinglan.jobs.inside.raylet import MAX_RAY_STARTS
from qinglan.terminal import say

TIMED_OUT = "timed out during startup"


@when_imported("ray")
def retry_ray_init(module: Any) -> None:
    once = module.init

    @functools.wraps(once)
    def init(*args: Any, **named: Any) -> Any:
        for attempt in range(1, MAX_RAY_STARTS):
            try:
                return once(*args, **named)
            except Exception as error:
                if TIMED_OUT not in str(error):
                    raise
                say(f"Ray did not start; attempt {attempt} of {MAX_RAY_STARTS}")
        return once(*args, **named)

    module.init = init


@when_imported("ray._private.node")
def kill_failed_node(module: Any) -> None:
    """Kill the processes of a node that did not start. Ray kills them only when this process ends (atexit)."""
    begin = module.Node.__init__

    @functools.wraps(begin)
    def init(self: Any, *args: Any, **named: Any) -> None:
        try:
            begin(self, *args, **named)
        except Exception as error:
            if TIMED_OUT in str(error):
                self.kill_all_processes(check_alive=False, allow_graceful=False)
            raise

    module.Node.__init__ = init
