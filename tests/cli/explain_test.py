"""What `kintsugi explain` says of an incident (promise C8), read from the journal of a run that is over."""
import json
import os
import signal
import unittest

from cluster import ClusterTest


class Explain(ClusterTest):
    def setUp(self):
        super().setUp()
        self.state = self.folder / "state"
        self.report = self.folder / "report.json"

    def run_with_a_killed_rank(self):
        job = self.write_job(steps=150)
        run = self.start("run", job, "--threads", 1, "--ranks", 4, "--nodes", 2, "--state", self.state, "--report",
                         self.report)
        self.wait_for_step(run)
        os.kill(self.kinds()["rank"][1], signal.SIGKILL)
        self.assertEqual(run.wait(), 0, run.stderr)
        return json.loads(self.report.read_text())["incidents"]

    def explain(self, *arguments):
        process = self.run_command("explain", "--state", self.state, *arguments)
        self.assertEqual(process.popen.returncode, 0, process.stderr)
        return process.stdout

    def test_a_killed_rank_from_the_first_evidence_to_the_first_commit(self):
        incident = self.run_with_a_killed_rank()[0]
        told = json.loads(self.explain(incident["id"], "--json"))
        kinds = [event["kind"] for event in told["events"]]
        for kind in ["evidence", "fence", "report", "plan", "prepare", "resume", "first commit", "incident over"]:
            self.assertIn(kind, kinds)
        self.assertLess(kinds.index("fence"), kinds.index("plan"))
        self.assertLess(kinds.index("plan"), kinds.index("resume"))
        self.assertEqual(told["target"], incident["target"])
        self.assertEqual(told["lanes_recomputed"], incident["lanes_recomputed"])
        self.assertEqual(told["bytes_moved"], incident["bytes_moved"])
        self.assertEqual(len(told["idle"]), 3)  # whoever lives
        self.assertIn("killed by signal 9", self.explain(incident["id"]))

    def test_the_list_has_every_incident_of_the_report(self):
        incidents = self.run_with_a_killed_rank()
        lines = self.explain("--list").splitlines()
        self.assertEqual(len(lines), len(incidents))

    def test_what_is_not_there_is_said(self):
        self.expect(2, "explain", "--state", self.folder / "nowhere", says=["nowhere"])
        self.train("--ranks", 1, "--state", self.state)
        self.assertEqual(self.explain().strip(), "no incident")
        self.expect(2, "explain", 7, "--state", self.state, says=["no incident"])

    def test_a_run_leaves_only_the_journal_and_the_identity(self):
        self.train("--ranks", 1, "--state", self.state)
        self.assertEqual(sorted(os.listdir(self.state)), ["identity.json", "journal", "lock"])
        self.train("--ranks", 1, "--state", self.state)  # the next run of that directory


if __name__ == "__main__":
    unittest.main(verbosity=2)
