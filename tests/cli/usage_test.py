"""Refusals: what is wrong, where, and what to do; the exit code of CLI.md; nothing left behind."""
import json
import os
import socket
import struct
import unittest

from cluster import ClusterTest, wait_for


class Usage(ClusterTest):
    def test_wrong_usage_exits_with_2_and_names_the_help(self):
        for arguments in [[], ["nosuch"], ["run"], ["run", "--nosuch", self.job], ["run", self.job, "--ranks", "0"],
                          ["run", self.job, "--ranks", "two"], ["data"], ["data", "nosuch"], ["submit"], ["generate"],
                          ["cancel", "one"], ["run", self.job, "--transport", "pigeon"]]:
            with self.subTest(arguments=arguments):
                self.expect(2, *arguments, says=["--help"])

    def test_help_of_every_level_exits_with_0_and_shows_an_example(self):
        for words in [[], ["run"], ["supervise"], ["join"], ["submit"], ["cancel"], ["pause"], ["resume"], ["drain"],
                      ["evict"], ["inject"], ["sim"], ["status"], ["generate"], ["data"],
                      ["data", "prepare"], ["data", "inspect"], ["version"]]:
            with self.subTest(words=words):
                self.expect(0, *words, "--help", says=["Example", "kintsugi"])

    def test_a_rank_is_no_command_for_people(self):
        self.assertNotRegex(self.expect(0, "--help").stdout, r"\n  rank\s")

    def test_version_tells_the_features_built_in(self):
        self.expect(0, "version", "--json", says=["commit", "kernel_variant", '"ucx": true', '"cuda": false'])


class JobFiles(ClusterTest):
    def refused(self, *says, run=("run",), **replace):
        self.expect(2, *run, self.write_job("bad.yaml", **replace), says=["bad.yaml", *says])

    def test_unknown_keys_wrong_types_and_impossible_shapes_are_refused_by_line(self):
        self.refused("bad.yaml:8", "stepz", **{"steps: 3": "stepz: 3"})
        self.refused("bad.yaml:2", "layers", **{"layers: 2": "layers: two"})
        self.refused("bad.yaml:2", "heads", **{"heads: 2": "heads: 3"})
        self.refused("bad.yaml:4", "lanes", **{"lanes: 8": "lanes: 3"})
        self.refused("stages", **{"stages: 2": "stages: 9"})
        self.refused("checkpoint", **{"steps: 3": "steps: 3\ncheckpoint: { every: 5 }"})

    def test_options_obey_the_rules_of_the_file(self):
        self.expect(2, "run", self.job, "--stages", "9", says=["stages"])
        self.expect(2, "run", self.job, "--ranks", "100", says=["16"])
        self.expect(2, "run", self.job, "--ranks", "1", "--nodes", "2", says=["--nodes"])

    def test_a_job_file_that_is_not_there_is_refused(self):
        self.expect(2, "run", "nowhere.yaml", says=["nowhere.yaml"])

    def test_data_that_is_missing_truncated_too_short_or_of_another_vocabulary_is_refused(self):
        data = self.folder / "bad.bin"
        replace = {"train.bin": "bad.bin"}
        self.expect(2, "run", self.write_job(**replace), says=["bad.bin"])
        for content, says in [(b"\1\0\2", "bad.bin"), (b"", "bad.bin"), (b"\1\0" * 5, "bad.bin"),
                              (b"\1\0" * 1000 + struct.pack("<H", 256) + b"\1\0" * 100, "1000")]:
            data.write_bytes(content)
            self.expect(2, "run", self.write_job(**replace), says=[says])

    @unittest.skipIf(os.geteuid() == 0, "root may write anywhere")
    def test_folders_without_permission_are_refused(self):
        (self.folder / "locked").mkdir(mode=0o500)
        self.expect(2, "run", self.job, "--save", "locked/model", says=["locked"])
        self.expect(2, "run", self.job, "--report", "locked/report.json", says=["locked"])

    def test_places_that_cannot_be_written_are_refused_before_training(self):
        (self.folder / "file").write_text("mine")
        self.expect(2, "run", self.job, "--save", "file/model", says=["file"])
        self.expect(2, "run", self.job, "--save", "file", says=["file"])
        self.expect(2, "run", self.job, "--report", "nowhere/report.json", says=["nowhere"])
        self.assertEqual((self.folder / "file").read_text(), "mine")

    def test_resuming_from_no_save_is_refused(self):
        self.expect(2, "run", self.job, "--resume", "nowhere", says=["nowhere"])


