"""One rank that calls libtutti_ranks through its C interface: what a program in C would do, for ranks_only_test.py.

ranks_in_c.py LIBRARY TRANSPORT SCENARIO   with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
"""
import ctypes as c
import math
import os
import random
import resource
import signal
import socket
import struct
import sys
import threading
import time

OK, USAGE, PEER = 0, 1, 9
F32, BF16, I64, I32, U8 = 1, 2, 6, 7, 10
SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST = range(5)
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def fields(**members):
    return type("Struct", (c.Structure,), {"_fields_": list(members.items())})


Options = fields(struct_size=c.c_size_t, rank=c.c_int32, ranks=c.c_int32, url=c.c_char_p, transport=c.c_char_p, name=c.c_char_p, timeout_ms=c.c_int64)
Info = fields(struct_size=c.c_size_t, rank=c.c_int32, ranks=c.c_int32, name=c.c_char_p, transport=c.c_char_p)
Error = fields(code=c.c_int, text=c.c_char_p)
Call = fields(struct_size=c.c_size_t, collective=c.c_int, dtype=c.c_int, reduce=c.c_int, root=c.c_int32, factor=c.c_double,
              input=c.c_void_p, output=c.c_void_p, input_count=c.c_int64, output_count=c.c_int64, error=c.c_void_p, error_bytes=c.c_size_t)
Table = fields(struct_size=c.c_size_t, rank=c.c_int32, ranks=c.c_int32, user=c.c_void_p, run=c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(Call)))
library = c.CDLL(sys.argv[1])
library.tutti_ranks_last_error.restype = c.POINTER(Error)
TRANSPORT = sys.argv[2].encode()


def last_error():
    return library.tutti_ranks_last_error().contents.text.decode()


def require(holds, text):
    if not holds:
        raise AssertionError(text)


def expect(code, wanted, *parts, text=None):
    said = last_error() if text is None else text
    require(code == wanted, f"code {code} in the place of {wanted}: {said}")
    for part in parts:
        require(part in said, f"'{said}' lacks '{part}'")


