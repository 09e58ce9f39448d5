"""PyTorch's FP16 scaled_dot_product_attention on the shapes of attention_bench: `sdpa SEQUENCES TOKENS KV_HEADS GROUP WIDTH MICROSECONDS GB/s`.

One query token a sequence, contiguous keys and values; several caches in turn, so that no cache of the GPU holds them; one
captured graph a round, so that launches do not count. Medians of 21 rounds.
"""
import statistics

import torch
import torch.nn.functional as functional

KV_HEADS, ROUNDS = 8, 21


def measure(sequences, tokens, group, width=128):
    once = sequences * tokens * KV_HEADS * width * 2 * 2
    pools = max(1, (2 << 30) // once)
    shape = (sequences, KV_HEADS, tokens, width)
    keys = [torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(pools)]
    values = [torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(pools)]
    query = torch.randn((sequences, KV_HEADS * group, 1, width), device="cuda", dtype=torch.float16)

    def attend():
        for key, value in zip(keys, values):
            functional.scaled_dot_product_attention(query, key, value, enable_gqa=group > 1)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            attend()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        attend()
    times = []
    for _ in range(ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / pools)
    median = statistics.median(times)
    print(f"sdpa {sequences:3} {tokens:6} {KV_HEADS} {group} {width:3} {median:9.1f} {once / median / 1e3:6.0f}", flush=True)


def main():
    for sequences in (1, 4, 16, 64):
        for tokens in (1024, 4096, 16384, 65536):
            if sequences * tokens <= 1 << 20:
                measure(sequences, tokens, 4)
    measure(16, 16384, 1)
    measure(16, 16384, 8)
    measure(16, 16384, 4, width=64)


if __name__ == "__main__":
    main()
