"""The outside of the attempts: what surrounds a box, starts it, and judges what only the host can see."""
