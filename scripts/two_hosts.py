#!/usr/bin/env python3
"""Runs Tutti on two hosts that are network namespaces of this machine, and prints what became of them as tables.

    sudo scripts/two_hosts.py build/release/tutti           # everything, some minutes
    sudo scripts/two_hosts.py build/release/tutti --only stopped
    scripts/two_hosts.py --probe                            # status 0 where this machine allows it

Each host has two ranks, which `tutti launch --nnodes 2` starts. A cable joins the hosts: two TAP devices whose frames a process of
this script passes on, late, with losses, or not at all. Runs that end are compared bit by bit with a run of one rank. In the others a
host vanishes, the cable is cut or a rank is stopped: the script measures how long it takes until that is named on each host that is
left, and lets the run go on elsewhere, which must reach the same bits. The status is 1 when anything was named later than --limit
seconds or has other bits.
"""
import argparse
import ctypes
import fcntl
import heapq
import os
import pathlib
import random
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time

ADDRESSES = ["10.213.7.1", "10.213.7.2"]
KEY = "0123456789abcdef0123456789abcdef"
LAYOUTS = {
    "FSDP": "--model.flavor=tiny --parallelism.data_parallel_shard_degree=4",
    "HSDP": "--model.flavor=tiny --parallelism.data_parallel_shard_degree=2",
    "EP": "--model.flavor=tiny_moe-ep8 --optimizer.lr=1e-2 --numerics.token_grain=16 --parallelism.data_parallel_shard_degree=4 "
          "--parallelism.expert_parallel_degree=4",
}
TRAIN = ("--data {data} --quiet --data.tokenizer=byte --training.steps={steps} --training.global_batch_tokens=512 --data.sequence_length=32 "
         "--data.validation_fraction=0.05 --lr_scheduler.warmup_steps=2 --validation.every=0 --validation.sample_tokens=0 --checkpoint.every=5 --run.name={name}")


def shell(command):
    return subprocess.run(command, shell=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


# ---- the hosts and their cable --------------------------------------------------------------------------------------

def enter(namespace):
    if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def open_tap(namespace, name):
    with open(f"/var/run/netns/{namespace}") as inside, open("/proc/self/ns/net") as outside:
        enter(inside)
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x0002 | 0x1000))  # TUNSETIFF: IFF_TAP | IFF_NO_PI
        enter(outside)  # so that the cable is not among the processes of a host
    return fd


def pass_on(namespaces, orders, said):
    """The cable: frames of each side go to the other one. Orders are lines "delay_ms losses_in_1000 is_whole"."""
    taps = [open_tap(namespace, "cable") for namespace in namespaces]
    os.write(said, b"ready\n")
    delay, losses, is_whole, due, number, chance = 0.0, 0, True, [], 0, random.Random(7)
    while True:
        limit = max(0.0, due[0][0] - time.monotonic()) if due else None
        ready, _, _ = select.select([*taps, orders], [], [], limit)
        if orders in ready:
            text = os.read(orders, 4096)
            if not text:
                return
            a, b, c = text.split(b"\n")[-2].split()
            delay, losses, is_whole = float(a) / 1000, int(b), c == b"1"
            os.write(said, b"done\n")
        for side, tap in enumerate(taps):
            if tap not in ready:
                continue
            try:
                for _ in range(64):
                    frame = os.read(tap, 65536)
                    number += 1
                    if is_whole and chance.randrange(1000) >= losses:
                        heapq.heappush(due, (time.monotonic() + delay, number, taps[1 - side], frame))
            except BlockingIOError:
                pass
        while due and due[0][0] <= time.monotonic():
            _, _, tap, frame = heapq.heappop(due)
            try:
                if is_whole:
                    os.write(tap, frame)
            except OSError:
                pass  # a full queue: lost, as on any wire


