// Rows gathered into canonical runs and scattered back, byte for byte. Labelled gpu.
#include "kernels/batch_test_util.h"
#include "kernels/gather.h"

namespace firn::kernels {
namespace {

struct Case {
  BatchSize size;
  uint32_t block_tokens = 0, value_bytes = 2;
  Arrangement arrangement = Arrangement::kCanonical;
  RunPlace place = RunPlace::kContiguous;
};

// The runs of all blocks: canonical rows, and zeros behind each head's.
std::vector<uint8_t> RunsOf(const Case& c, const std::vector<uint8_t>& canonical) {
  std::vector<uint8_t> runs;
  auto head_bytes = static_cast<ptrdiff_t>(uint64_t{c.size.tokens} * c.size.width * c.value_bytes);
  for (ptrdiff_t h = 0; h < c.size.heads_in_all(); ++h) {
    runs.insert(runs.end(), canonical.begin() + h * head_bytes, canonical.begin() + (h + 1) * head_bytes);
    runs.insert(runs.end(), uint64_t{c.block_tokens - c.size.tokens} * c.size.width * c.value_bytes, 0);
  }
  return runs;
}

void Check(const Case& c) {
  SCOPED_TRACE(fmt::format("width {} tokens {} of {} value bytes {} arrangement {} place {}", c.size.width,
                           c.size.tokens, c.block_tokens, c.value_bytes, static_cast<int>(c.arrangement),
                           static_cast<int>(c.place)));
  std::mt19937_64 rng(3);
  std::vector<uint8_t> canonical(c.size.values() * c.value_bytes);
  for (uint8_t& byte : canonical) byte = static_cast<uint8_t>(rng());
  std::vector<uint8_t> expected = RunsOf(c, canonical);
  DeviceRows rows(c.size, c.arrangement, 3, c.value_bytes), target(c.size, c.arrangement, 3, c.value_bytes);
  rows.Upload(canonical);
  target.Send();
  DeviceRun run(c.size.blocks, expected.size() / c.size.blocks, c.place, 4);
  GatherJob job{.blocks = c.size.blocks,
                .layers = c.size.layers,
                .heads = c.size.heads,
                .width = c.size.width,
                .tokens = c.size.tokens,
                .block_tokens = c.block_tokens,
                .value_bytes = c.value_bytes,
                .rows = rows.view(),
                .run = run.view()};
  absl::Status status = GatherRows(job, nullptr);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_NO_FATAL_FAILURE(Synchronize());
  ASSERT_EQ(run.Download(), expected);
  job.rows = target.view();
  status = ScatterRows(job, nullptr);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_NO_FATAL_FAILURE(Synchronize());
  ASSERT_EQ(target.Download(), canonical);
}

TEST(GatherKernels, CopyEveryWidthAndTail) {
  FIRN_NEED_GPU();
  for (uint32_t value_bytes : {1, 2}) {
    for (uint32_t width : {1, 3, 7, 12, 20, 64, 72, 80, 128, 130, 256, 576, 5000}) {
      for (auto [tokens, block_tokens] : {std::pair{1u, 1u}, {37u, 37u}, {37u, 64u}, {1u, 16u}}) {
        Check({.size = {2, 2, 3, tokens, width}, .block_tokens = block_tokens, .value_bytes = value_bytes});
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(GatherKernels, EveryArrangementOfRowsAndRuns) {
  FIRN_NEED_GPU();
  for (int arrangement = 0; arrangement < kArrangements; ++arrangement) {
    for (int place = 0; place < kRunPlaces; ++place) {
      for (uint32_t width : {128, 72, 5}) {
        for (uint32_t value_bytes : {1, 2}) {
          Check({.size = {3, 2, 2, 40, width},
                 .block_tokens = 48,
                 .value_bytes = value_bytes,
                 .arrangement = static_cast<Arrangement>(arrangement),
                 .place = static_cast<RunPlace>(place)});
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// A block without tokens of its own is all zeros, and nothing of it is written back.
TEST(GatherKernels, BlocksWithoutTokensAreZeros) {
  FIRN_NEED_GPU();
  BatchSize size{2, 1, 2, 1, 64};
  DeviceRows rows(size, Arrangement::kCanonical, 3);
  rows.Send();
  DeviceRun run(2, 2 * 8 * 64 * 2, RunPlace::kContiguous, 4);
  GatherJob job{.blocks = 2,
                .layers = 1,
                .heads = 2,
                .width = 64,
                .tokens = 0,
                .block_tokens = 8,
                .rows = rows.view(),
                .run = run.view()};
  ASSERT_TRUE(GatherRows(job, nullptr).ok());
  ASSERT_TRUE(ScatterRows(job, nullptr).ok());
  ASSERT_NO_FATAL_FAILURE(Synchronize());
  ASSERT_EQ(run.Download(), std::vector<uint8_t>(2 * 2 * 8 * 64 * 2, 0));
  ASSERT_EQ(rows.Download(), std::vector<uint8_t>(size.values() * 2, 0xEE));
}

}  // namespace
}  // namespace firn::kernels
