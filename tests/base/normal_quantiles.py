#!/usr/bin/env python3
"""Makes the table of philox_test.cpp: quantiles of the normal distribution by mpmath, at 40 digits.

Needs mpmath. The probability of 64 random bits is the middle of one of 2^53 equal intervals, as in base/philox.cpp.
"""
import mpmath

mpmath.mp.dps = 40
SMALLEST, LARGEST = 0, (1 << 64) - 1
HANDPICKED = [SMALLEST, 1 << 11, 1 << 20, 1 << 30, 1 << 40, 1 << 50, 1 << 60, 0x1333333333333333, 0x1333333333334000,
              0x4000000000000000, 0x7FFFFFFFFFFFF800, 0x8000000000000000, 0xC000000000000000, 0xECCCCCCCCCCCC000,
              0xECCCCCCCCCCCD000, LARGEST - (1 << 50), LARGEST - (1 << 30), LARGEST - (1 << 12)]

for bits in HANDPICKED + [(i * 0x9E3779B97F4A7C15) & LARGEST for i in range(1, 15)]:
    p = (mpmath.mpf(bits >> 11) + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** 53
    tail = p if p < 0.5 else 1 - p
    quantile = mpmath.findroot(lambda x: mpmath.ncdf(x) - tail if x > -5 else mpmath.log(mpmath.ncdf(x) / tail),
                               -mpmath.sqrt(-2 * mpmath.log(2 * tail)) if tail < 0.4 else mpmath.mpf(-0.1))
    print(f"    {{0x{bits:016X}u, {mpmath.nstr(quantile if p < 0.5 else -quantile, 20)}}},")
