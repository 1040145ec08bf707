"""Whole runs with real processes: clean ends, deaths, garbage, equal bits."""
import json
import os
import pathlib
import random
import re
import signal
import socket
import time
import unittest

from cluster import DEADLINE, PROMPT, ClusterTest, wait_for

LONG = 1_000_000  # steps: never done by itself


class Bits(ClusterTest):
    def test_any_number_of_ranks_gives_the_same_digest_and_does_the_same_work(self):
        reports = [self.train("--ranks", n, "--nodes", m, "--stages", s, "--threads", 1, *more)
                   for n, m, s, more in [(1, 1, 1, []), (2, 1, 2, []), (3, 2, 2, []), (4, 2, 1, []),
                                         (2, 1, 2, ["--transport", "ucx"])]]
        for report in reports:
            self.assertEqual(report["final_digest"], reports[0]["final_digest"])
            self.assertEqual([s["digest"] for s in report["steps"]], [s["digest"] for s in reports[0]["steps"]])
            stages = len(report["plan"]["stages"])
            self.assertEqual(sum(r["cells"] for r in report["per_rank"]), 3 * 8 * stages)
        self.assert_nothing_left()

    def test_a_saved_and_resumed_run_equals_a_straight_one(self):
        straight = self.train("--ranks", 2, "--steps", 6)
        self.train("--ranks", 1, "--steps", 3, "--save", "half")
        self.assertTrue((self.folder / "half/config.json").exists())
        self.assertTrue((self.folder / "half/model.safetensors").exists())
        resumed = self.train("--ranks", 3, "--steps", 6, "--resume", "half", "--save", "half")
        self.assertEqual(resumed["final_digest"], straight["final_digest"])
        self.assertEqual([s["step"] for s in resumed["steps"]], [4, 5, 6])
        self.expect(2, "run", self.job, "--steps", 6, "--resume", "half", says=["--steps"])
        self.expect(0, "generate", "--model", "half", "--prompt", "It was", "--tokens", 5, says=["It was"])

    def test_the_report_has_every_key_of_the_manual(self):
        report = self.train("--ranks", 2)
        for key in ["job", "steps", "final_digest", "tokens", "tokens_per_second", "mfu", "incidents", "goodput", "per_rank",
                    "reduction", "version"]:
            self.assertIn(key, report)
        for key in ["step", "loss", "grad_norm", "digest", "generation", "ranks", "seconds"]:
            self.assertIn(key, report["steps"][0])
        for key in ["rank", "cells", "flops", "bytes_sent", "peak_memory_bytes", "compute_s", "wait_s"]:
            self.assertIn(key, report["per_rank"][0])
        self.assertEqual(report["steps"][-1]["digest"], report["final_digest"])
        self.assertEqual(report["tokens"], 3 * 8 * 16)


def minds_signals(pid):
    """It has SIGINT in its own hands: blocked, to be read as an event."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"SigBlk:\s*(\w+)", status).group(1), 16) >> (signal.SIGINT - 1) & 1


class Ends(ClusterTest):
    def setUp(self):
        super().setUp()
        self.job = self.write_job(steps=LONG)

    def start_run(self, *arguments):
        return self.start("run", self.job, "--ranks", 2, "--threads", 1, *arguments)

    def expect_prompt_end(self, process, code, since):
        self.assertEqual(process.wait(), code, process.stderr)
        self.assertLess(time.monotonic() - since, PROMPT, process.stderr)
        self.assert_nothing_left()

    def test_an_interrupt_at_any_moment_ends_all_within_two_seconds(self):
        random_moment = random.Random(20261129)
        for number in range(8):
            process = self.start_run("--nodes", 1 + number % 2, "--save", "model")
            wait_for(lambda: minds_signals(process.pid), "the command has begun, its libraries are loaded")
            moment = time.monotonic() + random_moment.uniform(0.0, 2.5)
            wait_for(lambda: time.monotonic() >= moment, "the moment has come")
            since = time.monotonic()
            process.popen.send_signal([signal.SIGINT, signal.SIGTERM][number % 2])
            with self.subTest(number=number):
                self.expect_prompt_end(process, 130, since)
                self.assertFalse((self.folder / "model").exists())

    def test_a_killed_run_leaves_no_process(self):
        process = self.start_run("--nodes", 2)
        self.wait_for_step(process)
        process.popen.kill()
        process.wait()
        self.assert_nothing_left()

    def cluster_with_job(self):
        supervisor, join = self.supervise()
        nodes = [self.start("join", *join, "--slots", 1) for _ in range(2)]
        client = self.start("submit", self.job, "--state", "state", "--ranks", 2, "--threads", 1)
        self.wait_for_step(client)
        return supervisor, nodes, client, join

    def test_cancel_ends_the_job_and_keeps_the_cluster(self):
        supervisor, nodes, client, _ = self.cluster_with_job()
        second = self.run_command("submit", self.job, "--state", "state")
        self.assertEqual(second.popen.returncode, 3)
        self.assertIn("kintsugi cancel", second.stderr)
        self.assertEqual(self.run_command("cancel", "--state", "state").popen.returncode, 0)
        self.assertEqual(client.wait(), 130)
        wait_for(lambda: not self.status()["jobs"], "the job is gone")
        self.assertEqual(len(self.status()["nodes"]), 2)
        short = self.write_job("short.yaml")
        again = self.run_command("submit", short, "--state", "state", "--ranks", 2)
        self.assertEqual(again.popen.returncode, 0, again.stderr)
        supervisor.popen.terminate()
        self.assertEqual(supervisor.wait(), 130)
        for node in nodes:
            self.assertEqual(node.wait(), 0, node.stderr)

    def test_garbage_on_every_listening_port_disturbs_nobody(self):
        supervisor, _, client, _ = self.cluster_with_job()
        noise = random.Random(5)
        attacked = set()
        for address, port in self.listening():
            attacked.add(port)
            for _ in range(20):
                with socket.create_connection((address, port), timeout=DEADLINE) as stranger:
                    try:
                        stranger.sendall(noise.randbytes(noise.randint(1, 4096)))
                    except OSError:
                        pass  # it hung up already
        state_port = int(self.status_address().rsplit(":", 1)[1])
        self.assertIn(state_port, attacked)
        before = self.status()["jobs"][0]["step"]
        wait_for(lambda: self.status()["jobs"][0]["step"] > before, "training goes on")
        self.assertTrue(client.running())
        supervisor.popen.terminate()
        self.assertEqual(client.wait(), 130)

    def status_address(self):
        return json.loads((self.folder / "state/cluster.json").read_text())["addresses"][0]

    def listening(self):
        """(address, port) of every TCP socket that a process of this test listens on."""
        inodes = set()
        for pids in self.kinds().values():
            for pid in pids:
                try:
                    for fd in os.listdir(f"/proc/{pid}/fd"):
                        match = re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}"))
                        if match:
                            inodes.add(match.group(1))
                except OSError:
                    continue
        found = []
        for family, any_address, here in [("tcp", "00000000", "127.0.0.1"), ("tcp6", "0" * 32, "::1")]:
            for line in pathlib.Path(f"/proc/net/{family}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and words[9] in inodes:
                    address, port = words[1].rsplit(":", 1)
                    # Words of the host's byte order.
                    name = b"".join(bytes.fromhex(address[i:i + 8])[::-1] for i in range(0, len(address), 8))
                    kind = socket.AF_INET if family == "tcp" else socket.AF_INET6
                    found.append((here if address == any_address else socket.inet_ntop(kind, name), int(port, 16)))
        return found


if __name__ == "__main__":
    unittest.main(verbosity=2)
