"""The commands' fixtures."""

from tests.commands.conftest import here, server, small, stack_without_source_lines

__all__ = ["here", "server", "small", "stack_without_source_lines"]
