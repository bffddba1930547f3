"""Glovebox as the sandbox of agent frameworks, one module for each. None is imported unless somebody asks for it."""
