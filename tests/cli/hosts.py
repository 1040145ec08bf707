"""Hosts as network namespaces on one machine, for faults of links. Needs root and iproute2."""
import os
import shutil
import subprocess


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


def can_make_hosts():
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    name = f"kt{os.getpid()}p"
    if ip("netns", "add", name, check=False).returncode != 0:
        return False
    ip("netns", "del", name)
    return True


class Hosts:
    """Host s has a bridge, and the address 10.77.0.1; every other host hangs on it by one cable and has eth0, 10.77.0.2 and on."""

    SUPERVISOR = "10.77.0.1"

    def __init__(self):
        self.prefix = f"kt{os.getpid() % 100000}"
        self.names = []

    def open(self):
        ip("netns", "add", self.namespace("s"))
        self.on("s", "ip", "link", "add", "bridge", "type", "bridge")
        self.on("s", "ip", "addr", "add", f"{self.SUPERVISOR}/24", "dev", "bridge")
        for device in ("lo", "bridge"):
            self.on("s", "ip", "link", "set", device, "up")

    def add(self, name):
        self.names.append(name)
        ip("netns", "add", self.namespace(name))
        self.on("s", "ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", self.namespace(name))
        self.on("s", "ip", "link", "set", f"to-{name}", "master", "bridge", "up")
        self.on(name, "ip", "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            self.on(name, "ip", "link", "set", device, "up")

    def address(self, name):
        return f"10.77.0.{self.names.index(name) + 2}"

    def namespace(self, name):
        return f"{self.prefix}{name}"

    def prefix_of(self, name):
        """What a command is to begin with, to run there."""
        return ["ip", "netns", "exec", self.namespace(name)]

    def on(self, name, *command):
        subprocess.run([*self.prefix_of(name), *command], check=True, capture_output=True)

    def cut(self, name):
        self.on("s", "ip", "link", "set", f"to-{name}", "down")

    def mend(self, name):
        self.on("s", "ip", "link", "set", f"to-{name}", "up")

    def cut_between(self, one, other):
        """Frames of each to the other leave, and arrive nowhere."""
        for here, there in [(one, other), (other, one)]:
            self.on(here, "ip", "neigh", "replace", self.address(there), "lladdr", "02:00:00:00:00:99", "nud", "permanent",
                    "dev", "eth0")

    def close(self):
        for name in ["s", *self.names]:
            ip("netns", "del", self.namespace(name), check=False)
