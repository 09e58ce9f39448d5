#include "daemon/core/status_map.h"

#include "base/status.h"
#include "firn/v1/types.pb.h"

namespace firn {
namespace {

constexpr size_t kMessageBytesMax = 1024;

// Printable ASCII as it is, everything else as '?': a message is for logs and terminals of whoever called.
std::string Clean(std::string text) {
  if (text.size() > kMessageBytesMax) text = text.substr(0, kMessageBytesMax - 3) + "...";
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

}  // namespace

WireStatus ToWire(const absl::Status& status) { return {static_cast<uint32_t>(status.code()), Clean(Message(status))}; }

void FromStatus(const absl::Status& status, v1::Status* out) {
  if (status.ok()) return;
  WireStatus wire = ToWire(status);
  out->set_code(wire.code);
  out->set_message(std::move(wire.message));
}

}  // namespace firn