class Group:
    def __init__(self, handle):
        self.handle = handle
        info = Info(c.sizeof(Info))
        expect(library.tutti_ranks_describe(handle, c.byref(info)), OK)
        self.rank, self.ranks, self.name, self.transport = info.rank, info.ranks, info.name.decode(), info.transport.decode()
        self.table = Table()
        expect(library.tutti_ranks_collectives(handle, c.byref(self.table)), OK)
        require((self.table.rank, self.table.ranks, self.table.struct_size) == (self.rank, self.ranks, c.sizeof(Table)), "the table differs")

    def split(self, members, **options):
        part = c.c_void_p()
        made = Options(c.sizeof(Options), **options)
        expect(library.tutti_ranks_split(self.handle, (c.c_int32 * len(members))(*members), len(members), c.byref(made), c.byref(part)), OK)
        return Group(part) if members else require(not part, "a rank without members has a group")

    def call(self, collective, dtype, given, output_count, reduce=SUM, root=0, factor=1.0):
        """The code, the text and the bytes of the result; `given` are bytes."""
        size = SIZES[dtype]
        memory, result, text = c.create_string_buffer(given, len(given) + 1), c.create_string_buffer(output_count * size + 1), c.create_string_buffer(2000)
        call = Call(c.sizeof(Call), collective, dtype, reduce, root, factor, c.addressof(memory), c.addressof(result), len(given) // size, output_count, c.addressof(text), 2000)
        code = self.table.run(self.table.user, c.byref(call))
        return code, text.value.decode(), result.raw[:-1]

    def result(self, *arguments, **more):
        code, text, result = self.call(*arguments, **more)
        expect(code, OK, text=text)
        return result

    def barrier(self):
        expect(library.tutti_ranks_barrier(self.handle), OK)

    def close(self):
        library.tutti_ranks_close(self.handle)


def try_open(**options):
    made, handle = Options(c.sizeof(Options), **{"transport": TRANSPORT, "timeout_ms": 30000, **options}), c.c_void_p()
    return library.tutti_ranks_open(c.byref(made), c.byref(handle)), handle


def open_group(**options):
    code, handle = try_open(**options)
    expect(code, OK)
    return Group(handle)


def free_place():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{s.getsockname()[1]}".encode()


def place_of(group, rank):
    """A free place on the host of that rank, told to all of the group."""
    text = group.result(BROADCAST, U8, free_place().ljust(40), 40, root=rank)
    return text.strip()


def in_threads(*works):
    """All at once; fails where one of them does."""
    failures = []

    def guarded(work):
        try:
            work()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        require(not thread.is_alive(), "a thread has not ended")
    require(not failures, failures)


def within(seconds, work):
    before = time.monotonic()
    result = work()
    require(time.monotonic() - before < seconds, f"it took {time.monotonic() - before:.1f} s, and {seconds} are allowed")
    return result


# ---- what the results are, as plainly as possible

SIZES = {F32: 4, BF16: 2, I64: 8, I32: 4, U8: 1}
FORMS = {F32: "f", I64: "q", I32: "i", U8: "B"}


def f32(value):
    """Rounded; what is out of range is infinite."""
    return c.c_float(value).value


def pack(dtype, values):
    if dtype != BF16:
        return struct.pack(f"{len(values)}{FORMS[dtype]}", *values)
    bits = [struct.unpack("I", struct.pack("f", v))[0] for v in values]
    rounded = [b >> 16 | 0x40 if v != v else (b + 0x7FFF + (b >> 16 & 1)) >> 16 for b, v in zip(bits, values)]
    return struct.pack(f"{len(values)}H", *rounded)


def unpack(dtype, data):
    if dtype != BF16:
        return list(struct.unpack(f"{len(data) // SIZES[dtype]}{FORMS[dtype]}", data))
    return [struct.unpack("f", struct.pack("I", b << 16))[0] for b in struct.unpack(f"{len(data) // 2}H", data)]


def wrapped(dtype, value):
    bits = 8 * SIZES[dtype]
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype != U8 and value >> (bits - 1) else value


def tree(values, op):
    half = (len(values) + 1) // 2
    return values[0] if len(values) == 1 else op(tree(values[:half], op), tree(values[half:], op))


def extreme(a, b, take):
    return a if a != a else b if b != b else take(a, b)


def reduced(dtype, kind, values, factors):
    """The reduction of the value of each rank."""
    real = dtype in (F32, BF16)
    if kind == PREMUL_SUM:
        values = [f32(v * f32(f)) for v, f in zip(values, factors)]
    ops = {PRODUCT: lambda a, b: a * b, MIN: lambda a, b: extreme(a, b, min), MAX: lambda a, b: extreme(a, b, max),
           BAND: lambda a, b: a & b, BOR: lambda a, b: a | b, BXOR: lambda a, b: a ^ b}
    op = ops.get(kind, lambda a, b: a + b)
    total = tree(values, lambda a, b: f32(op(a, b)) if real else wrapped(dtype, op(a, b)))
    if kind != AVG:
        return total
    if not real:
        return int(math.copysign(abs(total) // len(values), total)) if abs(total) < 1 << 50 else (abs(total) // len(values)) * (1 if total > 0 else -1)
    return values[0] if len(set(values)) == 1 and values[0] != 0 else f32(total / len(values))


def same(dtype, got, wanted):
    """Bit by bit, but for the kind of a NaN."""
    a, b = unpack(dtype, got), unpack(dtype, wanted)
    return len(a) == len(b) and all(x != x and y != y or pack(dtype, [x]) == pack(dtype, [y]) for x, y in zip(a, b))


def values_of(dtype, rank, count, seed):
    draw = random.Random(f"{dtype} {rank} {seed}")
    if dtype in (F32, BF16):
        some = [f32(draw.uniform(-2, 2) * 2.0 ** draw.randint(-8, 8)) for _ in range(count)]
        if count > 5:
            some[draw.randrange(count)] = math.nan
            some[3] = 0.7  # on all ranks
        return unpack(dtype, pack(dtype, some))
    bits = 8 * SIZES[dtype]
    return [wrapped(dtype, draw.getrandbits(bits if dtype != I64 or draw.random() < 0.5 else 20)) for _ in range(count)]


def check_call(group, collective, dtype, n, seed, kind=SUM, root=0):
    w, r = group.ranks, group.rank
    counts = {ALL_REDUCE: (n, n), ALL_GATHER: (n, w * n), REDUCE_SCATTER: (w * n, n), ALL_TO_ALL: (w * n, w * n), BROADCAST: (n, n)}
    given, taken = counts[collective]
    all_values = [values_of(dtype, p, given, seed) for p in range(w)]
    factors = [0.3 * (p + 1) for p in range(w)]
    sums = [reduced(dtype, kind, [v[i] for v in all_values], factors) for i in range(given)] if collective in (ALL_REDUCE, REDUCE_SCATTER) else []
    wanted = {ALL_REDUCE: lambda: sums, REDUCE_SCATTER: lambda: sums[r * n:(r + 1) * n], ALL_GATHER: lambda: sum(all_values, []),
              ALL_TO_ALL: lambda: sum((v[r * n:(r + 1) * n] for v in all_values), []), BROADCAST: lambda: all_values[root]}[collective]()
    got = group.result(collective, dtype, pack(dtype, all_values[r]), taken, reduce=kind, root=root, factor=factors[r])
    require(same(dtype, got, pack(dtype, wanted)), f"collective {collective} of {n} of dtype {dtype}, reduction {kind}, differs")


def reductions_of(dtype):
    return (SUM, AVG, PRODUCT, MIN, MAX, PREMUL_SUM) if dtype in (F32, BF16) else (SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR)


def some_calls(group, count, seed):
    draw = random.Random(seed)
    for k in range(count):
        collective, dtype = draw.randrange(5), draw.choice((F32, BF16, I64, I32, U8))
        check_call(group, collective, dtype, draw.choice((0, 1, 3, 64, 257)), (seed, k), draw.choice(reductions_of(dtype)), draw.randrange(group.ranks))


# ---- scenarios


def all_collectives():
    group = open_group(name=b"all")
    require((group.rank, group.ranks, group.name, group.transport) == (RANK, RANKS, "all", TRANSPORT.decode()), "describe() differs")
    for dtype in SIZES:
        for n in (0, 1, 5, 1000):
            for collective in (ALL_GATHER, ALL_TO_ALL):
                check_call(group, collective, dtype, n, 1)
            for root in range(RANKS):
                check_call(group, BROADCAST, dtype, n, root, root=root)
            for kind in reductions_of(dtype):
                check_call(group, ALL_REDUCE, dtype, n, 2, kind)
                check_call(group, REDUCE_SCATTER, dtype, n, 3, kind)
    check_call(group, ALL_REDUCE, F32, 30_011, 4)  # in several parts
    some_calls(group, 100, 5)
    group.barrier()
    group.close()


def split_groups():
    world = open_group()
    everyone = world.split(list(reversed(range(RANKS))), name=b"reversed")
    require((everyone.rank, everyone.name) == (RANKS - 1 - RANK, "reversed"), "the order of members is not kept")
    most = world.split([0, 1] if RANK < 2 else [])
    for group in [everyone] + ([most] if most else []):
        some_calls(group, 20, 6)
    world.close()
    some_calls(everyone, 5, 7)  # which outlives the group that it comes from
    everyone.close()
    if most:
        some_calls(most, 5, 8)
        most.close()


def two_threads():
    world = open_group()
    other = open_group(name=b"other")
    part = world.split(list(range(RANKS)))
    in_threads(lambda: some_calls(world, 60, 9), lambda: some_calls(other, 60, 10), lambda: some_calls(part, 60, 11))
    # Any thread may make the next call of a group, and equal calls may come from two threads at once.
    in_threads(*2 * [lambda: [world.barrier() for _ in range(50)]])
    other.close()
    world.close()


def many_groups():
    first = None
    for k in range(60):
        group = open_group(name=b"again")
        check_call(group, ALL_REDUCE, F32, 100 + k, k)
        group.close()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        first = memory if k == 20 else first
    require(memory - first < 4096, f"40 groups took {memory - first} KiB")
    require(len(os.listdir("/proc/self/fd")) < 40, "descriptors stay open")


def root_leaves():
    group = open_group()
    for n in (10, 100_000):
        if group.rank != 0:
            time.sleep(0.3)
        got = group.result(BROADCAST, I32, pack(I32, [7 + group.rank] * n), n)
        require(got == pack(I32, [7] * n), "the broadcast differs")
    group.close()  # at once


def wrong_calls():
    group = open_group()
    handle = c.c_void_p()
    expect(library.tutti_ranks_open(None, None), USAGE, "ranks is NULL")
    for options, text in ((Options(4), "options->struct_size is 4"), (Options(c.sizeof(Options), rank=1), "set both"),
                          (Options(c.sizeof(Options), timeout_ms=-1), "options->timeout_ms is -1"),
                          (Options(c.sizeof(Options), rank=2, ranks=2, url=b"tcp://127.0.0.1:1"), "ranks count from 0"),
                          (Options(c.sizeof(Options), ranks=1 << 30, url=b"tcp://127.0.0.1:1"), "the world size is 1073741824; it must be 65536 or less"),
                          (Options(c.sizeof(Options), url=b"http://x"), "no handler: unknown scheme 'http'")):
        expect(library.tutti_ranks_open(c.byref(options), c.byref(handle)), USAGE, text)
        require(not handle, "a group was opened")
    for transport, text in ((b"shn", "unknown transport 'shn'; did you mean 'shm'? Known: shm"), (b"mpi", "transport mpi is not part of this build: the full library has it"),
                            (b"threads", "transport threads is not part of this build: it has shm"), (b"fake", "transport fake is not part of this build: it has shm"),
                            (b"cuda:nccl", "transport nccl is not part of this build, whose groups take tensors on cpu")):
        expect(within(5, lambda: try_open(transport=transport))[0], USAGE, text)
    expect(library.tutti_ranks_describe(group.handle, c.byref(Info(4))), USAGE, "info->struct_size is 4")
    expect(library.tutti_ranks_barrier(None), USAGE, "ranks is NULL")
    expect(library.tutti_ranks_split(group.handle, None, 1, None, c.byref(handle)), USAGE, "members is NULL")
    # On all ranks alike, on one of them, and where they differ; the group stays usable.
    for arguments, more, text in (((9, F32, b"", 0), {}, "no collective 9"), ((ALL_REDUCE, 77, b"", 0), {}, "no dtype 77"),
                                  ((ALL_REDUCE, F32, b"", 0), {"reduce": 55}, "no reduction 55"),
                                  ((ALL_REDUCE, F32, b"1234", 2), {}, "input_count is 1 and output_count 2"),
                                  ((ALL_REDUCE, F32, b"1234", 1), {"reduce": BAND}, "band works on bits"),
                                  ((BROADCAST, F32, b"1234", 1), {"root": 5}, "root"),
                                  ((ALL_GATHER, F32, b"1234", 1), {}, "all_gather_single")):
        SIZES.setdefault(77, 1)
        code, said, _ = group.call(*arguments, **more)
        expect(code, USAGE, text, text=said)
    require(group.table.run(group.table.user, None) == USAGE, "a call that is NULL was made")
    without_text = Call(c.sizeof(Call), ALL_REDUCE, 77, error=None, error_bytes=10)
    require(group.table.run(group.table.user, c.byref(without_text)) == USAGE, "there is no dtype 77")
    if group.rank == 0:
        code, said, _ = group.call(ALL_REDUCE, F32, b"12345678", 1)
    else:
        code, said, _ = group.call(ALL_REDUCE, F32, b"1234", 1)
    expect(code, USAGE, "input_count is 2", text=said)
    code, said, _ = group.call(ALL_REDUCE, F32, b"1234" * (1 + group.rank), 1 + group.rank)
    expect(code, USAGE, "rank 0", "rank 1", text=said)
    some_calls(group, 10, 12)
    group.close()


def other_numbers():
    """Each rank says that there is one more rank than the one before says."""
    code, _ = try_open(rank=RANK, ranks=RANKS + RANK, url=f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}".encode(), timeout_ms=5000)
    expect(code, USAGE, "2", "3")
    if RANK == 0:
        time.sleep(2)  # the others read it in the store of this process


def absent_rank():
    """Only rank 0 opens."""
    if RANK == 0:
        before = time.monotonic()
        expect(try_open(timeout_ms=1500)[0], PEER, "ranks 1 of 2 did not come within 1500 ms")
        require(time.monotonic() - before < 10, "it took too long")


def killed_peer(killed=RANKS - 1):
    group = open_group()
    some_calls(group, 5, 13)
    if group.rank == killed:
        os.kill(os.getpid(), 9)
    before = time.monotonic()
    for _ in range(2):
        code, said, _ = group.call(ALL_REDUCE, F32, b"1234", 1)
        expect(code, PEER, f"rank {killed}", text=said)
    require(time.monotonic() - before < 20, "it took too long")
    expect(library.tutti_ranks_barrier(group.handle), PEER, f"rank {killed}")
    group.close()


def killed_first_rank():
    """It has the store."""
    killed_peer(0)
    code, _ = try_open(timeout_ms=1000)
    require(code not in (OK, USAGE), "a group was opened without rank 0")


def late_peer():
    group = open_group(timeout_ms=1500)
    before = time.monotonic()
    if group.rank == 1:
        time.sleep(4)
    code, said, _ = group.call(ALL_REDUCE, F32, b"1234", 1)
    expect(code, PEER, "rank 1", text=said)
    require(time.monotonic() - before < 10, "it took too long")
    group.close()
    again = open_group()  # a new group of the same ranks
    some_calls(again, 3, 14)
    again.close()


def forked_child():
    group = open_group()
    some_calls(group, 3, 15)
    child = os.fork()
    if child == 0:
        code = library.tutti_ranks_barrier(group.handle)
        library.tutti_ranks_close(group.handle)
        os._exit(0 if code == USAGE else 1)
    require(os.waitpid(child, 0)[1] == 0, "a child has used the group of its parent")
    some_calls(group, 3, 16)
    group.close()


def crossed_opens():
    """Two threads of each process wait for the other process, in which they have the other rank."""
    world = open_group()
    places = [place_of(world, 0), place_of(world, 1)]

    def work(k):
        rank = RANK ^ k
        time.sleep(0.5 * (rank == 0))  # so that both ranks 1 wait for a store first
        group = open_group(rank=rank, ranks=2, url=places[k], timeout_ms=15000)
        some_calls(group, 5, k)
        group.close()

    within(10, lambda: in_threads(lambda: work(0), lambda: work(1)))
    world.close()


def open_while_another_waits():
    """A thread that waits for a store holds up no group at another place, nor a child."""
    nobody = dict(rank=1, ranks=2, url=free_place())

    def wait_for_nobody():
        expect(try_open(**nobody, timeout_ms=4000)[0], PEER, "nobody answered")

    def open_alone():
        group = open_group(rank=0, ranks=1, url=free_place(), timeout_ms=1000)
        group.barrier()
        return group

    def fork_child(group):
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            try:
                group.close()  # which is that of the parent
                open_alone().close()
                os._exit(0)
            except BaseException:
                os._exit(1)
        status = os.waitpid(child, 0)[1]
        require(status == 0, f"the child ended with {status}")

    def meanwhile():
        time.sleep(0.5)
        group = within(1, open_alone)
        expect(within(1.5, lambda: try_open(**nobody, timeout_ms=500))[0], PEER, "another thread of this process has looked for it for 500 ms")
        fork_child(group)
        group.barrier()
        group.close()

    in_threads(wait_for_nobody, meanwhile)


def failed_opens():
    """They count on all ranks alike, also while another group lives, so that the next ones belong together again."""
    first = open_group(name=b"first")
    for alone, late in ((0, 1), (1, 0)):
        if RANK == alone:
            expect(try_open(name=b"vain", timeout_ms=1000)[0], PEER, f"ranks {late} of 2 did not come within 1000 ms")
        first.barrier()
        if RANK == late:
            expect(within(5, lambda: try_open(name=b"vain"))[0], PEER, f"rank {alone} has given up", f"ranks {late} of 2 did not come")
        if RANK == alone:  # which does not count
            expect(try_open(timeout_ms=-1)[0], USAGE)
        again = within(5, lambda: open_group(name=b"again"))
        some_calls(again, 5, 17)
        again.close()
    some_calls(first, 5, 18)
    first.close()
    last = open_group()
    some_calls(last, 5, 19)
    last.close()


def cancelled_thread():
    """A thread that runs nothing but the barrier is cancelled in it."""
    group = open_group()
    if RANK == 0:
        system, thread, result = c.CDLL(None), c.c_ulong(), c.c_void_p()
        require(system.pthread_create(c.byref(thread), None, c.cast(library.tutti_ranks_barrier, c.c_void_p), group.handle) == 0, "no thread")
        time.sleep(0.5)
        require(system.pthread_cancel(thread) == 0, "the thread has ended")
        require(system.pthread_join(thread, c.byref(result)) == 0 and (result.value or 0) & 0xFFFFFFFF == OK, f"the barrier returned {result.value}")
    else:
        time.sleep(1.5)
        group.barrier()
    some_calls(group, 5, 20)
    group.close()


def places_of_one_rank():
    """Nothing is left of a place where one rank has been alone."""

    def count_kept():
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    def visit(url):
        group = open_group(rank=0, ranks=1, url=url)
        group.barrier()
        group.close()

    visit(free_place())
    before = count_kept()
    for _ in range(20):
        visit(free_place())
    place = free_place()
    for _ in range(3):
        visit(place)
        expect(try_open(rank=0, ranks=1, url=place, transport=b"shn")[0], USAGE, "unknown transport")
    require(count_kept() == before, f"threads and descriptors: {before}, and then {count_kept()}")
    in_threads(*4 * [lambda: [visit(place) for _ in range(20)]])  # of which one ends the store while others open groups
    deadline = time.monotonic() + 5  # threads of the program end a moment after they are joined
    while count_kept() != before and time.monotonic() < deadline:
        time.sleep(0.01)
    require(count_kept() == before, f"threads and descriptors: {before}, and then {count_kept()}")


require(library.tutti_ranks_version() == 1, "another version")
globals()[sys.argv[3]]()
print("done")
