"""Deep Agents, by langchain-tests' own suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from deepagents.backends.protocol import SandboxBackendProtocol
from glovebox.integrations.deepagents import GloveboxBackend
from langchain_tests.integration_tests import SandboxIntegrationTests

# What langchain-tests 1.1.9 expects and deepagents 0.7.32 itself, whose code these calls run, does otherwise.
_ABSOLUTE = "the suite wants paths relative to the search root, deepagents gives absolute ones"
CONTRADICTIONS = {
    "test_write_existing_file_fails": "the suite wants an error, deepagents overwrites",
    "test_glob_with_directories": "the suite wants directories among the matches, deepagents gives files only",
    "test_glob": _ABSOLUTE,
    "test_glob_basic_pattern": _ABSOLUTE,
    "test_glob_hidden_files_explicitly": _ABSOLUTE,
    "test_glob_with_character_class": _ABSOLUTE,
    "test_glob_with_question_mark": _ABSOLUTE,
}


@pytest.fixture(autouse=True)
def expect_contradictions(request: pytest.FixtureRequest) -> None:
    """Strict: a test that passes one day must leave the list."""
    if reason := CONTRADICTIONS.get(request.node.originalname or request.node.name):
        request.node.add_marker(pytest.mark.xfail(reason=f"optional: {reason}", strict=True))


class TestGloveboxBackend(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self, socket_path: str) -> Iterator[SandboxBackendProtocol]:
        with GloveboxBackend(socket=socket_path) as backend:
            yield backend
