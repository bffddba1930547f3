"""Shared parts of the tests: running glovebox as root or as a user, and counting what it leaves behind."""
