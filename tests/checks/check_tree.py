#!/usr/bin/env python3
"""Rejects what the layers and the determinism rules forbid (docs/ARCHITECTURE.md). Prints `file:line: rule: why`.

    check_tree.py [ROOT]

A line that must break a rule says so on itself, with the reason: `// lint-allow(sleep): the peer has no event for this`.
Python's standard library only. check_tree_test.py plants one violation of each rule and sees it caught.
"""
import pathlib
import re
import sys

# Lowest first. A folder may include from its own and from lines above it; folders on one line do not see each other.
LAYERS = [
    ["base"],
    ["schemas", "kernels"],
    ["transport"],
    ["engine/telemetry"],
    ["engine/model"],
    ["engine/data", "engine/state"],
    ["engine/plan"],
    ["engine/control"],
    ["engine/pipeline", "engine/checkpoint"],
    ["actors", "sim"],
    ["cli"],
]
# May include from anywhere; nothing includes from them.
ABOVE_ALL = ["tests", "bench", "examples"]

# Include pattern -> the only places (path prefixes) that may have it. A test may have what the folder it tests may have.
FOREIGN = {
    "CAF": (r"caf/", ["actors/"]),
    "Asio": (r"boost/", ["transport/link/"]),
    "OpenSSL": (r"openssl/", ["transport/link/"]),
    "UCX": (r"(ucp|uct|ucs|ucm)/", ["transport/ucx/"]),
    "NCCL": (r"nccl", ["transport/nccl/"]),
    "CUDA": (r"(cuda|cublas|curand|nvml|nvtx|cooperative_groups)",
             ["kernels/cuda/", "transport/nccl/", "engine/telemetry/nvml"]),
    "oneDNN": (r"(oneapi/)?dnnl", ["kernels/cpu/"]),
    "Highway": (r"hwy/", ["kernels/cpu/"]),
    "yaml-cpp": (r"yaml-cpp/", ["engine/model/"]),
    "CLI11": (r"CLI/", ["cli/"]),
    "spdlog": (r"spdlog/", ["base/log.cpp"]),
}

# Rule -> (pattern, where it is banned, why). An empty `where` means everywhere outside base/.
BANNED = {
    "clock": (r"\w*_clock\s*::\s*now\b|\b(clock_gettime|gettimeofday)\s*\(|(?<![\w.>])time\s*\(\s*(nullptr|NULL|0)\s*\)",
              [], "time comes in as a Clock or an Instant (base/clock.hpp)"),
    "sleep": (r"\b(sleep_for|sleep_until|usleep|nanosleep|clock_nanosleep)\b|(?<![\w.>])sleep\s*\(",
              [], "wait for a condition with a deadline (base/event.hpp)"),
    "random": (r"(?<![\w.>])s?rand\s*\(|\b(random_device|mt19937(_64)?|default_random_engine|minstd_rand0?)\b"
               r"|\bstd::\w+_distribution\b|(?<![\w.>])(random_)?shuffle\s*\(",
               [], "randomness is counter-based (base/philox.hpp)"),
    "thread-id": (r"\bthis_thread\s*::\s*get_id\b|\b(pthread_self|gettid)\s*\(",
                  ["engine/", "sim/", "actors/"], "a decision must not depend on which thread runs it"),
    "unordered": (r"\bunordered_(multi)?(map|set)\b", ["engine/control/", "engine/plan/", "sim/"],
                  "its order of iteration is not a function of its contents"),
    "pointer-order": (r"\bstd::(multi)?(set|map)\s*<\s*(const\s+)?[\w:]+\s*(const\s*)?\*",
                      ["engine/control/", "engine/plan/", "sim/"], "the order of addresses differs from run to run"),
}

MAX_LINES = 400  # past this, look for the second idea in the file
SOURCE = {".hpp", ".cpp", ".cu", ".cuh", ".h"}

TOKEN = re.compile(
    r'(?P<raw>R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)")'
    r'|(?P<line>//[^\n]*)|(?P<block>/\*.*?\*/)'
    r'|(?P<text>"(?:\\.|[^"\\\n])*")'
    r"|(?P<char>(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+')", re.S)
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
ALLOW = re.compile(r"lint-allow\(([\w-]+)\):\s*\S")
CMAKE_CALL = re.compile(r"\b(kintsugi_library|kintsugi_test|add_library|add_executable|target_link_libraries)"
                        r"\s*\(\s*([\w${}]+)([^)]*)\)")