class Hosts:
    def __init__(self):
        self.names = [f"tutti{os.getpid()}{side}" for side in "ab"]
        self.cable = 0
        for name in self.names:
            if shell(f"ip netns add {name} && ip -n {name} link set lo up"):
                raise OSError("network namespaces cannot be made")
        orders, self.orders = os.pipe()
        self.said, said = os.pipe()
        self.cable = os.fork()
        if self.cable == 0:
            os.close(self.orders)
            try:
                pass_on(self.names, orders, said)
            finally:
                os._exit(1)
        os.close(orders)
        os.close(said)
        if os.read(self.said, 64) != b"ready\n":
            raise OSError("/dev/net/tun gives no TAP device")
        for name, address in zip(self.names, ADDRESSES):
            if shell(f"ip -n {name} addr add {address}/24 dev cable && ip -n {name} link set cable mtu 9000 up"):
                raise OSError("the cable cannot be plugged in")

    def set_cable(self, delay_ms=0.0, losses=0, is_whole=True):
        os.write(self.orders, f"{delay_ms} {losses} {int(is_whole)}\n".encode())
        os.read(self.said, 64)

    def processes(self, host):
        return [int(pid) for pid in subprocess.run(["ip", "netns", "pids", self.names[host]], capture_output=True, text=True).stdout.split()]

    def kill(self, host):
        for pid in self.processes(host):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def close(self):
        for host in (0, 1):
            self.kill(host)
        if self.cable:
            os.close(self.orders)
            os.waitpid(self.cable, 0)
        for name in self.names:
            shell(f"ip netns del {name}")


# ---- runs -----------------------------------------------------------------------------------------------------------

class Runs:
    def __init__(self, tutti, folder, hosts):
        self.tutti, self.folder, self.hosts = os.path.abspath(tutti), pathlib.Path(folder), hosts
        self.data, self.steps = "corpus.txt", 10
        words = ["river", "stone", "the", "old", "light", "a", "winter", "under", "slow", "and"]
        chance = random.Random(20)
        (self.folder / self.data).write_text("\n".join(" ".join(chance.choice(words) for _ in range(12)) + "." for _ in range(2000)))
        self.source = pathlib.Path(__file__).resolve().parent.parent
        self.environment = {**os.environ, "TUTTI_JOB_KEY": KEY, "TUTTI_THREADS": "1", "TUTTI_CACHE_DIR": str(self.folder / "cache")}

    def train(self, name, layout, more=""):
        text = TRAIN.format(data=self.data, steps=self.steps, name=name)
        return f"{self.tutti} train {self.source}/configs/quickstart.toml {text} {layout} {more}"

    def alone(self, name, layout, ranks=1):
        return subprocess.run(self.train(name, layout, f"-n {ranks}" if ranks > 1 else ""), shell=True, cwd=self.folder, env=self.environment, capture_output=True, text=True)

    def start(self, name, layout, transport, more=""):
        """One launcher per host, with the folder that both share."""
        nodes = []
        for host in (0, 1):
            command = (f"exec ip netns exec {self.hosts.names[host]} {self.tutti} launch --nnodes 2 --node-rank {host} --rdzv-endpoint {ADDRESSES[0]}:7000 -n 2 -- "
                       + self.train(name, layout, f"--runtime.transport={transport} {more}"))
            with open(self.folder / f"{name}.{host}", "wb") as output:
                nodes.append(subprocess.Popen(command, shell=True, cwd=self.folder, env=self.environment, stdout=output, stderr=output, start_new_session=True))
        return nodes

    def said(self, name, host):
        return (self.folder / f"{name}.{host}").read_text(errors="replace")

    def steps_done(self, name):
        try:
            return (self.folder / "runs" / name / "metrics.jsonl").read_text().count("loss_hex")
        except FileNotFoundError:
            return 0

    def bits(self, name):
        """Losses, gradient norms and the bytes of the last checkpoint; None when the run has not ended."""
        run = self.folder / "runs" / name
        try:
            lines = (run / "metrics.jsonl").read_text()
            steps = re.findall(r'"step":\s*(\d+)', lines), re.findall(r'"loss_hex":\s*"([^"]*)"', lines), re.findall(r'"grad_norm_hex":\s*"([^"]*)"', lines)
            files = [(run / "checkpoint" / f"step-{self.steps}" / f"{file}.safetensors").read_bytes() for file in ("model", "optimizer")]
            return steps, files
        except FileNotFoundError:
            return None


