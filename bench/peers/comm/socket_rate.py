#!/usr/bin/env python3
"""What gathers of parameters over gloo leave of a socket's rate: all_gather between two ranks beside one TCP connection of loopback, in turns.

socket_rate.py TUTTI [--rounds 3] [--bytes 16777216,67108864]: two processes send each other blocks of half as many bytes as all_gather gives each rank
at the same time, in both directions, as the ranks do; each has a thread that sends. Prints a Markdown table of the least of the rounds' medians and
of the bytes that a rank receives per second.
"""
import argparse
import json
import multiprocessing
import pathlib
import socket
import statistics
import subprocess
import sys
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from machine import kind  # noqa: E402
from programs import program  # noqa: E402

CALLS = 20


def exchange(link, give, take):
    """Sends all of `give` and receives all of `take` at the same time."""
    sender = threading.Thread(target=link.sendall, args=(give,))
    sender.start()
    view = memoryview(take)
    while view:
        view = view[link.recv_into(view):]
    sender.join()


def run(link, nbytes, times):
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    give, take = bytearray(b"x" * nbytes), bytearray(nbytes)
    for call in range(CALLS + 2):
        begin = time.perf_counter()
        exchange(link, give, take)
        if call >= 2 and times is not None:
            times.append(time.perf_counter() - begin)


def socket_us(nbytes):
    listener = socket.create_server(("127.0.0.1", 0))
    peer = multiprocessing.Process(target=lambda: run(socket.create_connection(listener.getsockname()), nbytes, None))
    peer.start()
    times = []
    run(listener.accept()[0], nbytes, times)
    peer.join()
    return statistics.median(times) * 1e6


def gather_us(tutti, nbytes):
    command = [tutti, "bench", "comm", "-n", "2", "--transport", "gloo", "--op", "all_gather", "--bytes", str(nbytes), "--json"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return json.loads(lines[-1])["median_us"]


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("tutti", type=program)
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--bytes", default="16777216,67108864")
    args = flags.parse_args()
    print(f"On {kind()}.\n")
    print("| all_gather, bytes | gloo | one socket | gloo's rate | a socket's rate | share |")
    print("|---|---|---|---|---|---|")
    for nbytes in map(int, args.bytes.split(",")):
        received = nbytes // 2
        rounds = [(gather_us(args.tutti, nbytes), socket_us(received)) for _ in range(args.rounds)]
        gloo, alone = (min(times) for times in zip(*rounds))
        print(f"| {nbytes} | {gloo / 1e3:.2f} ms | {alone / 1e3:.2f} ms | {received / gloo / 1e3:.2f} GB/s | {received / alone / 1e3:.2f} GB/s | {alone / gloo:.2f} |")


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    main()
