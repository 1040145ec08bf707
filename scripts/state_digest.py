#!/usr/bin/env python3
"""Checks a save of `kintsugi run --save DIR` without kintsugi: every digest is computed a second time.

Usage: state_digest.py DIR

Prints the state digest. Exit 0: all agree; 1: a check failed; 2: wrong usage, or the Python package xxhash is missing
(Debian: python3-xxhash). The files are described in schemas/state.capnp, the digests in engine/state/state_digest.hpp.
"""
import os
import re
import struct
import sys

try:
    import xxhash
except ImportError:
    print("state_digest.py: needs the Python package xxhash (Debian: python3-xxhash)", file=sys.stderr)
    sys.exit(2)

PAGE = 4096
BLOCK = 4096 * 4  # bytes of 4096 float32
SHARD_MAGIC = int.from_bytes(b"KNTSHARD", "little")
STATE_MAGIC = int.from_bytes(b"KNTSTATE", "little")
POSITION = ("magic", "version", "identity_high", "identity_low", "lineage", "step", "updates", "data_position")
SHARD = POSITION + ("shard", "group", "offset", "count", "digest_high", "digest_low")
MANIFEST = POSITION + ("digest_high", "digest_low", "shard_count")


class Damaged(Exception):
    pass


def require(condition, what):
    if not condition:
        raise Damaged(what)


def integers(data, names, path):
    """The first integers of the root struct of a one-segment Cap'n Proto message: from byte 16 on."""
    require(len(data) >= 16 + 8 * len(names), f"{path}: too short")
    require(data[:4] == bytes(4), f"{path}: more than one segment")
    return dict(zip(names, struct.unpack_from(f"<{len(names)}Q", data, 16)))


def words(*values):
    return struct.pack(f"<{len(values)}Q", *values)


def check_shard(path, manifest):
    with open(path, "rb") as file:
        data = file.read()
    header = integers(data, SHARD, path)
    require(header["magic"] == SHARD_MAGIC and header["version"] == 1, f"{path}: not a shard of version 1")
    for name in POSITION[2:]:
        require(header[name] == manifest[name], f"{path}: {name} differs from the manifest's")
    size = 4 * header["count"]
    require(len(data) == PAGE + 3 * size, f"{path}: has {len(data)} bytes, not {PAGE + 3 * size}")
    arrays = [memoryview(data)[PAGE + i * size : PAGE + (i + 1) * size] for i in range(3)]
    digest = xxhash.xxh3_128()
    for at in range(0, size, BLOCK):
        for array in arrays:
            digest.update(array[at : at + BLOCK])
    found = digest.intdigest()
    require(found == header["digest_high"] << 64 | header["digest_low"], f"{path}: its values have digest {found:032x}")
    return words(header["shard"], header["digest_high"], header["digest_low"])


def check(directory):
    state = os.path.join(directory, "state")
    path = os.path.join(state, "manifest.capnp")
    with open(path, "rb") as file:
        data = file.read()
    with open(os.path.join(state, "manifest.xxh128"), encoding="ascii") as file:
        require(file.read().split()[0] == xxhash.xxh3_128(data).hexdigest(), f"{path}: not as it was written")
    manifest = integers(data, MANIFEST, path)
    require(manifest["magic"] == STATE_MAGIC and manifest["version"] == 1, f"{path}: not a manifest of version 1")
    names = [name for name in os.listdir(state) if re.fullmatch(r"shard-\d{8,10}\.bin", name)]
    names.sort(key=lambda name: int(name[6:-4]))
    require(len(names) == manifest["shard_count"], f"{state}: {len(names)} shards, not {manifest['shard_count']}")
    digest = xxhash.xxh3_128(words(*(manifest[name] for name in POSITION[2:4] + POSITION[5:])))
    for name in names:
        digest.update(check_shard(os.path.join(state, name), manifest))
    found = digest.intdigest()
    require(found == manifest["digest_high"] << 64 | manifest["digest_low"], f"{path}: state has digest {found:032x}")
    return manifest, found


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        manifest, digest = check(sys.argv[1])
    except (Damaged, OSError) as why:
        print(f"state_digest.py: {why}", file=sys.stderr)
        return 1
    print(f"{digest:032x}  step {manifest['step']}, t {manifest['updates']}, {manifest['shard_count']} shards")
    return 0


if __name__ == "__main__":
    sys.exit(main())
