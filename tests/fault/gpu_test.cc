// A daemon whose hot tier is on a GPU, in CI on the processor in its place: the child dies again and again under load,
// and nothing but the hot copies goes. FIRN_TEST_GPU=cuda takes a real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/status.h"
#include "firnkv/device.h"
#include "firnkv/session.h"
#include "tests/support/free_port.h"
#include "tests/support/known_ranges.h"
#include "tests/support/observe.h"
#include "tests/support/one_namespace.h"
#include "tiers/hot/worker_memory_test_util.h"

namespace firn {
namespace {

std::string Backend() {
  const char* backend = std::getenv("FIRN_TEST_GPU");
  return backend != nullptr ? backend : "cpu";
}

DaemonOptions Options(uint16_t port) {
  DaemonOptions options;
  options.hot_backend = Backend();
  options.hot_capacity = "8MiB";
  options.warm_capacity = "16MiB";
  options.cold_capacity = "256MiB";
  options.admin_http = "127.0.0.1:" + std::to_string(port);
  return options;
}

KnownModel Model() {
  return {.name = "known", .layers = 4, .heads = 2, .width = 128, .tokens = 32};
}  // 128 KiB a block.

class GpuDaemon : public OneNamespace {
 protected:
  GpuDaemon() : GpuDaemon(FreePort()) {}
  explicit GpuDaemon(uint16_t port) : OneNamespace(Options(port), Model()), port_(port) {}

  double Metric(const std::string& series) const { return MetricValue(HttpGet(port_, "/metrics"), series); }
  bool Up() const { return Metric("firn_gpu_up{tier=\"hot\"}") == 1; }
  // The only child that the daemon has.
  pid_t ChildPid() const {
    std::ifstream children("/proc/" + std::to_string(daemon_.pid()) + "/task/" + std::to_string(daemon_.pid()) +
                           "/children");
    pid_t pid = 0;
    for (pid_t next = 0; children >> next;) pid = next;
    if (pid != 0) return pid;
    // It was started by another thread of the daemon.
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(daemon_.pid()) + "/task")) {
      std::ifstream of_task(task.path() / "children");
      for (pid_t next = 0; of_task >> next;) pid = next;
    }
    return pid;
  }
  void ExpectConsistent() {
    auto verified = client_->Verify();
    ASSERT_TRUE(verified.ok()) << verified.status();
    EXPECT_TRUE(verified->consistent) << testing::PrintToString(verified->findings);
  }

  const uint16_t port_;
};

TEST_F(GpuDaemon, BlocksGoThroughEveryTierAndStayRight) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_TRUE(Up()) << daemon_.Log();
  constexpr uint64_t kBlocks = 800;  // 100 MiB of FP16.
  RangeResult put = PutRange(*client_, ns_, model_, 0, kBlocks);
  EXPECT_EQ(put.good, kBlocks) << put;
  RangeResult got = GetRange(*client_, ns_, model_, 0, kBlocks);
  EXPECT_EQ(got.good, kBlocks) << got;
  EXPECT_GT(Metric("firn_tier_demotions_in_total{tier=\"warm\"}"), 0);
  EXPECT_GT(Metric("firn_gpu_jobs_total{tier=\"hot\"}"), 800);
  EXPECT_EQ(Metric("firn_gpu_deaths_total{tier=\"hot\"}"), 0);
  ExpectConsistent();
  EXPECT_EQ(daemon_.Terminate(), 0) << daemon_.Log();
}

TEST_F(GpuDaemon, WarmAndColdAreAlwaysThereWhileTheChildDies) {
  ASSERT_NO_FATAL_FAILURE(Start());
  constexpr uint64_t kKept = 100;
  RangeResult put = PutRange(*client_, ns_, model_, 0, kKept, {.ack = firnkv::AckLevel::kDurable});
  ASSERT_EQ(put.good, kKept) << put;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> rounds{0}, wrong{0}, missed{0}, failed{0}, put_failed{0};
  std::thread reader([&] {
    auto client = daemon_.Connect();
    while (!stop) {
      RangeResult got = GetRange(*client, ns_, model_, 0, kKept);
      missed += got.missed;
      failed += got.failed;
      wrong += got.wrong;
      ++rounds;
    }
  });
  std::string put_failure;
  std::thread writer([&] {
    auto client = daemon_.Connect();
    for (uint64_t next = 1'000; !stop; next += 20) {
      RangeResult written = PutRange(*client, ns_, model_, next, 20);
      put_failed += written.failed;
      if (written.failed > 0) put_failure = written.first_failure;
      RangeResult got = GetRange(*client, ns_, model_, next, 20);
      wrong += got.wrong;
    }
  });
  const double deaths_before = Metric("firn_gpu_deaths_total{tier=\"hot\"}");
  constexpr int kDeaths = 5;
  for (int death = 1; death <= kDeaths; ++death) {
    ASSERT_TRUE(Eventually([&] { return Up(); })) << daemon_.Log();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    pid_t child = ChildPid();
    ASSERT_GT(child, 0);
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_TRUE(Eventually([&] { return Metric("firn_gpu_deaths_total{tier=\"hot\"}") == deaths_before + death; }));
  }
  EXPECT_TRUE(Eventually([&] { return Up(); }));
  stop = true;
  reader.join();
  writer.join();
  EXPECT_GT(rounds, static_cast<uint64_t>(kDeaths));
  EXPECT_EQ(missed, 0u) << "what has a copy below is served from there";
  EXPECT_EQ(failed, 0u);
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(put_failed, 0u) << "what was on its way in goes to the next tier: " << put_failure;
  ExpectConsistent();
}

