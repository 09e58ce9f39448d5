#include "client/cpp/api/device.h"

#include "base/status.h"
#include "client/cpp/api/client_impl.h"
#include "client/cpp/api/convert.h"
#include "client/cpp/transport/unary.h"

namespace firnkv {
namespace {

std::string HandleBytes(const DeviceHandle& handle) {
  return std::string(reinterpret_cast<const char*>(handle.data()), handle.size());
}

void ToProto(const DevicePart& part, firn::v1::DevicePart* out) {
  for (const DeviceLayer& layer : part.layers) {
    auto* to = out->add_layers();
    to->set_memory(layer.memory);
    to->set_offset(layer.offset);
  }
  out->mutable_pages()->Add(part.pages.begin(), part.pages.end());
  out->set_page_tokens(part.page_tokens);
  out->set_page_stride(part.page_stride);
  out->set_token_stride(part.token_stride);
  out->set_head_stride(part.head_stride);
}

}  // namespace

void ToProto(const DeviceRows& rows, firn::v1::DeviceRows* out) {
  for (const DeviceHandle& memory : rows.memory) out->add_memory(HandleBytes(memory));
  if (rows.event != DeviceHandle{}) out->set_event(HandleBytes(rows.event));
  ToProto(rows.k, out->mutable_k());
  ToProto(rows.v, out->mutable_v());
}

absl::StatusOr<std::vector<DeviceResult>> Client::GetToDevice(const Namespace& ns, std::span<const GetItem> items,
                                                              std::span<const DeviceRows> rows,
                                                              const DeviceGetOptions& options) {
  if (items.size() != rows.size()) {
    return firn::InvalidArgument("{} blocks and {} rows; one each expected", items.size(), rows.size());
  }
  if (items.empty()) return std::vector<DeviceResult>();
  Transport* transport = impl_->transport.get();
  firn::v1::GetToDeviceRequest request;
  request.set_namespace_fingerprint(Bytes(ns.fingerprint));
  ToProto(options.least, request.mutable_least());
  ToProto(options.most, request.mutable_most());
  for (size_t i = 0; i < items.size(); ++i) {
    auto* block = request.add_blocks();
    ToProto(items[i].key, block->mutable_key());
    block->set_shard(items[i].shard);
    ToProto(rows[i], request.add_rows());
  }
  firn::v1::GetToDeviceResponse response;
  FIRN_RETURN_IF_ERROR(CallUntil(transport, transport->kv(), &firn::v1::KvStore::Stub::GetToDevice, request,
                                 DeadlineAfter(options.deadline_ms, transport->options().data_deadline_ms), &response));
  if (static_cast<size_t>(response.blocks_size()) != items.size()) {
    return firn::InternalError("the daemon gave {} answers for {} blocks", response.blocks_size(), items.size());
  }
  std::vector<DeviceResult> results;
  for (const auto& block : response.blocks()) {
    results.push_back({FromProto(block.status()), FromProto(block.served()), block.tier(), block.tokens(),
                       block.first_token(), block.generation()});
  }
  return results;
}

}  // namespace firnkv
