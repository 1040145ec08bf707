#!/usr/bin/env python3
"""tax.py KINTSUGI [ROUNDS]: what sharing a job costs. examples/small.yaml on four one-thread ranks against one rank of two
threads, alternating; prints JSON with the tokens/s of each run and the median of the ratios. Run on an idle machine of two
cores, from the project's root, with build/data/train.bin prepared."""
import json
import statistics
import subprocess
import sys
import tempfile

STEPS = 10
SHARED = ["--ranks", "4", "--threads", "1"]
ALONE = ["--ranks", "1", "--threads", "2"]


def rate(kintsugi, layout):
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [kintsugi, "run", "examples/small.yaml", "--steps", str(STEPS), "--report", report.name, *layout]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        steps = json.load(open(report.name))["steps"]
    # The first steps touch memory for the first time.
    seconds = statistics.median(step["seconds"] for step in steps[2:])
    return 64 * 256 / seconds


def main():
    kintsugi, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    runs = [(rate(kintsugi, SHARED), rate(kintsugi, ALONE)) for _ in range(rounds)]
    ratios = [shared / alone for shared, alone in runs]
    print(json.dumps({"shared_tokens_per_second": [r[0] for r in runs], "alone_tokens_per_second": [r[1] for r in runs],
                      "ratios": ratios, "median_ratio": statistics.median(ratios)}, indent=2))


if __name__ == "__main__":
    main()