class Audit(ClusterTest):
    def audit(self, *arguments):
        return self.run_command("data", "audit", self.job, "--report", self.folder / "report.json", *arguments)

    def test_every_sample_of_a_run_is_accounted_for(self):
        report = self.train("--ranks", 2, "--steps", 6)
        told = self.audit("--json")
        self.assertEqual(told.popen.returncode, 0, told.stderr)
        self.assertEqual(json.loads(told.stdout)["sequences"], 6 * 8)
        used = self.audit("--step", 4).stdout.split()
        self.assertEqual(len(used), 8)
        self.assertIn("4", self.audit("--sample", used[0]).stdout.split())
        del report["steps"][2]
        (self.folder / "report.json").write_text(json.dumps(report))
        broken = self.audit()
        self.assertEqual(broken.popen.returncode, 1)
        self.assertIn("step 4 where step 3 should be", broken.stdout)

    def test_what_is_no_report_of_the_job_is_refused(self):
        for text in ["", "[]", '{"job": "another", "steps": []}', '{"job": "tiny", "steps": [{"step": -1}]}']:
            (self.folder / "report.json").write_text(text)
            self.assertEqual(self.audit().popen.returncode, 2, text)


class Data(ClusterTest):
    def test_prepare_then_inspect_agree(self):
        (self.folder / "a.txt").write_text("hello world")
        self.expect(0, "data", "prepare", "--out", "o.bin", "a.txt", says=["o.bin"])
        self.expect(0, "data", "inspect", "o.bin", "--json", says=["hello world", '"format": "uint16"'])

    def test_what_cannot_be_read_or_written_is_refused(self):
        self.expect(2, "data", "prepare", "--output", "o.bin", "nowhere", says=["nowhere"])
        self.expect(2, "data", "prepare", "--output", "nowhere/o.bin", "train.bin", says=["nowhere"])
        self.expect(2, "data", "inspect", "nowhere", says=["nowhere"])
        self.expect(2, "generate", "--model", "nowhere", says=["nowhere"])


class Cluster(ClusterTest):
    def test_without_a_supervisor_clients_exit_with_3(self):
        for command in [["status"], ["cancel"], ["submit", self.job]]:
            self.expect(3, *command, "--state", self.folder / "state", says=["kintsugi supervise"])

    def test_a_taken_port_is_refused(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.expect(2, "supervise", "--listen", f"127.0.0.1:{port}", "--state", "state", says=[str(port)])

    def test_an_address_that_is_none_is_refused(self):
        for address in ["here", "127.0.0.1", "127.0.0.1:port", "::1:80", "127.0.0.1:70000"]:
            self.expect(2, "supervise", "--listen", address, "--state", "state", says=["--listen"])

    def test_a_state_directory_serves_one_supervisor(self):
        first, _ = self.supervise()
        second = self.run_command("supervise", "--listen", "127.0.0.1:0", "--state", "state")
        self.assertEqual(second.popen.returncode, 2)
        self.assertIn("another supervisor", second.stderr)
        first.popen.terminate()
        self.assertEqual(first.wait(), 130)

    def test_a_join_needs_the_right_token(self):
        supervisor, (address, _, token) = self.supervise()
        for wrong, code in [("", 2), ("nonsense", 2), (token[:-3] + "AAA", 2)]:
            process = self.run_command("join", address, "--token", wrong)
            self.assertEqual(process.popen.returncode, code, process.stderr)
            self.assertIn("token", process.stderr)
        self.assertEqual(self.status()["nodes"], [])
        supervisor.popen.terminate()
        self.assertEqual(supervisor.wait(), 130)

    def test_the_token_of_another_cluster_is_refused(self):
        supervisor, (address, _, _) = self.supervise()
        other = self.start("supervise", "--listen", "127.0.0.1:0", "--state", self.folder / "other")
        wait_for(lambda: "--token" in other.stdout, "the join command is printed")
        process = self.run_command("join", address, "--token", other.stdout.split("--token ")[1].split()[0])
        self.assertEqual(process.popen.returncode, 3, process.stderr)
        self.assertEqual(self.status()["nodes"], [])
        for each in [supervisor, other]:
            each.popen.terminate()
            each.wait()

    def test_cancel_without_a_job_is_refused(self):
        supervisor, _ = self.supervise()
        process = self.run_command("cancel", "--state", "state")
        self.assertEqual(process.popen.returncode, 3)
        supervisor.popen.terminate()
        supervisor.wait()


if __name__ == "__main__":
    unittest.main(verbosity=2)
