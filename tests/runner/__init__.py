"""The parts that tests/run.py runs; each returns an Outcome."""
