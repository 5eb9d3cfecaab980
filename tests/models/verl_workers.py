"""Forks for Ray's workers of a training on two nodes: `python -m tests.models.verl_workers SOCKET`, itself a
fork that has imported verl's libraries, until its parent is gone or SIGTERM comes.
"""

import os
import sys

from standins.verl_cpu.fork_server import listen_with_modules, serve_forks

if __name__ == "__main__":
    serve_forks(listen_with_modules(sys.argv[1]), os.getppid())
