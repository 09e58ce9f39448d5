#include "daemon/startup.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "base/units.h"
#include "daemon/runtime/log.h"

namespace firn {
namespace {

// Memory of each tier that must be there before the first call is answered.
constexpr uint64_t kServeFromBytes = 4 * kGiB;
constexpr uint64_t kPopulateStepBytes = 256 * kMiB;
// Recovered copies are handed over in batches, so that other work gets between.
constexpr size_t kRecoverBatch = 16384;

StoreOptions StoreOptionsOf(const Config& config, Executor* executor, Executor* demotion_executor, const Clock* clock) {
  StoreOptions options;
  options.executor = executor;
  options.demotion_executor = demotion_executor;
  options.clock = clock;
  options.moves_in_flight_max = config.store.moves_in_flight;
  options.events_kept = config.store.events_kept;
  options.scrub_bytes_per_second = config.scrub.bytes_per_second;
  options.scrub_interval_ms = config.scrub.interval_ms;
  options.promote_on_get = config.store.promote_on_get;
  options.held_bytes_per_session_max = config.limits.held_bytes_max;
  options.puts_in_flight_bytes_max = config.limits.puts_in_flight_bytes_max;
  options.namespaces_max = config.limits.namespaces_max;
  options.artifacts_bytes_max = config.limits.artifacts_bytes_max;
  return options;
}

}  // namespace

absl::Status Startup::Check() const {
  return stop_ ? absl::CancelledError("stopped while starting") : absl::OkStatus();
}

absl::Status Startup::OpenTiers() {
  const auto& tiers = options_.config->tiers;
  opened_.resize(tiers.size());
  // GPUs last: they map the memory of the others.
  for (bool gpu : {false, true}) {
    for (size_t i = 0; i < tiers.size(); ++i) {
      if ((tiers[i].medium == Medium::kGpu) == gpu) FIRN_RETURN_IF_ERROR(OpenTierAt(i));
    }
  }
  return absl::OkStatus();
}

absl::Status Startup::OpenTierAt(size_t index) {
  const TierSettings& settings = options_.config->tiers[index];
  FIRN_RETURN_IF_ERROR(Check());
  options_.progress(fmt::format("opening tier {}", settings.name));
  std::vector<const ArenaTier*> arenas;
  for (auto [arena, of] : arenas_) arenas.push_back(arena);
  auto opened = OpenTier(settings, arenas, options_.executor, options_.clock);
  if (!opened.ok()) {
    return absl::Status(opened.status().code(), fmt::format("tier {}: {}", settings.name, Message(opened.status())));
  }
  if (opened->arena != nullptr) arenas_.emplace_back(opened->arena, &settings);
  if (opened->gpu != nullptr) gpu_.push_back(opened->gpu);
  if (opened->cold != nullptr) {
    cold_.push_back(opened->cold);
    locks_.push_back(std::move(opened->lock));
    const ColdRecoveryReport& report = opened->report;
    Log(LogLevel::kInfo, "opened a cold tier",
        {{"tier", settings.name},
         {"copies", report.copies},
         {"facts", report.facts},
         {"segments", report.segments},
         {"replayed_extents", report.replayed_extents},
         {"torn_extents", report.torn_extents},
         {"mended_extents", report.mended_extents},
         {"missing_extents", report.missing_extents},
         {"rebuilt", report.rebuilt},
         {"io", opened->cold->device().backend()}});
  }
  opened_[index] = *std::move(opened);
  return absl::OkStatus();
}

void Startup::AwaitGpus() const {
  constexpr int64_t kPatienceMs = 5'000;
  for (const GpuTier* gpu : gpu_) {
    options_.progress(fmt::format("waiting for the GPU of tier {}", gpu->name()));
    if (gpu->WaitUntilUp(kPatienceMs)) continue;
    Log(LogLevel::kWarning, "serving without a GPU that is not ready",
        {{"tier", gpu->name()}, {"last_failure", gpu->LinkStats().last_failure}});
  }
}

absl::Status Startup::PopulateUpTo(uint64_t bytes_each) {
  uint64_t wanted = 0, done = 0;
  for (auto [arena, settings] : arenas_) {
    wanted += arena->bytes_max();
    done += arena->populated_bytes();
  }
  for (auto [arena, settings] : arenas_) {
    uint64_t target = std::min(bytes_each, arena->bytes_max());
    while (arena->populated_bytes() < target) {
      FIRN_RETURN_IF_ERROR(Check());
      uint64_t before = arena->populated_bytes();
      options_.progress(fmt::format("taking memory: {} of {}", FormatBytes(done), FormatBytes(wanted)));
      absl::Status status = arena->Populate(std::min(kPopulateStepBytes, target - before));
      done += arena->populated_bytes() - before;
      if (status.ok()) continue;
      if (!settings->shrink_on_memory_failure || arena->populated_bytes() == 0) {
        return absl::Status(status.code(), fmt::format("tier {}: {}", settings->name, Message(status)));
      }
      Log(LogLevel::kWarning, "a tier goes on with less memory than configured",
          {{"tier", settings->name},
           {"bytes", arena->populated_bytes()},
           {"configured_bytes", settings->capacity_bytes},
           {"error", Message(status)}});
      break;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Store>> Startup::Run() {
  FIRN_RETURN_IF_ERROR(OpenTiers());
  FIRN_RETURN_IF_ERROR(PopulateUpTo(kServeFromBytes));
  StoreOptions store_options =
      StoreOptionsOf(*options_.config, options_.executor, options_.demotion_executor, options_.clock);
  for (OpenedTier& opened : opened_) store_options.tiers.push_back(std::move(opened.config));
  FIRN_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, Store::Create(std::move(store_options)));
  for (OpenedTier& opened : opened_) store->RecoverFacts(opened.facts);
  for (size_t tier = 0; tier < opened_.size(); ++tier) {
    auto& copies = opened_[tier].copies;
    for (size_t at = 0; at < copies.size(); at += kRecoverBatch) {
      FIRN_RETURN_IF_ERROR(Check());
      options_.progress(
          fmt::format("indexing block {} of {} of tier {}", at, copies.size(), options_.config->tiers[tier].name));
      auto first = copies.begin() + static_cast<ptrdiff_t>(at);
      auto last = copies.begin() + static_cast<ptrdiff_t>(std::min(copies.size(), at + kRecoverBatch));
      store->RecoverCopies(static_cast<uint8_t>(tier), {std::make_move_iterator(first), std::make_move_iterator(last)});
    }
    copies = {};
  }
  opened_.clear();
  if (!cold_.empty()) {
    store->SetFactWriter([cold = cold_.back()](std::string kind, std::string name, std::vector<uint8_t> value,
                                               absl::AnyInvocable<void(absl::Status)> done) {
      if (value.empty()) return cold->DeleteFact(kind, name, std::move(done));
      cold->PutFact({std::move(kind), std::move(name), std::move(value)}, std::move(done));
    });
  }
  for (ColdTier* cold : cold_) cold->SetEvents(store.get());
  for (size_t i = 0; i < gpu_.size(); ++i) {
    gpu_[i]->SetOnLost([s = store.get(), tier = static_cast<uint8_t>(i)] { s->OnTierLost(tier); });
  }
  AwaitGpus();
  return store;
}

absl::Status Startup::PopulateRest() { return PopulateUpTo(~uint64_t{0}); }

}  // namespace firn
