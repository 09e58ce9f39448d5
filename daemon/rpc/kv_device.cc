// Puts from and gets to the device memory of workers on this machine.
#include <algorithm>
#include <memory>

#include "base/status.h"
#include "daemon/core/convert.h"
#include "daemon/rpc/countdown.h"
#include "daemon/rpc/kv_service.h"
#include "tiers/hot/device_rows.h"

namespace firn {
namespace {

absl::StatusOr<DeviceHandle> ToHandle(const std::string& bytes, const char* what) {
  DeviceHandle handle{};
  if (bytes.size() != handle.size()) {
    return InvalidArgument("{} of {} bytes; a handle has {}", what, bytes.size(), handle.size());
  }
  std::copy(bytes.begin(), bytes.end(), handle.begin());
  return handle;
}

DevicePart ToPart(const v1::DevicePart& part) {
  DevicePart out;
  for (const auto& layer : part.layers()) out.layers.push_back({layer.memory(), layer.offset()});
  out.pages.assign(part.pages().begin(), part.pages().end());
  out.page_tokens = part.page_tokens();
  out.page_stride = part.page_stride();
  out.token_stride = part.token_stride();
  out.head_stride = part.head_stride();
  return out;
}

absl::StatusOr<DeviceRows> ToRows(const v1::DeviceRows& rows) {
  DeviceRows out;
  for (const std::string& memory : rows.memory()) {
    FIRN_ASSIGN_OR_RETURN(DeviceHandle handle, ToHandle(memory, "rows.memory"));
    out.memory.push_back(handle);
  }
  if (!rows.event().empty()) {
    FIRN_ASSIGN_OR_RETURN(out.event, ToHandle(rows.event(), "rows.event"));
  }
  out.parts = {ToPart(rows.k()), ToPart(rows.v())};
  return out;
}

}  // namespace

absl::Status CheckLocal(const CallerIdentity& caller) {
  if (caller.local) return absl::OkStatus();
  return FailedPrecondition("device memory is reached over Unix sockets alone: its handles are bearer tokens");
}

KvService::Unary* KvService::FillFromDevice(Context* context, const v1::FillFromDeviceRequest* request,
                                            v1::FillFromDeviceResponse* response) {
  return AnswerLater(core_, context, Method::kFillFromDevice, [=, this](Store*, UnaryDone done) mutable {
    auto session = core_->sessions().Find(request->session(), caller_.tenant);
    absl::Status fits = session.status();
    if (fits.ok()) fits = CheckLocal(caller_);
    if (fits.ok()) fits = CheckBatch(request->leases_size());
    if (fits.ok() && request->leases_size() != request->rows_size()) {
      fits = InvalidArgument("{} leases and {} rows; one each expected", request->leases_size(), request->rows_size());
    }
    if (!fits.ok()) return done(fits);
    for (int i = 0; i < request->leases_size(); ++i) response->add_statuses();
    auto countdown = std::make_shared<Countdown>(static_cast<size_t>(request->leases_size()) + 1, std::move(done));
    for (int i = 0; i < request->leases_size(); ++i) {
      v1::Status* answer = response->mutable_statuses(i);
      uint64_t number = request->leases(i);
      auto rows = ToRows(request->rows(i));
      auto taken = rows.ok() ? (*session)->TakeLease(number) : absl::StatusOr<Lease>(rows.status());
      if (!taken.ok()) {
        FromStatus(taken.status(), answer);
        countdown->Part();
        continue;
      }
      auto lease = std::make_shared<Lease>(*std::move(taken));
      auto fill = [this, answer, number, session = *session, lease, countdown](absl::Status status) {
        lease->begun.filled = lease->begun.filled || status.ok();
        session->PutBack(number, std::move(*lease), core_->clock()->NowNs());
        FromStatus(status, answer);
        countdown->Part();
      };
      if (lease->begun.put == nullptr || lease->begun.filled) {
        fill(FailedPrecondition("lease {} has its payload already", number));
      } else {
        InFlightPut* put = lease->begun.put.get();
        put->FillFromDevice(*rows, std::move(fill));
      }
    }
    countdown->Part();
  });
}

KvService::Unary* KvService::GetToDevice(Context* context, const v1::GetToDeviceRequest* request,
                                         v1::GetToDeviceResponse* response) {
  return AnswerLater(core_, context, Method::kGetToDevice, [=, this](Store* store, UnaryDone done) mutable {
    auto ns = Namespace(store, request->namespace_fingerprint());
    if (!ns.ok()) return done(ns.status());
    absl::Status fits = CheckLocal(caller_);
    if (fits.ok()) fits = CheckBatch(request->blocks_size());
    if (fits.ok() && request->blocks_size() != request->rows_size()) {
      fits = InvalidArgument("{} blocks and {} rows; one each expected", request->blocks_size(), request->rows_size());
    }
    GetSpec spec;
    std::shared_ptr<ClientSession> held;
    if (fits.ok() && !request->session().empty()) {
      auto session = core_->sessions().Find(request->session(), caller_.tenant);
      fits = session.status();
      if (fits.ok()) held = *session, spec.session = held->id();
    }
    if (!fits.ok()) return done(fits);
    spec.by_reference = true;
    if (request->has_least()) {
      auto least = ToClassPair(request->least(), "least");
      if (!least.ok()) return done(least.status());
      spec.least = *least;
    }
    if (request->has_most()) {
      auto most = ToClassPair(request->most(), "most");
      if (!most.ok()) return done(most.status());
      spec.most = *most;
    }
    int64_t wait_ms = core_->limits().read_deadline_ms;
    if (request->wait_ms() != 0) wait_ms = std::min<int64_t>(wait_ms, request->wait_ms());
    spec.deadline_ns = DeadlineNs(*context, *core_->clock(), wait_ms);
    for (int i = 0; i < request->blocks_size(); ++i) response->add_blocks();
    auto countdown = std::make_shared<Countdown>(static_cast<size_t>(request->blocks_size()) + 1, std::move(done));
    for (int i = 0; i < request->blocks_size(); ++i) {
      v1::DeviceBlock* answer = response->mutable_blocks(i);
      auto rows = ToRows(request->rows(i));
      const v1::BlockRef& ref = request->blocks(i);
      auto key = ToKey(ref.key(), "key");
      absl::Status refused = rows.ok() ? key.status() : rows.status();
      if (refused.ok() && ref.shard() >= (*ns)->facts.shards) {
        refused =
            InvalidArgument("shard = {}; this namespace has shards 0 to {}", ref.shard(), (*ns)->facts.shards - 1);
      }
      if (!refused.ok()) {
        FromStatus(refused, answer->mutable_status());
        countdown->Part();
        continue;
      }
      spec.address = {(*ns)->id, *key, static_cast<uint16_t>(ref.shard())};
      store->GetToDevice(spec, *rows, [answer, countdown, held](absl::StatusOr<GetResult> got) {
        FromStatus(got.status(), answer->mutable_status());
        if (got.ok()) {
          const RecordHeader& header = *got->block.header;
          FromClassPair(got->served, answer->mutable_served());
          answer->set_tier(got->tier);
          answer->set_tokens(header.shape.tokens);
          answer->set_first_token(header.first_token);
          answer->set_generation(header.identity.generation);
        }
        countdown->Part();
      });
    }
    countdown->Part();
  });
}

}  // namespace firn
