"""What demoting FP16 to INT4 in another process costs a foreground on the same GPU.

    interference.py --mover build/release/tests/bench/gpu_mover [--label apart] [--paces 5,10,20,40,80,120,160] [--seconds 1]

The foreground is this process: a bf16 matrix product of 8192^3 (TFLOP/s), or decode attention in FP16 on 16 sequences of 16,384
tokens, 8 KV heads of 4 query heads each, width 128 (GB/s of keys and values read), back to back, timed by CUDA events in windows of
about 10 ms. Each case is measured between two of the foreground alone. Lines, MOVED being GB of FP16 a second that were demoted:

    interference LABEL FOREGROUND PACE MOVED ALONE BESIDE LOSS_MEDIAN% LOSS_MEAN%
    interference_pace LABEL FOREGROUND PACE MOVED    the fastest pace up to which every one costs less than 5 % by both measures

PACE is in GB of FP16 a second; 0: as fast as it goes. The median is of windows, the mean of all of the time.
"""
import argparse
import os
import select
import statistics
import subprocess
import sys

import torch
import torch.nn.functional as functional

LOSS_MAX = 5.0  # Percent.
WINDOWS_UNDER_WAY = 3


class Mover:
    def __init__(self, program, batch_mib, threads):
        environment = dict(os.environ)
        if threads:
            environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(threads)
        self.process = subprocess.Popen([program, "--batch-mib", str(batch_mib)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=environment)
        self.pending = b""
        self.expect("ready")

    def line(self):
        # Not through a buffered reader: busy() asks the descriptor.
        while b"\n" not in self.pending:
            got = os.read(self.process.stdout.fileno(), 4096)
            if not got:
                raise RuntimeError(f"the mover ended: {self.process.wait()}")
            self.pending += got
        line, _, self.pending = self.pending.partition(b"\n")
        return line.decode()

    def expect(self, word):
        line = self.line()
        if not line.startswith(word):
            raise RuntimeError(f"the mover said {line!r}, not {word!r}")
        return line

    def start(self, pace, seconds):
        self.process.stdin.write(f"{pace} {seconds}\n".encode())
        self.process.stdin.flush()
        self.expect("started")

    def busy(self):
        return not self.pending and not select.select([self.process.stdout], [], [], 0)[0]

    def moved(self):
        return float(self.expect("moved").split()[1])

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Matmul:
    name, unit = "matmul", "TFLOP/s"

    def __init__(self):
        size = 8192
        self.a, self.b = (torch.randn((size, size), device="cuda", dtype=torch.bfloat16) for _ in range(2))
        self.out = torch.empty_like(self.a)
        self.work = 2 * size**3 / 1e12

    def __call__(self):
        torch.matmul(self.a, self.b, out=self.out)


class Attention:
    name, unit = "attention", "GB/s"

    def __init__(self):
        sequences, kv_heads, group, tokens, width = 16, 8, 4, 16384, 128
        shape = (sequences, kv_heads, tokens, width)
        self.keys, self.values = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(2))
        self.query = torch.randn((sequences, kv_heads * group, 1, width), device="cuda", dtype=torch.float16)
        self.work = 2 * 2 * self.keys.numel() / 1e9

    def __call__(self):
        functional.scaled_dot_product_attention(self.query, self.keys, self.values, enable_gqa=True)


def windows(call, count, goes_on):
    """Seconds of windows of `count` calls, back to back, until goes_on(windows begun) is false."""

    def mark():
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    marks = [mark()]
    while goes_on(len(marks)):
        for _ in range(count):
            call()
        marks.append(mark())
        if len(marks) > WINDOWS_UNDER_WAY:
            marks[-WINDOWS_UNDER_WAY].synchronize()
    torch.cuda.synchronize()
    # What was under way when it ended may have had the GPU for itself.
    measured = marks[:-WINDOWS_UNDER_WAY] if len(marks) > 3 * WINDOWS_UNDER_WAY else marks
    return [a.elapsed_time(b) / 1e3 for a, b in zip(measured, measured[1:])]


def measure(foreground, mover, label, paces, seconds):
    for _ in range(5):
        foreground()
    torch.cuda.synchronize()
    once = statistics.median(windows(foreground, 1, lambda begun: begun <= 30))
    count = max(1, round(0.01 / once))
    alone_windows = max(12, round(seconds / 3 / (once * count)))

    def alone():
        return windows(foreground, count, lambda begun: begun <= alone_windows)

    alone()  # The clocks settle.
    before = alone()
    fits, best = True, None
    for pace in paces + [0]:
        mover.start(pace, seconds)
        beside = windows(foreground, count, lambda begun: mover.busy())
        moved = mover.moved()
        after = alone()
        both = before + after
        by_median = 100 * (1 - statistics.median(both) / statistics.median(beside))
        by_mean = 100 * (1 - statistics.mean(both) / statistics.mean(beside))
        work = foreground.work * count
        print(f"interference {label} {foreground.name} {pace:g} {moved:.1f} {work / statistics.median(both):.1f} "
              f"{work / statistics.median(beside):.1f} {by_median:.1f} {by_mean:.1f}", flush=True)
        fits = fits and max(by_median, by_mean) < LOSS_MAX
        if fits:
            best = (pace, moved)
        before = after
    pace, moved = best if best else (None, 0)
    word = "none" if pace is None else "unpaced" if pace == 0 else f"{pace:g}"
    print(f"interference_pace {label} {foreground.name} {word} {moved:.1f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="What demotion costs a foreground on the same GPU")
    parser.add_argument("--mover", required=True)
    parser.add_argument("--label", default="-")
    parser.add_argument("--paces", default="5,10,20,40,80,120,160", help="GB of FP16 a second, ascending; unpaced is added")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each case")
    parser.add_argument("--batch-mib", type=int, default=64)
    parser.add_argument("--mover-threads", type=int, default=0, help="under MPS: percent of the GPU that the mover may use")
    options = parser.parse_args()
    paces = [float(pace) for pace in options.paces.split(",") if pace]
    mover = Mover(options.mover, options.batch_mib, options.mover_threads)
    try:
        mover.start(0, 1)
        print(f"interference {options.label} nothing 0 {mover.moved():.1f} - - - -", flush=True)
        for kind in (Matmul, Attention):
            foreground = kind()
            measure(foreground, mover, options.label, paces, options.seconds)
            del foreground
            torch.cuda.empty_cache()
    finally:
        mover.close()


if __name__ == "__main__":
    sys.exit(main())
