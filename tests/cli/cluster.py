"""What the end-to-end tests share: the real binary, tiny jobs, processes that are always ended, waits with deadlines."""
import contextlib
import json
import os
import pathlib
import signal
import struct
import subprocess
import tempfile
import time
import unittest

KINTSUGI = os.environ["KINTSUGI"]
DEADLINE = 60.0  # seconds; a loaded machine is no failure
PROMPT = 2.0     # seconds from a death or a signal to the end of all: CLI.md and the contract's budget

JOB = """\
job: tiny
model: {{ family: gpt2, layers: 2, width: 32, heads: 2, context: 16, vocabulary: 256 }}
data: {{ train: {data}, tokens: uint16, seed: 7 }}
batch: {{ sequences: 8, microbatch: 1, lanes: 8 }}
optimizer: {{ name: adamw, learning_rate: 1e-3 }}
parallel: {{ stages: 2 }}
precision: float32
steps: {steps}
"""


def wait_for(condition, what, deadline=DEADLINE):
    """The first true value of condition(); fails after `deadline` seconds."""
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline} s: {what}")
        time.sleep(0.01)


def processes_with(marker):
    """Ids of live processes whose environment holds `marker`: all that a test has started, whoever their parent is."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if marker.encode() in (entry / "environ").read_bytes():
                if (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                    found.append(int(entry.name))
    return found


def command_of(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return []


def parent_of(pid):
    with contextlib.suppress(OSError):
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return 0


class Process:
    """A kintsugi command in the background; its output goes to files, so that it never blocks on a pipe."""

    def __init__(self, arguments, folder, env, prefix=()):
        self.out = tempfile.TemporaryFile(dir=folder.parent)
        self.err = tempfile.TemporaryFile(dir=folder.parent)
        self.popen = subprocess.Popen([*prefix, KINTSUGI, *map(str, arguments)], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                                      stdout=self.out, stderr=self.err, start_new_session=True)
        self.pid = self.popen.pid

    def text(self, file):
        return os.pread(file.fileno(), 1 << 24, 0).decode(errors="replace")

    @property
    def stdout(self):
        return self.text(self.out)

    @property
    def stderr(self):
        return self.text(self.err)

    def wait(self, deadline=DEADLINE):
        return self.popen.wait(deadline)

    def running(self):
        return self.popen.poll() is None


class ClusterTest(unittest.TestCase):
    """A folder for each test; afterwards nothing may be left: no process, no name in /dev/shm, no temporary file."""

    def setUp(self):
        self.base = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.base.name) / "work"
        self.folder.mkdir()
        self.marker = f"KINTSUGI_TEST={self.base.name}"
        self.env = {**os.environ, "KINTSUGI_TEST": self.base.name, "HOME": str(self.folder)}
        self.env.pop("KINTSUGI_TOKEN", None)
        self.started = []
        self.shared_memory = set(os.listdir("/dev/shm"))
        self.addCleanup(self.base.cleanup)
        self.addCleanup(self.end_all)
        text = b"It was the best of times, it was the worst of times. " * 200
        (self.folder / "train.bin").write_bytes(struct.pack(f"<{len(text)}H", *text))
        self.job = self.write_job()

    def end_all(self):
        for process in self.started:
            if process.running():
                process.popen.kill()
            process.popen.wait()
            process.out.close()
            process.err.close()
        wait_for(lambda: not processes_with(self.marker), "every process of the test is gone")

    def write_job(self, name="job.yaml", steps=3, **replace):
        text = JOB.format(data="train.bin", steps=steps)
        for old, new in replace.items():
            self.assertIn(old, text)
            text = text.replace(old, new)
        path = self.folder / name
        path.write_text(text)
        return path

    def start(self, *arguments):
        process = Process(arguments, self.folder, self.env)
        self.started.append(process)
        return process

    def run_command(self, *arguments, deadline=DEADLINE):
        process = self.start(*arguments)
        process.wait(deadline)
        return process

    def expect(self, code, *arguments, says=()):
        process = self.run_command(*arguments)
        everything = process.stdout + process.stderr
        self.assertEqual(process.popen.returncode, code, everything)
        for words in says:
            self.assertIn(words, everything)
        self.assert_nothing_left()
        return process

    def train(self, *arguments, job=None):
        """`run` to its end; its report."""
        report = self.folder / "report.json"
        process = self.run_command("run", job or self.job, "--report", report, *arguments)
        self.assertEqual(process.popen.returncode, 0, process.stderr)
        return json.loads(report.read_text())

    def supervise(self, state="state"):
        """A supervisor on a free port, or where the former one of that state was; its process and the arguments of a join."""
        process = self.start("supervise", "--listen", "127.0.0.1:0", "--state", self.folder / state)
        wait_for(lambda: "--token" in process.stdout or not process.running(), "the join command is printed")
        line = next((line for line in process.stdout.splitlines() if "kintsugi join" in line), None)
        self.assertIsNotNone(line, process.stderr)
        return process, line.split()[2:]

    def status(self):
        process = self.run_command("status", "--json", "--state", self.folder / "state")
        self.assertEqual(process.popen.returncode, 0, process.stderr)
        return json.loads(process.stdout)

    def wait_for_nodes(self, count):
        wait_for(lambda: len(self.status()["nodes"]) == count, f"{count} nodes have joined")

    def wait_for_step(self, process):
        wait_for(lambda: "step " in process.stderr or not process.running(), "a step is done")
        self.assertTrue(process.running(), process.stderr)

    def kinds(self):
        """Of this test's processes: {"rank": [pid...], "join": [...], ...}."""
        found = {}
        for pid in processes_with(self.marker):
            words = command_of(pid)
            if len(words) > 1:
                found.setdefault(words[1].decode(), []).append(pid)
        return found

    def assert_nothing_left(self, keep=()):
        wait_for(lambda: set(processes_with(self.marker)) <= set(keep), "no process is left", PROMPT)
        self.assertLessEqual(set(os.listdir("/dev/shm")), self.shared_memory)
        self.assertEqual([str(p) for p in self.folder.rglob("*.tmp*")], [])
