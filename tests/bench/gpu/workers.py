"""Workers that put and get beside each other against one firnd with a tier on a GPU.

    workers.py --firnd PATH --worker PATH [--count 4] [--seconds 2] [--label apart] [--backend cuda]

The worker is gpu_worker (its GPU's memory, CUDA IPC) or inline_worker (its own memory, gRPC), blocks of 8.39 MB, 8 a call. All begin
together. One line, rates in GB/s of FP16; BOTH is what all of them put and got over the time that the slowest took:

    workers LABEL COUNT PUT_SUM PUT_MIN PUT_MAX GET_SUM GET_MIN GET_MAX BOTH MISSED

Exit code 1, and `workers_failed LABEL COUNT HOW_MANY WHAT`, where a worker failed.
"""
import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

CONFIGURATION = """
state_dir = "{folder}"
runtime_dir = "{folder}"
[limits]
transport_budget = "4GiB"
puts_in_flight = "4GiB"
[admin]
http = "off"
[[tier]]
name = "hot"
medium = "gpu:0"
capacity = "{capacity}"
staging = "2GiB"
scratch = "1GiB"
backend = "{backend}"
[[tier]]
name = "warm"
medium = "dram"
capacity = "{warm}"
precision = "int8"
"""
RESULT = re.compile(r"blocks of ([\d.]+) MB: put (\d+) at ([\d.]+) GB/s, got (\d+) at ([\d.]+) GB/s.* missed (\d+).* in ([\d.]+) s")
START_S, STOP_S = 40, 15


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing said"


def start_daemon(options, folder):
    config = os.path.join(folder, "firnd.toml")
    with open(config, "w", encoding="utf-8") as file:
        file.write(CONFIGURATION.format(folder=folder, backend=options.backend, capacity=options.capacity, warm=options.warm))
    with open(os.path.join(folder, "log"), "wb") as log:
        daemon = subprocess.Popen([options.firnd, "--config", config], stdout=log, stderr=log)
    until = time.monotonic() + START_S
    while time.monotonic() < until and daemon.poll() is None and not os.path.exists(os.path.join(folder, "firnd.sock")):
        time.sleep(0.05)
    return daemon


def log_of(folder):
    with open(os.path.join(folder, "log"), encoding="utf-8", errors="replace") as log:
        return log.read()


def end(process):
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_workers(options, folder):
    """(results, what the others said)"""
    go = os.path.join(folder, "go")
    command = [options.worker, "--socket", f"unix:{folder}/firnd.sock", "--seconds", str(options.seconds), "--blocks", "8", "--go", go]
    workers, errors = [], []
    for i in range(options.count):
        errors.append(open(os.path.join(folder, f"worker{i}.err"), "w+b"))
        workers.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors[-1], text=True))
    # One that fails before it is ready says nothing, and the others go on without it.
    for worker in workers:
        worker.stdout.readline()
    # The pool is there with the first block; the arena below is registered by and by.
    time.sleep(options.settle)
    with open(go, "wb"):
        pass
    results, failures = [], []
    for worker, error in zip(workers, errors):
        try:
            said, _ = worker.communicate(timeout=options.seconds + 30)
        except subprocess.TimeoutExpired:
            worker.kill()
            said, _ = worker.communicate()
        found = RESULT.search(said)
        error.seek(0)
        if worker.returncode == 0 and found:
            results.append([float(group) for group in found.groups()])
        else:
            failures.append(f"exit {worker.returncode}: {last_line(error.read().decode(errors='replace') or said)}")
        error.close()
    return results, failures


def main():
    parser = argparse.ArgumentParser(description="Workers beside each other against one firnd")
    parser.add_argument("--firnd", required=True)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--label", default="-")
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--settle", type=float, default=1.0, help="seconds from when all are ready")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--capacity", default="40GiB", help="of the pool")
    parser.add_argument("--warm", default="8GiB", help="of the memory below")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="firn-workers-") as folder:
        daemon = start_daemon(options, folder)
        try:
            if os.path.exists(os.path.join(folder, "firnd.sock")):
                results, failures = run_workers(options, folder)
            else:
                results, failures = [], ["firnd did not start: " + last_line(log_of(folder))] * options.count
        finally:
            end(daemon)
            sys.stderr.write(log_of(folder)[-4000:])
    if results:
        puts, gets = [row[2] for row in results], [row[4] for row in results]
        gigabytes = sum(row[0] * (row[1] + row[3]) for row in results) / 1e3
        print(f"workers {options.label} {options.count} {sum(puts):.1f} {min(puts):.1f} {max(puts):.1f} {sum(gets):.1f} {min(gets):.1f} "
              f"{max(gets):.1f} {gigabytes / max(row[6] for row in results):.1f} {sum(row[5] for row in results):.0f}")
    if failures:
        print(f"workers_failed {options.label} {options.count} {len(failures)} {failures[0]}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
