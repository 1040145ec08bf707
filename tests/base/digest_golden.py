#!/usr/bin/env python3
"""Prints the table of digest_test.cpp from the Python package xxhash, an independent binding of the reference code.

The lengths fall into every branch of XXH3: 0, 1-3, 4-8, 9-16, 17-128, 129-240, long, and past one 1024-byte stripe block.
Byte i of the input is (i * 31 + 7) mod 256.
"""
import xxhash

for length in (0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1024, 1025, 4096, 100_003):
    data = bytes((i * 31 + 7) % 256 for i in range(length))
    print(f'    {{{length}, "{xxhash.xxh3_128_hexdigest(data)}"}},')