def without(source, *kinds):
    """`source` with those kinds of token blanked out; line numbers stay."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group()) if match.lastgroup in kinds or (
            match.group("raw") and "raw" in kinds) else match.group()
    return TOKEN.sub(blank, source)


def layer_of(path):
    """The (level, folder) of a path, None where it has none."""
    for level, folders in enumerate(LAYERS):
        for folder in folders:
            if path == folder or path.startswith(folder + "/"):
                return level, folder
    return None


def sees(user, used):
    return used == user or used[0] < user[0]


class Checker:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.violations = []  # (path, line, rule, why)
        self.warnings = []
        self.sources = 0

    def report(self, path, source, offset, rule, why):
        number = source.count("\n", 0, offset) + 1
        allowed = ALLOW.search(source.split("\n")[number - 1])
        if not (allowed and allowed.group(1) == rule):
            self.violations.append((path, number, rule, why))

    def files(self):
        for path in sorted(self.root.rglob("*")):
            parts = path.relative_to(self.root).parts
            if any(p.startswith(".") or p == "build" for p in parts) or not path.is_file():
                continue
            yield "/".join(parts), path

    def run(self):
        cmake = {}
        for name, path in self.files():
            if path.name == "CMakeLists.txt":
                cmake[name] = re.sub(r"#[^\n]*", "", path.read_text())
            elif path.suffix in SOURCE:
                self.sources += 1
                self.source(name, path.read_text(encoding="utf-8"))
        self.links(cmake)
        return not self.violations

    def source(self, name, source):
        lines = source.count("\n")
        if lines > MAX_LINES:
            self.warnings.append((name, lines))
        here = layer_of(name)
        if here is None and name.split("/")[0] not in ABOVE_ALL:
            self.report(name, source, 0, "layer", "this folder stands in no layer; add it to LAYERS in check_tree.py")
        self.includes(name, source, here)
        code = without(source, "line", "block", "text", "char", "raw")
        for rule, (pattern, where, why) in BANNED.items():
            banned_here = name.startswith(tuple(where)) if where else not name.startswith("base/")
            if banned_here:
                for match in re.finditer(pattern, code):
                    self.report(name, source, match.start(), rule, f"`{match.group().strip()}`: {why}")

    def includes(self, name, source, here):
        code = without(source, "line", "block", "raw")
        found = list(INCLUDE.finditer(code))
        own = name.rsplit(".", 1)[0] + ".hpp"
        per_target = any(m.group(1) == "hwy/foreach_target.h" for m in found)  # Highway wants its own order
        if name.endswith(".cpp") and found and not per_target and (self.root / own).is_file() and found[0].group(1) != own:
            self.report(name, source, found[0].start(1), "own-header", f"the first include must be {own}")
        for match in found:
            target = match.group(1)
            there = layer_of(target)
            if there and here and not sees(here, there):
                self.report(name, source, match.start(1), "upward", f"{here[1]} may not include {target}")
            elif here and target.split("/")[0] in ABOVE_ALL and "/" in target:
                self.report(name, source, match.start(1), "upward", f"nothing includes from {target.split('/')[0]}/")
            elif '"' in match.group() and "/" not in target:
                self.report(name, source, match.start(1), "relative", f"{target}: write the path from the root")
            self.foreign(name, source, match)

    def foreign(self, name, source, match):
        if name.startswith("bench/"):
            return  # measures against peers
        for library, (pattern, places) in FOREIGN.items():
            if not re.match(pattern, match.group(1)):
                continue
            tested = name[len("tests/"):].split("/")[0] + "/" if name.startswith("tests/") else None
            if not name.startswith(tuple(places)) and not (tested and any(p.startswith(tested) for p in places)):
                self.report(name, source, match.start(1), "foreign", f"{library} belongs in {', '.join(places)} only")

    def links(self, cmake):
        calls = [(name, text, m) for name, text in cmake.items() for m in CMAKE_CALL.finditer(text)]
        home = {}  # target -> layer
        for name, _, match in calls:
            if match.group(1) != "target_link_libraries":
                home[match.group(2)] = layer_of(name)
        for name, text, match in calls:
            here = layer_of(name)
            for word in re.findall(r"[\w-]+", match.group(3)):
                there = home.get(word)
                if here and there and not sees(here, there):
                    self.report(name, text, match.start(), "link", f"{match.group(2)} may not link to {word}")


def main(arguments):
    root = arguments[0] if arguments else pathlib.Path(__file__).resolve().parents[2]
    checker = Checker(root)
    fine = checker.run()
    for name, lines in checker.warnings:
        print(f"warning: {name} has {lines} lines; is there a second idea in it?")
    for name, number, rule, why in checker.violations:
        print(f"{name}:{number}: {rule}: {why}")
    print(f"{checker.sources} files checked, {len(checker.violations)} violations")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
