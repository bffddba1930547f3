"""The blocking half. All but io.py is generated from _aio by tools/generate_sync.py."""
