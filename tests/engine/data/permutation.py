#!/usr/bin/env python3
"""The sample order, written a second time from its description: gives sample_permutation_test.cpp its golden values.

Usage: permutation.py COUNT SEED PASS
"""
import sys

M32 = 0xFFFFFFFF


def philox(k0, k1, c):
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & M32, (p0 >> 32) ^ c[3] ^ k1, p0 & M32]
        k0, k1 = (k0 + 0x9E3779B9) & M32, (k1 + 0xBB67AE85) & M32
    return c


def place(i, count, seed, pass_index):
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = i >> half, i & mask
        for r in range(8):
            f = philox(seed & M32, seed >> 32, [right, 0x64617461 + r, pass_index & M32, pass_index >> 32])[0]
            left, right = right, left ^ (f & mask)
        i = left << half | right
        if i < count:
            return i


if __name__ == "__main__":
    n, s, p = (int(a) for a in sys.argv[1:])
    print(", ".join(str(place(i, n, s, p)) for i in range(n)))
