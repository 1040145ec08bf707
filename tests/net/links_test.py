"""Hosts as network namespaces on one machine: links that go down, lose and delay. Needs root; skips visibly without."""
import json
import pathlib
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))

import cluster  # noqa: E402
from cluster import ClusterTest, wait_for  # noqa: E402
from hosts import Hosts, can_make_hosts  # noqa: E402

NODES = ["a", "b", "c"]  # the supervisor and clients are on host s


@unittest.skipUnless(can_make_hosts(), "making network namespaces needs root and iproute2")
class Links(ClusterTest):
    def setUp(self):
        super().setUp()
        self.hosts = Hosts()
        self.addCleanup(self.hosts.close)
        self.hosts.open()
        for name in NODES:
            self.hosts.add(name)
        self.job = self.write_job(steps=600)
        self.report = self.folder / "report.json"

    def start_on(self, name, *arguments):
        process = cluster.Process(arguments, self.folder, self.env, self.hosts.prefix_of(name))
        self.started.append(process)
        return process

    def start(self, *arguments):  # clients
        return self.start_on("s", *arguments)

    def start_cluster(self):
        supervisor = self.start("supervise", "--listen", "10.77.0.1:7700", "--state", self.folder / "state")
        wait_for(lambda: "--token" in supervisor.stdout or not supervisor.running(), "the join command is printed")
        line = next(line for line in supervisor.stdout.splitlines() if "kintsugi join" in line)
        nodes = {name: self.start_on(name, "join", *line.split()[2:], "--slots", 2, "--interface", "eth0")
                 for name in NODES}
        self.wait_for_nodes(len(NODES))
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
        self.hosts.cut("c")
        cut = time.monotonic()
        wait_for(lambda: len(self.status()["nodes"]) == 2, "the cut host is seen")
        self.assertLess(time.monotonic() - cut, 4.0)  # two seconds, and the time of a status command on a busy machine
        report = self.finish(client)
        self.assertIn("node lost", [i["kind"] for i in report["incidents"]])
        self.assertEqual(report["steps"][-1]["ranks"], 4)
        self.assertTrue(nodes["c"].running(), nodes["c"].stderr)  # it looks for its supervisor
        self.hosts.mend("c")
        wait_for(lambda: len(self.status()["nodes"]) == 3, "the host is back, as a new node")

    def test_two_hosts_that_reach_only_the_supervisor_are_kept_apart(self):
        self.job = self.write_job(steps=1500)
        nodes, client = self.start_cluster()
        self.hosts.cut_between("a", "b")
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
            for name in NODES:
                self.hosts.on("s", "tc", "qdisc", "add", "dev", f"to-{name}", "root", "netem", "delay", "2ms", "1ms", "loss",
                        "0.5%")
        except subprocess.CalledProcessError:
            self.skipTest("this kernel has no netem")
        self.job = self.write_job(steps=60)
        _, client = self.start_cluster()
        report = self.finish(client)
        self.assertEqual(report["incidents"], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
