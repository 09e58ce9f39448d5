#!/usr/bin/env python3
"""Cuts sample_128tok.safetensors out of the full capture: python3 make_sample.py CAPTURE.safetensors TOKENS.npy"""
import json
import pathlib
import struct
import sys

import numpy as np

TOKENS, LAYERS = 128, (0, 2)


def main(capture, tokens):
    raw = pathlib.Path(capture).read_bytes()
    (header_bytes,) = struct.unpack("<Q", raw[:8])
    header, values = json.loads(raw[8 : 8 + header_bytes]), raw[8 + header_bytes :]
    out = {"tokens": ("U16", np.load(tokens)[:TOKENS].astype("<u2"))}
    for layer in LAYERS:
        for part in ("k", "v"):
            entry = header[f"layer{layer}.{part}"]
            begin, end = entry["data_offsets"]
            out[f"layer{layer}.{part}"] = ("F16", np.frombuffer(values[begin:end], "<f2").reshape(entry["shape"])[:TOKENS])
    entries, data = {}, b""
    for name, (dtype, array) in out.items():
        payload = array.tobytes()
        entries[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(data), len(data) + len(payload)]}
        data += payload
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    target = pathlib.Path(__file__).with_name("sample_128tok.safetensors")
    target.write_bytes(struct.pack("<Q", len(text)) + text + data)


main(*sys.argv[1:])
