#!/usr/bin/env python3
"""All-reduce of float32 beside Open MPI and Gloo, in turns in one run: compare.py BUILD_FOLDER [--rounds N].

Prints JSON: for each number of ranks and size the median and quartiles in microseconds of each program, and the ratios
to the peers' medians and least times (above 1: faster than the peer). Rounds alternate the programs, so that a change
of the machine's load falls on all; on a busy machine the least times are the ones to read."""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess


def commands(build, ranks):
    programs = {
        "arena": [build / "kintsugi_all_reduce", ranks, "arena"],
        "copy": [build / "kintsugi_all_reduce", ranks, "copy"],
        "openmpi": ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", ranks, build / "openmpi_all_reduce"],
        "gloo": [build / "gloo_all_reduce", ranks],
    }
    for name, command in programs.items():
        program = command[-1] if name == "openmpi" else command[0]
        if program.exists():
            yield name, [str(word) for word in command]


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return {
        "median_us": round(middle, 1),
        "p25_us": round(low, 1),
        "p75_us": round(high, 1),
        "least_us": round(min(values), 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    options = parser.parse_args()
    times = {}
    for ranks in options.ranks:
        for _ in range(options.rounds):
            for name, command in commands(options.build.resolve(), ranks):
                run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
                for line in run.stdout.splitlines():
                    row = json.loads(line)
                    times.setdefault((ranks, row["bytes"]), {}).setdefault(name, []).extend(row["us"])
    rows = []
    for (ranks, size), by_name in sorted(times.items()):
        row = {"ranks": ranks, "bytes": size, **{name: quartiles(us) for name, us in by_name.items()}}
        for peer in ("openmpi", "gloo"):
            if peer in row:
                for of in ("median", "least"):
                    row[f"{of}_speed_to_{peer}"] = round(row[peer][f"{of}_us"] / row["arena"][f"{of}_us"], 2)
        rows.append(row)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    machine = {"cores": len(os.sched_getaffinity(0)), "kernel": platform.release()}
    print(json.dumps({"commit": commit.stdout.strip(), "machine": machine, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
