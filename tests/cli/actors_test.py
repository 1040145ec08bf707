"""Actors that crash in their processes (DESIGN 5, scenario 18): each is restarted where it is, whoever else there is does not
notice, and the bits are those of a run without faults."""
import json
import unittest

from cluster import ClusterTest, wait_for

STEPS = 400


def flat(actors):
    """{name: actor} of the tree that `status --json` shows."""
    found = {}
    for actor in actors:
        found[actor["actor"]] = actor
        found.update(flat(actor["children"]))
    return found


class ActorCrash(ClusterTest):
    def actors(self):
        return flat(self.status()["actors"])

    def processes(self):
        kinds = self.kinds()
        return {kind: sorted(kinds.get(kind, [])) for kind in ("supervise", "join", "rank")}

    def crash(self, name):
        injected = self.run_command("inject", "crash", "--on", f"actor:{name}", "--state", self.folder / "state")
        self.assertEqual(injected.popen.returncode, 0, injected.stderr)

    def goes_on_after(self, step):
        self.assertTrue(self.submitted.running(), self.submitted.stderr)
        job = self.status()["jobs"][0]
        return job["phase"] == "running" and job["step"] > step

    def begin(self, steps, *arguments):
        self.job = self.write_job(steps=steps)
        self.supervisor, join = self.supervise()
        for _ in range(2):
            self.start("join", *join, "--slots", 2)
        self.wait_for_nodes(2)
        self.report = self.folder / "crashed.json"
        self.submitted = self.start("submit", self.job, "--state", self.folder / "state", "--ranks", 4, "--threads", 1,
                                    "--report", self.report, *arguments)
        self.wait_for_step(self.submitted)
        wait_for(lambda: len([n for n in self.actors() if n.startswith("stage@")]) == 4, "every rank has told its actors")

    def expect_the_bits_of_a_quiet_run(self):
        self.assertEqual(self.submitted.wait(), 0, self.submitted.stderr)
        report = json.loads(self.report.read_text())
        quiet = self.train("--ranks", 1, "--threads", 2)
        self.assertEqual([s["step"] for s in report["steps"]], list(range(1, len(quiet["steps"]) + 1)))
        self.assertEqual([s["digest"] for s in report["steps"]], [s["digest"] for s in quiet["steps"]])
        self.assertEqual(report["final_digest"], quiet["final_digest"])
        return report

    def test_every_kind_of_actor_is_restarted_in_its_process_and_the_bits_stay(self):
        self.begin(8_000, "--save", self.folder / "model")
        processes = self.processes()
        kinds = ["journal_writer", "checkpoint_coordinator", "job_supervisor", "node_supervisor@1", "node_job@2",
                 "rank_supervisor@1", "rank@2", "stage@3", "cluster_supervisor"]
        self.assertEqual({name.split("@")[0] for name in self.actors()}, {name.split("@")[0] for name in kinds})
        for kind in kinds:
            print(kind, self.status()["jobs"][0]["step"], flush=True)
            before = self.actors()
            step = self.status()["jobs"][0]["step"]
            self.crash(kind)
            wait_for(lambda: self.actors()[kind]["incarnation"] == before[kind]["incarnation"] + 1, f"{kind} is back")
            after = self.actors()
            self.assertIn("injected", after[kind]["last_crash"])
            untouched = {name: a["incarnation"] for name, a in before.items() if name != kind}
            self.assertEqual({name: a["incarnation"] for name, a in after.items() if name != kind}, untouched)
            wait_for(lambda: self.goes_on_after(step), f"training goes on after the crash of {kind}")
        self.assertEqual(self.processes(), processes)
        report = self.expect_the_bits_of_a_quiet_run()
        self.assertEqual(sum(i["steps_lost"] for i in report["incidents"]), 0)

    def test_a_wrong_name_is_refused_with_the_right_ones(self):
        self.begin(400)
        wrong = self.run_command("inject", "crash", "--on", "actor:planner", "--state", self.folder / "state")
        self.assertEqual(wrong.popen.returncode, 3)
        for words in ("no actor 'planner'", "job_supervisor", "node_job@1", "stage@3"):
            self.assertIn(words, wrong.stderr)
        self.expect_the_bits_of_a_quiet_run()


if __name__ == "__main__":
    unittest.main()
