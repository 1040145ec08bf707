"""Hosts as network namespaces on one machine: links that go down, lose and delay. Needs root; skips visibly without."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))

import cluster  # noqa: E402
from cluster import ClusterTest, wait_for  # noqa: E402

HOSTS = ["a", "b", "c"]  # nodes; the supervisor and clients are on host s


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


def can_make_namespaces():
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    name = f"kt{os.getpid()}p"
    if ip("netns", "add", name, check=False).returncode != 0:
        return False
    ip("netns", "del", name)
    return True


@unittest.skipUnless(can_make_namespaces(), "making network namespaces needs root and iproute2")
class Links(ClusterTest):
    """s has a bridge; every other host hangs on it by one cable: 10.77.0.1 and on."""

    def setUp(self):
        super().setUp()
        self.prefix = f"kt{os.getpid() % 100000}"
        self.addCleanup(self.remove_hosts)
        ip("netns", "add", self.host("s"))
        self.on("s", "ip", "link", "add", "bridge", "type", "bridge")
        self.on("s", "ip", "addr", "add", "10.77.0.1/24", "dev", "bridge")
        for device in ("lo", "bridge"):
            self.on("s", "ip", "link", "set", device, "up")
        for number, name in enumerate(HOSTS, start=2):
            ip("netns", "add", self.host(name))
            self.on("s", "ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", self.host(name))
            self.on("s", "ip", "link", "set", f"to-{name}", "master", "bridge", "up")
            self.on(name, "ip", "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                self.on(name, "ip", "link", "set", device, "up")
        self.job = self.write_job(steps=600)
        self.report = self.folder / "report.json"

    def host(self, name):
        return f"{self.prefix}{name}"

    def on(self, name, *command):
        subprocess.run(["ip", "netns", "exec", self.host(name), *command], check=True, capture_output=True)

    def remove_hosts(self):
        for name in ["s", *HOSTS]:
            ip("netns", "del", self.host(name), check=False)

    def start_on(self, name, *arguments):
        process = cluster.Process(arguments, self.folder, self.env, ["ip", "netns", "exec", self.host(name)])
        self.started.append(process)
        return process

    def start(self, *arguments):  # clients
        return self.start_on("s", *arguments)

    def start_cluster(self):
        supervisor = self.start("supervise", "--listen", "10.77.0.1:7700", "--state", self.folder / "state")
        wait_for(lambda: "--token" in supervisor.stdout or not supervisor.running(), "the join command is printed")
        line = next(line for line in supervisor.stdout.splitlines() if "kintsugi join" in line)
        nodes = {name: self.start_on(name, "join", *line.split()[2:], "--slots", 2, "--interface", "eth0")
                 for name in HOSTS}
        self.wait_for_nodes(len(HOSTS))
        client = self.start("submit", self.job, "--state", "state", "--ranks", 6, "--threads", 1, "--report", self.report)
        self.wait_for_step(client)
        return nodes, client

    def finish(self, client):
        self.assertEqual(client.wait(), 0, client.stderr)
        report = json.loads(self.report.read_text())
        quiet = self.train("--ranks", 1, "--threads", 2)
        self.assertEqual([s["digest"] for s in report["steps"]], [s["digest"] for s in quiet["steps"]])
        return report

    def test_a_host_whose_cable_is_pulled_is_left_behind_within_the_detection_window(self):
        nodes, client = self.start_cluster()
        self.on("s", "ip", "link", "set", "to-c", "down")
        cut = time.monotonic()
        wait_for(lambda: len(self.status()["nodes"]) == 2, "the cut host is seen")
        self.assertLess(time.monotonic() - cut, 4.0)  # two seconds, and the time of a status command on a busy machine
        report = self.finish(client)
        self.assertIn("node lost", [i["kind"] for i in report["incidents"]])
        self.assertEqual(report["steps"][-1]["ranks"], 4)
        self.assertTrue(nodes["c"].running(), nodes["c"].stderr)  # it looks for its supervisor
        self.on("s", "ip", "link", "set", "to-c", "up")
        wait_for(lambda: len(self.status()["nodes"]) == 3, "the host is back, as a new node")

    def cut_between(self, one, other):
        """Frames of each to the other leave, and arrive nowhere."""
        for here, there in [(one, other), (other, one)]:
            address = f"10.77.0.{HOSTS.index(there) + 2}"
            self.on(here, "ip", "neigh", "replace", address, "lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", "eth0")

    def test_two_hosts_that_reach_only_the_supervisor_are_kept_apart(self):
        self.job = self.write_job(steps=1500)
        nodes, client = self.start_cluster()
        self.cut_between("a", "b")
        report = self.finish(client)
        incidents = [i for i in report["incidents"] if i["kind"] == "link cut"]
        self.assertEqual(len(incidents), 1, report["incidents"])
        self.assertRegex(incidents[0]["target"], "between node . .* and node ")
        # Found twice: in the step, and by the first word that does not come over new connections.
        self.assertLess(incidents[0]["first_commit_s"] - incidents[0]["detected_s"], 5.0 + 2.0)
        self.assertEqual(report["steps"][-1]["ranks"], 4)
        self.assertTrue(all(node.running() for node in nodes.values()))  # nobody was evicted

    def test_training_goes_through_loss_and_delay_without_a_false_eviction(self):
        try:
            for name in HOSTS:
                self.on("s", "tc", "qdisc", "add", "dev", f"to-{name}", "root", "netem", "delay", "2ms", "1ms", "loss",
                        "0.5%")
        except subprocess.CalledProcessError:
            self.skipTest("this kernel has no netem")
        self.job = self.write_job(steps=60)
        _, client = self.start_cluster()
        report = self.finish(client)
        self.assertEqual(report["incidents"], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
