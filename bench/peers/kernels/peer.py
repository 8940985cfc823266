"""What the peers in Python share, as peer.h does for those in C++: the clock of `tutti bench`, and cases on stdin answered on stdout."""
import itertools
import json
import statistics
import sys
import time


def measure(run, batch_s=0.004, batches=15):
    """bench/measure.h: batches of about 4 ms after two warm-up calls; what takes half a second is timed once."""
    def time_of(calls):
        begin = time.perf_counter()
        for _ in itertools.repeat(None, calls):
            run()
        return (time.perf_counter() - begin) / calls * 1e6
    run()
    once = time_of(1)
    calls = max(1, int(batch_s * 1e6 / max(once, 0.01)))
    samples = [time_of(calls) for _ in range(batches)] if once < 5e5 else [once]
    return min(samples), statistics.median(samples)


def serve(make, **about):
    """`about` has version and isa. make(op, sizes, dtype, layout): the call to time, or several by name of which the fastest counts, and the error of a result; None for what the library has not."""
    print(json.dumps(about), flush=True)
    for line in sys.stdin:
        words = line.split()
        numbers = [int(word) for word in words if word.isdigit()]
        texts = [word for word in words[1:] if not word.isdigit()]
        try:
            made = make(words[0], numbers, texts[0], texts[1] if len(texts) > 1 else "")
            if made is None:
                answer = {"missing": "no such operation"}
            else:
                ways, error_of = made if isinstance(made[0], dict) else ({"call": made[0]}, made[1])
                error = max(error_of(run()) for run in ways.values())
                (minimum, median), kernel = min((measure(run), name) for name, run in ways.items())
                answer = {"min_us": minimum, "median_us": median, "error": error, "kernel": kernel}
        except (RuntimeError, AttributeError, TypeError, ValueError) as e:
            answer = {"missing": str(e).splitlines()[0]}
        print(json.dumps(answer), flush=True)
