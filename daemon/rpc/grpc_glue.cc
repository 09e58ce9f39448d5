#include "daemon/rpc/grpc_glue.h"

#include <algorithm>
#include <chrono>

namespace firn {

int64_t DeadlineNs(const grpc::CallbackServerContext& context, const Clock& clock, int64_t longest_ms) {
  int64_t longest_ns = longest_ms * 1'000'000;
  auto left = context.deadline() - std::chrono::system_clock::now();
  // A call without a deadline has one at the end of time, whose difference overflows nanoseconds.
  if (left < std::chrono::milliseconds(longest_ms)) {
    longest_ns = std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(left).count());
  }
  return clock.NowNs() + longest_ns;
}

bool TakeSlices(grpc::ByteBuffer* message, MessageSlices* out) {
  out->slices.clear();
  out->views.clear();
  if (!message->Dump(&out->slices).ok()) return false;
  out->views.reserve(out->slices.size());
  for (const grpc::Slice& slice : out->slices) out->views.emplace_back(slice.begin(), slice.size());
  message->Clear();
  return true;
}

}  // namespace firn
