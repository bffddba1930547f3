"""Needs nothing but Python:  glovebox run examples/primes.py 50"""

import sys


def primes_below(limit: int) -> list[int]:
    sieve = bytearray([1]) * limit
    sieve[:2] = b"\0\0"[:limit]
    for number in range(2, int(limit**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, limit, number)))
    return [number for number in range(limit) if sieve[number]]


if __name__ == "__main__":
    print(*primes_below(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
