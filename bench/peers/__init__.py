"""What stands beside us: one module per peer. A peer that cannot run here raises Skipped with the reason."""
