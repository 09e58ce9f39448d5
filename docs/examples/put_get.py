"""Puts a block of keys and values with nothing but generated gRPC stubs, and gets it back. docs/api.md says how to run it.

    put_get.py SOCKET         unix:/run/firnkv/firnd.sock, or HOST:PORT
"""
import sys

import grpc
from firn.v1 import kv_pb2, kv_pb2_grpc, types_pb2

CHUNK_BYTES = 1 << 20  # Capabilities.limits.chunk_bytes_max says what a message may carry.


def put_requests(fingerprint, block, payload):
    """`start`, then the block, then its payload in chunks; the first chunk may travel with the block."""
    start = kv_pb2.PutStart(namespace_fingerprint=fingerprint)
    for offset in range(0, len(payload), CHUNK_BYTES):
        request = kv_pb2.PutRequest(offset=offset, payload=payload[offset:offset + CHUNK_BYTES])
        if offset == 0:
            request.start.CopyFrom(start)
            request.block.CopyFrom(block)
        yield request


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__.strip())
    # Messages may be as large as Limits.message_bytes_max; the default of gRPC is 4 MiB.
    channel = grpc.insecure_channel(sys.argv[1], options=[("grpc.max_receive_message_length", 16 << 20)])
    kv = kv_pb2_grpc.KvStoreStub(channel)

    facts = types_pb2.NamespaceFacts(model_id="example", dtype=types_pb2.DTYPE_FP16, layer_last=4, kv_heads=2, k_width=64,
                                     v_width=64, block_tokens=16)
    namespace = kv.RegisterNamespace(kv_pb2.RegisterNamespaceRequest(facts=facts))
    # K, then V, each [layer][head][token][channel]. Any FP16 values will do: 0x3C00 to 0x3CFF are a little more than 1.
    payload = b"".join(bytes((i % 256, 0x3C)) for i in range(namespace.block_bytes // 2))
    key = types_pb2.BlockKey(opaque=b"request 17, block 0")
    block = kv_pb2.PutBlock(ref=types_pb2.BlockRef(key=key), tokens=16, payload_bytes=len(payload))

    for answer in kv.Put(put_requests(namespace.namespace_fingerprint, block, payload), timeout=60):
        if answer.status.code != 0:
            sys.exit(f"put: {answer.status.message}")
        print("put:", kv_pb2.PutOutcome.Name(answer.outcome))

    exists = kv.Exists(kv_pb2.ExistsRequest(namespace_fingerprint=namespace.namespace_fingerprint, keys=[key]), timeout=10)
    print("exists:", exists.blocks[0].found)

    got = bytearray()
    request = kv_pb2.GetRequest(namespace_fingerprint=namespace.namespace_fingerprint, blocks=[types_pb2.BlockRef(key=key)])
    for answer in kv.Get(iter([request]), timeout=60):
        if answer.status.code != 0:
            sys.exit(f"get: {answer.status.message}")  # NOT_FOUND is a miss: compute the block.
        if answer.HasField("found"):
            got = bytearray(answer.found.payload_bytes)
            print("get: precision of K", types_pb2.PrecisionClass.Name(answer.found.served.k))
        got[answer.offset:answer.offset + len(answer.payload)] = answer.payload
    print("the same bytes:", bytes(got) == payload)
    return 0 if bytes(got) == payload else 1


if __name__ == "__main__":
    sys.exit(main())
