#include "tests/support/mixed_load.h"

#include <span>

namespace firn {

absl::Status OperateOnce(firnkv::Client& client, const firnkv::Namespace& ns, const KnownModel& model, uint64_t keys,
                         std::mt19937_64& random, LoadTally& tally) {
  const uint64_t number = random() % keys;
  const firnkv::BlockKey key = KnownKey(number);
  absl::Status status;
  switch (random() % 8) {
    case 0:
    case 1:
    case 2: {
      firnkv::PutOptions options;
      if (random() % 4 == 0) options.ack = firnkv::AckLevel::kDurable;
      firnkv::PutResult put = PutKnown(client, ns, model, number, options);
      status = put.status;
      if (absl::IsAborted(status) || absl::IsResourceExhausted(status)) return absl::OkStatus();
      tally.stored += put.stored ? 1 : 0;
      break;
    }
    case 3: {
      auto deleted = client.Delete(ns, std::span(&key, 1));
      status = deleted.ok() ? deleted->front() : deleted.status();
      tally.deleted += status.ok() ? 1 : 0;
      break;
    }
    case 4: {
      auto prefix = client.Lookup(ns, std::span(&key, 1));
      status = prefix.status();
      if (prefix.ok()) tally.found += prefix->blocks;
      break;
    }
    default: {
      double error = 0;
      firnkv::GetResult got = GetKnown(client, ns, model, number, &error);
      status = got.status;
      if (status.ok()) ++(error <= ErrorLimit(got.served.Min()) ? tally.read : tally.wrong);
    }
  }
  if (!absl::IsNotFound(status)) return status;
  ++tally.missed;
  return absl::OkStatus();
}

}  // namespace firn
