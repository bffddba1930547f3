"""Fixtures of the tests of images."""

from support.image_store import put, store, wheels  # noqa: F401
