#include "tests/bench/gpu/gpu_chain.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "tests/bench/support/values.h"

namespace firn::bench {
namespace {

constexpr int64_t kReadyTimeoutMs = 60'000;

Identity BenchIdentity() {
  Identity identity;
  identity.namespace_fingerprint = Sha256(AsBytes(std::string("gpu_tier_bench")));
  identity.key = Sha256(AsBytes(std::string("block")));
  return identity;
}

std::shared_ptr<const Artifact> MakeBalance() {
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  size_t channels = size_t{GpuChain::kLayers} * GpuChain::kHeads * GpuChain::kWidth;
  std::vector<float> mean(channels), weight(channels);
  for (size_t i = 0; i < channels; ++i) {
    mean[i] = 0.1f * normal(random);
    weight[i] = 1.0f + 0.1f * std::abs(normal(random));
  }
  auto balance = Artifact::CreateBalance(GpuChain::kLayers, GpuChain::kHeads, GpuChain::kWidth, mean, weight);
  FIRN_CHECK(balance.ok());
  return *balance;
}

// One of RunAll's: it lives until its last operation is done.
struct Run {
  uint64_t count = 0;
  const GpuChain::Operation* operation = nullptr;
  std::atomic<uint64_t> next{0};
  std::mutex mu;
  std::condition_variable ended;
  // Guarded by mu.
  uint64_t lanes = 0;
  absl::Status status;