def wait_until(is_true, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if is_true():
            return True
        time.sleep(0.02)
    return bool(is_true())


# ---- what happens to the hosts: (what, how, what each host that is left must say, by its number) -----------------------

def ranks_of(runs, name, host):
    return [int(pid) for pid in re.findall(r"^rank \d: pid (\d+)$", runs.said(name, host), re.M)]


def stop_rank(rank):
    return lambda runs, name: os.kill(ranks_of(runs, name, rank // 2)[rank % 2], signal.SIGSTOP)


def cut(runs, name):
    runs.hosts.set_cable(is_whole=False)


def vanish(host):
    def act(runs, name):
        cut(runs, name)
        runs.hosts.kill(host)
    return act


def stop_host(host):
    def act(runs, name):
        for pid in runs.hosts.processes(host):
            os.kill(pid, signal.SIGSTOP)
    return act


NODE = [r"node 0 ?\(.*(no longer answers|sign of life|gone)", r"node 1 \(.*sign of life"]
EVENTS = {
    "killed": ("rank 3 is killed", lambda runs, name: os.kill(ranks_of(runs, name, 1)[1], signal.SIGKILL), {0: r"rank 3 \(pid \d+\).*SIGKILL", 1: r"rank 3 \(pid \d+\).*SIGKILL"}),
    "stopped1": ("rank 1 is stopped", stop_rank(1), {0: r"rank 1 \(pid \d+\).*stopped", 1: r"rank 1 \(pid \d+\).*stopped"}),
    "stopped3": ("rank 3 is stopped", stop_rank(3), {0: r"rank 3 \(pid \d+\).*stopped", 1: r"rank 3 \(pid \d+\).*stopped"}),
    "died1": ("all of host 1 is killed", lambda runs, name: runs.hosts.kill(1), {0: NODE[1]}),
    "died0": ("all of host 0 is killed", lambda runs, name: runs.hosts.kill(0), {1: NODE[0]}),
    "vanished1": ("host 1 vanishes", vanish(1), {0: NODE[1]}),
    "vanished0": ("host 0 vanishes", vanish(0), {1: NODE[0]}),
    "cut": ("the cable is cut", cut, {0: NODE[1], 1: NODE[0]}),
    "paused1": ("all of host 1 is stopped", stop_host(1), {0: NODE[1]}),
    "paused0": ("all of host 0 is stopped", stop_host(0), {1: NODE[0]}),
}
CABLES = [(0, 0), (2, 0), (20, 0), (2, 10)]  # delay in ms, losses in 1000 frames


def try_bits(runs, layout, transport, delay, losses):
    """Whether the run over two hosts has the bits of one rank, and the seconds it took."""
    name = f"bits-{layout}-{transport}-{delay}-{losses}"
    runs.hosts.set_cable(delay, losses)
    begin = time.monotonic()
    nodes = runs.start(name, LAYOUTS[layout], transport)
    statuses = [node.wait() for node in nodes]
    return statuses == [0, 0] and runs.bits(name) == runs.bits(f"one-{layout}"), time.monotonic() - begin


def try_event(runs, layout, transport, event):
    """Seconds until it was named on each host that is left, what was said, seconds until those ended, bits after it went on."""
    _, act, expected = EVENTS[event]
    name = f"{event}-{layout}-{transport}"
    runs.hosts.set_cable(delay_ms=2)
    nodes = runs.start(name, LAYOUTS[layout], transport)
    if not wait_until(lambda: runs.steps_done(name) >= 6, 120):
        raise RuntimeError(f"{name} does not train:\n{runs.said(name, 0)}{runs.said(name, 1)}")
    begin = time.monotonic()
    act(runs, name)
    named = {}

    def look():
        for host, pattern in expected.items():
            if host not in named and re.search(pattern, runs.said(name, host)):
                named[host] = time.monotonic() - begin
        return len(named) == len(expected)

    done = runs.steps_done(name)
    wait_until(look, 45)
    line = next((found.group(0) for host, pattern in expected.items() for found in [re.search(f"^.*{pattern}.*$", runs.said(name, host), re.M)] if found), "nothing")
    if event.startswith("stopped"):  # goes on by itself once it may
        for host in (0, 1):
            for pid in runs.hosts.processes(host):
                os.kill(pid, signal.SIGCONT)
    ended = wait_until(lambda: all(nodes[host].poll() is not None for host in expected), 120)
    over = time.monotonic() - begin
    for host in (0, 1):
        runs.hosts.kill(host)
        nodes[host].wait()
    if not event.startswith("stopped"):
        runs.alone(name, LAYOUTS[layout].split(" --parallelism")[0], ranks=2)
    has_bits = runs.bits(name) is not None and runs.bits(name) == runs.bits(f"one-{layout}")
    return named, expected, line, over if ended else None, done, has_bits


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tutti", nargs="?", default="build/release/tutti")
    parser.add_argument("--probe", action="store_true", help="only say whether this machine allows it")
    parser.add_argument("--only", default="", help="bits, or the name of an event: " + ", ".join(EVENTS))
    parser.add_argument("--cables", type=int, default=len(CABLES), help="how many kinds of cables the runs that end are tried with")
    parser.add_argument("--layouts", default="FSDP,EP")
    parser.add_argument("--transports", default="gloo,hier")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds within which everything must be named")
    parser.add_argument("--keep", default="", help="a folder for the runs and what they said")
    options = parser.parse_args()
    try:
        hosts = Hosts()
    except OSError as error:
        print(f"two hosts cannot be made here: {error}")
        return 1
    try:
        if options.probe:
            return 0
        with tempfile.TemporaryDirectory() as folder:
            if options.keep:
                os.makedirs(options.keep, exist_ok=True)
            return run(Runs(options.tutti, options.keep or folder, hosts), options)
    finally:
        hosts.close()


def run(runs, options):
    is_good, layouts, transports = True, options.layouts.split(","), options.transports.split(",")
    runs.steps = 10 if options.only == "bits" else 40
    for layout in layouts:
        one = runs.alone(f"one-{layout}", LAYOUTS[layout].split(" --parallelism")[0])
        if runs.bits(f"one-{layout}") is None:
            raise RuntimeError(f"one rank does not train {layout}:\n{one.stderr}")
    if options.only in ("", "bits"):
        print("| layout | transport | delay in ms | frames lost in 1000 | seconds | bits of one rank |\n|---|---|---|---|---|---|", flush=True)
        for layout in layouts:
            for transport in transports:
                for delay, losses in CABLES[:options.cables]:
                    same, seconds = try_bits(runs, layout, transport, delay, losses)
                    is_good &= same
                    print(f"| {layout} | {transport} | {delay} | {losses} | {seconds:.1f} | {'yes' if same else '**no**'} |", flush=True)
    if options.only == "bits":
        return 0 if is_good else 1
    print("\n| what happens | layout | transport | named after s, on host 0 | on host 1 | those left have ended after s | what is said | bits after it went on |\n|---|---|---|---|---|---|---|---|", flush=True)
    for event, (what, _, _) in EVENTS.items():
        if options.only and event not in options.only.split(","):
            continue
        for layout in layouts:
            for transport in transports:
                named, expected, line, over, done, same = try_event(runs, layout, transport, event)
                cells = [f"{named[host]:.1f}" if host in named else "**not**" if host in expected else "" for host in (0, 1)]
                is_good &= same and len(named) == len(expected) and max(named.values()) <= options.limit
                print(f"| {what} in step {done + 1} | {layout} | {transport} | {cells[0]} | {cells[1]} | {'never' if over is None else f'{over:.1f}'} | {line.strip()} | {'yes' if same else '**no**'} |", flush=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
