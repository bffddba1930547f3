"""The asyncio half, and the source of the blocking one: tools/generate_sync.py makes _sync of it, all but io.py."""
