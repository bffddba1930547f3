"""The programs that Glovebox is compared with: one module for each. A peer that cannot run here raises Skipped with the
reason."""