  void Go() {
    uint64_t index = next++;
    if (index < count) {
      return (*operation)(index, [this](absl::Status done) {
        if (done.ok()) return Go();
        next = count;
        std::lock_guard lock(mu);
        status.Update(done);
        if (--lanes == 0) ended.notify_all();
      });
    }
    std::lock_guard lock(mu);
    if (--lanes == 0) ended.notify_all();
  }
};

}  // namespace

GpuChain::GpuChain() : balance_(MakeBalance()) {}

absl::StatusOr<std::unique_ptr<GpuChain>> GpuChain::Open(GpuChainOptions options) {
  std::unique_ptr<GpuChain> chain(new GpuChain());
  chain->executor_ = std::make_unique<ThreadPoolExecutor>(std::max(2u, std::thread::hardware_concurrency() / 2));
  FIRN_ASSIGN_OR_RETURN(chain->warm_, OpenWarmTier({.name = "dram",
                                                    .capacity_bytes = options.arena_bytes,
                                                    .huge_pages = HugePages::kTransparent,
                                                    .numa_node = {}}));
  FIRN_RETURN_IF_ERROR(chain->warm_->Populate(options.arena_bytes));
  GpuTierOptions gpu;
  gpu.device = options.device;
  gpu.capacity_bytes = options.pool_bytes;
  gpu.staging_bytes = options.staging_bytes;
  gpu.scratch_bytes = options.scratch_bytes;
  std::vector<std::string> arguments;
  if (options.cpu) arguments.push_back("--cpu");
  gpu.start = StartProgram(options.program, std::move(arguments));
  gpu.regions = {RegionOf(chain->warm_.get())};
  gpu.executor = chain->executor_.get();
  FIRN_ASSIGN_OR_RETURN(chain->hot_, GpuTier::Open(std::move(gpu)));
  if (!chain->hot_->WaitUntilUp(kReadyTimeoutMs)) {
    return Unavailable("no GPU child: {}", chain->hot_->LinkStats().last_failure);
  }
  return chain;
}

absl::StatusOr<EncodedBlock> GpuChain::MakeBlock(uint32_t tokens) const {
  auto values = std::make_shared<std::vector<uint8_t>>(RandomValues(tokens * kTokenBytes));
  BlockShape shape{.layers = kLayers, .heads = kHeads, .k_width = kWidth, .v_width = kWidth, .tokens = tokens};
  ByteSpan all = *values;
  FIRN_ASSIGN_OR_RETURN(EncodedBlock block, WrapRaw(BenchIdentity(), DType::kFp16, shape, all.first(all.size() / 2),
                                                    all.subspan(all.size() / 2), /*k_scales=*/{}, /*v_scales=*/{}));
  auto header = std::make_shared<RecordHeader>(*block.header);
  SealSource(header.get(), block.runs);
  block.header = std::move(header);
  block.owner = std::move(values);
  return block;
}

EncodeSpec GpuChain::Spec(PrecisionClass precision, bool balanced) const {
  EncodeSpec spec;
  spec.target = {precision, precision};
  spec.key_method = balanced ? KeyMethod::kBalancedRotated : KeyMethod::kPerChannel;
  if (balanced) spec.balance = balance_;
  return spec;
}

void GpuChain::CommitHot(const EncodedBlock& block, const EncodedBlock* from, CopyDone done) {
  auto draft = hot_->Reserve(block.Layout(block.present));
  if (!draft.ok()) return done(draft.status());
  if (from != nullptr) hot_->Fill(draft->get(), *from);
  hot_->Commit(*std::move(draft), block.header, {}, std::move(done));
}

void GpuChain::ReadHot(const CopyPtr& copy, absl::AnyInvocable<void(absl::Status)> done) {
  hot_->Read(copy, BenchIdentity(), RunMask::All(),
             [done = std::move(done)](absl::StatusOr<EncodedBlock> block) mutable {
               absl::Status status = block.status();
               block = absl::CancelledError();  // Staging is free again before the next one asks.
               done(std::move(status));
             });
}

void GpuChain::Demote(const CopyPtr& copy, const EncodeSpec& spec, CopyDone done) {
  hot_->recoder()->Recode(copy, BenchIdentity(), spec, *this, warm_.get(),
                          [this, done = std::move(done)](absl::StatusOr<TierRecoder::Recoded> recoded) mutable {
                            if (!recoded.ok()) return done(recoded.status());
                            warm_->Commit(std::move(recoded->draft), std::move(recoded->header), {}, std::move(done));
                          });
}

absl::StatusOr<CopyPtr> GpuChain::PutWarm(const EncodedBlock& block) {
  FIRN_ASSIGN_OR_RETURN(auto draft, warm_->Reserve(block.Layout(block.present)));
  warm_->Fill(draft.get(), block);
  std::promise<absl::StatusOr<CopyPtr>> answer;
  warm_->Commit(std::move(draft), block.header, {}, [&](auto copy) { answer.set_value(std::move(copy)); });
  return answer.get_future().get();
}

absl::StatusOr<EncodedBlock> GpuChain::ReadWarm(const CopyPtr& copy) {
  std::promise<absl::StatusOr<EncodedBlock>> answer;
  warm_->Read(copy, BenchIdentity(), RunMask::All(), [&](auto block) { answer.set_value(std::move(block)); });
  return answer.get_future().get();
}

absl::Status GpuChain::ScatterWarm() {
  RecordLayout page;
  page.present = RunMask::Of(RunKind::kWhole, Part::kK);
  page.run_bytes[RunIndex(RunKind::kWhole, Part::kK)] = kArenaPageBytes;
  page.namespace_tag = NamespaceTag(BenchIdentity().namespace_fingerprint);
  std::vector<std::unique_ptr<Draft>> drafts;
  for (;;) {
    auto draft = warm_->Reserve(page);
    if (absl::IsResourceExhausted(draft.status())) break;
    FIRN_RETURN_IF_ERROR(draft.status());
    drafts.push_back(*std::move(draft));
  }
  std::shuffle(drafts.begin(), drafts.end(), std::mt19937_64(11));
  for (auto& draft : drafts) draft.reset();
  return absl::OkStatus();
}

absl::Status GpuChain::RunAll(uint64_t count, uint64_t in_flight, const Operation& operation) {
  Run run;
  run.count = count;
  run.operation = &operation;
  const uint64_t lanes = std::min(count, in_flight);
  run.lanes = lanes;
  for (uint64_t i = 0; i < lanes; ++i) executor_->Post([&run] { run.Go(); });
  std::unique_lock lock(run.mu);
  run.ended.wait(lock, [&] { return run.lanes == 0; });
  return run.status;
}

double GpuChain::ChildCpuSeconds() const {
  clockid_t clock = 0;
  timespec time{};
  if (clock_getcpuclockid(hot_->LinkStats().pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace firn::bench
