// Puts from and gets to the device memory of workers: what the tiers' movers do, and what is done where they cannot.
#include <utility>

#include "base/status.h"
#include "tiers/hot/device_rows.h"
#include "tiers/store/in_flight_put.h"

namespace firn {

void StoreImpl::ImportPut(InFlightPutImpl* put, const DeviceRows& rows, absl::AnyInvocable<void(absl::Status)> done) {
  if (put->spec().packed != nullptr) {
    return done(FailedPrecondition("a packed record is put by its runs, not from device memory"));
  }
  DeviceMover* mover = options_.tiers[put->tier()].tier->device_mover();
  if (mover == nullptr || put->draft() == nullptr) {
    return done(
        FailedPrecondition("the block enters tier \"{}\", which cannot reach device memory, or stores it re-coded",
                           options_.tiers[put->tier()].name));
  }
  mover->Import(put->draft().get(), put->plan().header, rows,
                [imported = put->imported(),
                 done = std::move(done)](absl::StatusOr<std::shared_ptr<const RecordHeader>> header) mutable {
                  if (header.ok()) {
                    std::lock_guard lock(imported->mu);
                    imported->header = *std::move(header);
                  }
                  done(header.status());
                });
}

void StoreImpl::GetToDevice(const GetSpec& spec, const DeviceRows& rows,
                            absl::AnyInvocable<void(absl::StatusOr<GetResult>)> done) {
  DeviceMover* mover = nullptr;
  for (const TierConfig& tier : options_.tiers) {
    if (mover == nullptr && tier.tier->available()) mover = tier.tier->device_mover();
  }
  if (mover == nullptr) return done(FailedPrecondition("no tier of this daemon reaches device memory now"));
  Get(spec, [this, mover, spec = GetSpec(spec), rows, done = std::move(done)](absl::StatusOr<GetResult> got) mutable {
    if (!got.ok()) return done(got.status());
    auto result = std::make_shared<GetResult>(*std::move(got));
    // A copy is its own tier's to export.
    if (result->copy != nullptr) mover = options_.tiers[result->tier].tier->device_mover();
    mover->Export(result->block, result->copy, artifacts_, rows,
                  [this, spec = GetSpec(spec), rows, result, done = std::move(done)](absl::Status status) mutable {
                    bool by_reference = std::exchange(result->copy, nullptr) != nullptr;
                    if (!status.ok() && by_reference && !absl::IsInvalidArgument(status)) {
                      // By way of the host: what is damaged is found and dealt with there.
                      result.reset();
                      spec.by_reference = false;
                      return GetToDevice(spec, rows, std::move(done));
                    }
                    result->block.runs = {};
                    if (!status.ok()) return done(status);
                    done(std::move(*result));
                  });
  });
}

}  // namespace firn