TEST_F(GpuDaemon, TheChildEndsWithTheDaemon) {
  ASSERT_NO_FATAL_FAILURE(Start());
  pid_t child = ChildPid();
  ASSERT_GT(child, 0);
  daemon_.KillNow();
  EXPECT_TRUE(Eventually([&] { return ::kill(child, 0) != 0; })) << "process " << child << " is still there";
}

TEST_F(GpuDaemon, AWorkerPutsFromAndGetsToItsOwnMemory) {
  if (Backend() != "cpu") GTEST_SKIP() << "client/examples/gpu_worker is the worker on a GPU";
  ASSERT_NO_FATAL_FAILURE(Start());
  auto capabilities = client_->GetCapabilities();
  ASSERT_TRUE(capabilities.ok());
  EXPECT_THAT(capabilities->byte_paths, testing::Contains("gpu_handle"));
  // Keys and values of a layer side by side, [part][page of 8 tokens][token][head][channel]; pages in falling order.
  const uint64_t row = model_.width * 2, token = row * model_.heads, page = token * 8,
                 part = page * (model_.tokens / 8);
  WorkerMemory memory(part * 2 * model_.layers), event(4096);
  auto rows_with = [&](bool with_event) {
    firnkv::DeviceRows rows;
    rows.memory = {memory.handle()};
    if (with_event) rows.event = event.handle();
    for (uint32_t p = 0; p < 2; ++p) {
      firnkv::DevicePart& of = p == 0 ? rows.k : rows.v;
      for (uint32_t layer = 0; layer < model_.layers; ++layer) of.layers.push_back({0, (2 * layer + p) * part});
      for (uint32_t i = model_.tokens / 8; i > 0; --i) of.pages.push_back(i - 1);
      of.page_tokens = 8, of.page_stride = page, of.token_stride = token, of.head_stride = row;
    }
    return rows;
  };
  for (uint64_t i = 0; i < part * 2 * model_.layers; i += 2) {
    uint16_t half = static_cast<uint16_t>(0x3000 + i * 2654435761u % 0x0800);
    std::memcpy(memory.base() + i, &half, 2);
  }
  const std::vector<uint8_t> before(memory.base(), memory.base() + part * 2 * model_.layers);
  auto session = client_->OpenSession("worker");
  ASSERT_TRUE(session.ok());
  firnkv::PutItem item{.key = firnkv::BlockKey::Opaque("a worker's block"), .tokens = model_.tokens};
  auto leases = (*session)->BeginPutFromDevice(ns_, std::span(&item, 1), {}, 1000);
  ASSERT_TRUE(leases.ok() && leases->front().status.ok());
  uint64_t lease = leases->front().lease;
  const firnkv::SourceParts parts = {.k = std::span(before).first(before.size() / 2),
                                     .v = std::span(before).last(before.size() / 2)};
  auto streamed = (*session)->Fill(ns_, std::span(&lease, 1), std::span(&parts, 1));
  ASSERT_TRUE(streamed.ok()) << streamed.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(streamed->front())) << streamed->front();
  firnkv::DeviceRows without = rows_with(false), with = rows_with(true);
  auto refused = (*session)->FillFromDevice(std::span(&lease, 1), std::span(&without, 1));
  ASSERT_TRUE(refused.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(refused->front())) << "values without an event";
  auto early = (*session)->CommitPut(std::span(&lease, 1));
  ASSERT_TRUE(early.ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(early->front().status)) << "nothing was filled";
  event.base()[0] = 1;
  auto filled = (*session)->FillFromDevice(std::span(&lease, 1), std::span(&with, 1));
  ASSERT_TRUE(filled.ok() && filled->front().ok()) << filled->front();
  auto stored = (*session)->CommitPut(std::span(&lease, 1));
  ASSERT_TRUE(stored.ok() && stored->front().status.ok()) << stored->front().status;
  std::memset(memory.base(), 0, before.size());
  firnkv::GetItem get{.key = item.key};
  auto got = client_->GetToDevice(ns_, std::span(&get, 1), std::span(&without, 1));
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_TRUE(got->front().status.ok()) << got->front().status;
  EXPECT_EQ(got->front().served.k, firnkv::Precision::kExact);
  EXPECT_EQ(got->front().tokens, model_.tokens);
  EXPECT_EQ(std::memcmp(memory.base(), before.data(), before.size()), 0);
  get.key = firnkv::BlockKey::Opaque("nobody's");
  got = client_->GetToDevice(ns_, std::span(&get, 1), std::span(&without, 1));
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE(absl::IsNotFound(got->front().status));
  ExpectConsistent();
}

}  // namespace
}  // namespace firn
