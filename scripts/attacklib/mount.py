"""The mount that scripts/attacks measures: its processes, their memory, its write-ahead log, and its end."""

import glob
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import time

from attacklib.processes import LIBC, Failure, die_with_parent

MOUNT_SECONDS = 960
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
FUSE_CONNECTIONS = "/sys/fs/fuse/connections"
PAPERS = "papers"


def run(command, timeout, **more):
    """Runs a command; returns its exit code (None if it had to be killed), and what it printed."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=die_with_parent, **more)
    try:
        out, err = process.communicate(timeout=max(timeout, 0.1))
        return process.returncode, out, err
    except subprocess.TimeoutExpired:
        return None, b"", f"killed after {timeout:.0f} s".encode()
    finally:
        if process.returncode is None:
            process.kill()
            process.communicate()


def brief(text):
    """The end of an error message, in one line of ASCII."""
    return " ".join(ascii(text.decode(errors="replace"))[1:-1].replace("\\n", " ").split())[-200:]


class Mount:
    """A directory that the program serves from an empty cache."""

    def __init__(self, work, program, name, source):
        self.program, self.source = program, source
        self.directory = os.path.join(work, f"mount-{name}")
        self.cache = os.path.join(work, f"cache-{name}")
        self.base = None
        self.known = (0.0, {})
        os.mkdir(self.directory, 0o755)

    def mount(self, options, timeout=MOUNT_SECONDS):
        """Returns when the tree is complete, with the seconds it took."""
        begin = time.monotonic()
        chosen = ",".join([f"cache={self.cache}", "wait=900", *options])
        code, _, err = run([self.program, "mount", self.source, self.directory, "-o", chosen], timeout)
        if code != 0:
            raise Failure(f"mount failed (exit {code}): {brief(err)}")
        self.base = self.find_base()
        return time.monotonic() - begin

    def find_base(self):
        """Where the reader's set is: with several sets, each has a directory."""
        places = [self.directory, *(entry.path for entry in os.scandir(self.directory) if entry.is_dir())]
        found = [place for place in places if os.path.isdir(os.path.join(place, PAPERS))]
        if not found:
            raise Failure(f"{PAPERS} is nowhere in the mount; its state is {self.state()}")
        return found[0]

    def path(self, *names):
        return os.path.join(self.base, *names)

    def inside(self, *names):
        """A path below `.resourcesync`, which is there once, also with several sets."""
        return os.path.join(self.directory, ".resourcesync", *names)

    def is_mounted(self):
        with open("/proc/self/mounts", "rb") as mounts:
            return any(line.split()[1].decode("unicode_escape") == self.directory for line in mounts)

    def processes(self):
        """The daemon and its guard: process ids and roles, searched for every few seconds."""
        found_at, found = self.known
        if time.monotonic() - found_at < 5 and all(os.path.exists(f"/proc/{pid}") for pid in found):
            return found
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                program = os.readlink(f"/proc/{pid}/exe")
                with open(f"/proc/{pid}/cmdline", "rb") as line:
                    words = line.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            if program == self.program and words[1:2] == ["mount"] and self.directory in words:
                found[int(pid)] = "guard" if "--guard" in words else "daemon"
        self.known = (time.monotonic(), found)
        return found

    def sample(self):
        """Memory of the daemon and the guard together, in MiB; descriptors; CPU seconds; the log's size in MiB."""
        sums = {"VmRSS": 0, "RssAnon": 0, "descriptors": 0, "cpu": 0.0}
        for pid in self.processes():
            try:
                with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
                    for name, kib in re.findall(r"(VmRSS|RssAnon):\s+(\d+)", status.read()):
                        sums[name] += int(kib) / 1024
                with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as line:
                    fields = line.read().rpartition(")")[2].split()
                sums["cpu"] += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                sums["descriptors"] += len(os.listdir(f"/proc/{pid}/fd"))
            except OSError:
                continue
        try:
            sums["wal"] = os.stat(os.path.join(self.cache, "catalog.db-wal")).st_size / (1 << 20)
        except OSError:
            sums["wal"] = 0.0
        return sums

    def state(self, timeout=30):
        """The state in `status --json`; asked by another process, for the mount may be stuck."""
        code, out, err = run([self.program, "status", self.directory, "--json"], timeout)
        try:
            status = json.loads(out)
            return (status[0] if isinstance(status, list) else status)["state"]
        except (ValueError, KeyError, IndexError, TypeError):
            return f"no status (exit {code}): {brief(err)}"

    def wait_for_complete(self, seconds):
        end = time.monotonic() + seconds
        while (state := self.state()) != "complete" and time.monotonic() < end:
            time.sleep(0.5)
        return state

    def forget_names(self):
        """The kernel forgets the names of this mount, and of no other: a remount shrinks the dentry cache of the
        file system. The daemon does not take part in it, and no option changes."""
        flags = MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV
        if os.statvfs(self.directory).f_flag & MS_NOEXEC:
            flags |= MS_NOEXEC
        return LIBC.mount(None, self.directory.encode(), None, flags, None) == 0

    def sockets(self):
        """Sockets in the cache directory."""
        return [path for path in glob.glob(os.path.join(self.cache, "*")) if stat.S_ISSOCK(os.lstat(path).st_mode)]

    def abort(self):
        """Ends all requests of a stuck mount, so that processes that wait for them can end."""
        # A stuck mount cannot be asked for its device.
        with open("/proc/self/mountinfo", "rb") as mounts:
            found = [line.split()[2] for line in mounts if line.split()[4] == self.directory.encode()]
        if not found:
            return
        device = int(found[-1].partition(b":")[2])
        if not os.path.exists(f"{FUSE_CONNECTIONS}/{device}"):
            run(["mount", "-t", "fusectl", "none", FUSE_CONNECTIONS], 10)
        try:
            with open(f"{FUSE_CONNECTIONS}/{device}/abort", "w", encoding="ascii") as abort:
                abort.write("1")
        except OSError:
            pass

    def end(self):
        """Unmounts, and returns when the daemon has ended: by its id where it does not end by itself."""
        for number in range(20):
            if not self.is_mounted():
                break
            run(["umount", *(["-f"] if number > 10 else []), self.directory], 10)
            time.sleep(0.25)
        if self.is_mounted():
            run(["umount", "--lazy", self.directory], 10)
        for number, seconds in ((None, 25), (signal.SIGTERM, 10), (signal.SIGKILL, 10)):
            for pid in self.processes() if number else ():
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            end = time.monotonic() + seconds
            while self.processes() and time.monotonic() < end:
                time.sleep(0.05)
        shutil.rmtree(self.cache, ignore_errors=True)
