"""Glovebox as the sandbox of agent frameworks, one module for each. None is imported by default."""
