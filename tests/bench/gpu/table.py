"""The tables of tests/bench/gpu/run, from what its steps wrote: table.py DIRECTORY."""
import glob
import os
import sys

TABLES = {
    "interference": (
        "Demotion FP16 -> INT4 in another process beside a foreground; GB of FP16 a second, TFLOP/s or GB/s, percent lost",
        ["how", "foreground", "pace", "demoted", "alone", "beside", "lost, median", "lost, mean"]),
    "interference_pace": ("The fastest pace up to which the foreground loses less than 5 %", ["how", "foreground", "pace", "demoted"]),
    "handover": ("Handing KV over as INT4; GB of FP16 a second, and the rate of the worker's load alone over its rate meanwhile",
                 ["how", "way", "load", "handed over", "slowdown"]),
    "workers": ("Workers against one firnd; GB of FP16 a second, sums over workers, each from-to, both by the clock; blocks missed",
                ["how", "workers", "put", "least", "most", "get", "least", "most", "put and got", "missed"]),
    "workers_failed": ("Workers that failed", ["how", "workers", "failed", "what"]),
}


def rows_of(folder, word, columns):
    rows = []
    for path in sorted(glob.glob(os.path.join(folder, "*.out")), key=os.path.getmtime):
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                # The last column takes what is left of the line.
                found = line.split(None, columns)
                if len(found) == columns + 1 and found[0] == word:
                    rows.append([text.strip() for text in found[1:]])
    return rows


def show(title, heads, rows):
    widths = [max(len(row[i]) for row in [heads] + rows) for i in range(len(heads))]
    print(f"\n{title}")
    for row in [heads] + rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())


def main():
    folder = sys.argv[1]
    for word, (title, heads) in TABLES.items():
        rows = rows_of(folder, word, len(heads))
        if rows:
            show(title, heads, rows)
    moves = os.path.join(folder, "moves.out")
    if os.path.exists(moves):
        print("\nRandom moves of a store over a GPU, then a recount")
        with open(moves, encoding="utf-8", errors="replace") as file:
            for line in file:
                if " done " in line or line.startswith(("FIRN_", "[       OK", "[  FAILED", "[  SKIPPED")):
                    print(line.rstrip())


if __name__ == "__main__":
    main()
