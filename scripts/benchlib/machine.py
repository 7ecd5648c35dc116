"""What the groups of scripts/bench need of the machine: processes, caches, ports, nginx, a far-away Source."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(REPOSITORY, "target"))
PROGRAM = os.path.join(TARGET, "release", "resourcesync")
PROBE = os.path.join(TARGET, "release", "examples", "probe")
# Which package of Debian and Ubuntu has which program.
PACKAGES = {"nginx": "nginx-light", "curl": "curl", "unzip": "unzip", "rclone": "rclone", "httpdirfs": "httpdirfs",
            "fuse-zip": "fuse-zip", "xmllint": "libxml2-utils", "fusermount3": "fuse3", "find": "findutils",
            "bash": "bash", "umount": "mount"}
LONGEST = 3600


class Failure(Exception):
    """A measure that did not come about, and why."""


class Unavailable(Failure):
    """What this program, or this machine, cannot do: said, and no fault."""


def say(text):
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def need(programs):
    """Fails with what to type if any of these programs is not there."""
    path = os.environ["PATH"] = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = sorted(name for name in programs if not shutil.which(name, path=path))
    if missing:
        packages = " ".join(PACKAGES[name] for name in missing)
        raise Failure(f"not installed: {', '.join(missing)}\n  apt-get install {packages}\nor leave them out: "
                      + " ".join(f"--without {name}" for name in missing))


def build():
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--bin", "resourcesync", "--example", "probe"]
    if not shutil.which("cargo"):
        raise Failure("cargo is missing: install Rust 1.95 or later")
    if subprocess.run(command, cwd=REPOSITORY, check=False).returncode:
        raise Failure("the program could not be built")


def run(command, timeout=LONGEST, cwd=None):
    """Runs a command to its end, a text with bash; returns what it printed and the seconds that it took.

    What it starts ends with it, also when this program is interrupted."""
    argv = ["bash", "-o", "pipefail", "-c", command] if isinstance(command, str) else command
    begin = time.monotonic()
    process = subprocess.Popen(argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Failure(f"{argv[-1]}: not done after {timeout} s") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    took = time.monotonic() - begin
    if process.returncode:
        said = " ".join(err.split())[-300:] or "it says nothing"
        raise Failure(f"{said} (exit {process.returncode}: {' '.join(argv)[:300]})")
    return out, took


def probe(how, *arguments):
    """A timed inner loop (scripts/probe.rs): how many, bytes, seconds."""
    count, size, seconds = run([PROBE, how, *map(str, arguments)])[0].split()
    return int(count), int(size), float(seconds)


def count_lines(command):
    """How many lines a shell command prints, and the seconds until they are counted."""
    out, took = run(command + " | wc -l")
    return int(out), took


def drop_caches(work):
    """Writes back and empties the kernel's caches; then the programs that are timed are brought back in."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as out:
        out.write("3\n")
    probe("stat", "/dev/null")
    run(f"find {work}/nothing -ls | wc -l; ls {work}/nothing; umount --version")


def memory(pid):
    """Resident now, and at most so far, in MiB."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        facts = dict(re.findall(r"(VmRSS|VmHWM):\s+(\d+)", status.read()))
    return int(facts["VmRSS"]) / 1024, int(facts["VmHWM"]) / 1024


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as line:
            return line.read().decode(errors="replace").split("\0")
    except OSError:
        return []


def wait_until(what, holds, timeout=60, step=0.01):
    end = time.monotonic() + timeout
    while True:
        value = holds()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"{what}: not after {timeout} s")
        time.sleep(step)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    except OSError:
        return False


def end(process, patience=0):
    """Ends a process of ours that did not end by itself."""
    for ask, seconds in ((lambda: None, patience), (process.terminate, 10), (process.kill, 10)):
        ask()
        try:
            process.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            continue


class Server:
    """A process that listens, ended by its id."""

    def __init__(self, argv, ports, log):
        with open(log, "wb") as out:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                            start_new_session=True)
        try:
            for port in ports:
                wait_until(f"{argv[0]} listens (its log: {log})", lambda: answers(port), 10, 0.02)
        except BaseException:
            self.end()
            raise

    def end(self):
        end(self.process)


def nginx(work, sources):
    """Serves the folders of Sources, with listings, as rclone and httpdirfs need them."""
    servers = "".join(f"server {{ listen 127.0.0.1:{port}; root {folder}; }}\n" for folder, port in sources)
    scratch = "".join(f"{name}_temp_path {work}/nginx-scratch;\n"
                      for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = f"{work}/nginx.conf"
    with open(config, "w", encoding="utf-8") as out:
        out.write(f"user root; daemon off; worker_processes 2; pid {work}/nginx.pid; error_log {work}/nginx-errors;\n"
                  f"events {{ worker_connections 1024; }}\nhttp {{ access_log off; sendfile on; tcp_nopush on;\n"
                  f"keepalive_requests 1000000; autoindex on;\n{scratch}{servers}}}\n")
    return Server(["nginx", "-c", config, "-p", work], [port for _, port in sources], f"{work}/nginx.log")


def far_away(work, port, target, seconds):
    """Listens on a port whose other end is a Source that is this far away, there and back."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "far.py")
    return Server([sys.executable, script, str(port), str(target), str(seconds)], [port], f"{work}/far.log")


def install_resync(work):
    """The reference client, in a folder of its own; returns that folder's programs."""
    venv = os.path.join(work, "venv")
    if not os.path.exists(venv + "/bin/resync-sync"):
        say("installing resync with pip ...")
        try:
            run([sys.executable, "-m", "venv", venv])
            run([venv + "/bin/pip", "install", "-q", "resync"])
        except Failure as bad:
            raise Failure(f"resync: {bad}\n  apt-get install python3-venv\nor leave it out: --without resync") from None
    return venv + "/bin"
