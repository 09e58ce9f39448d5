#include "tiers/cxl/cxl_tier.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/check.h"
#include "base/units.h"
#include "tiers/conformance/tier_conformance.h"
#include "tiers/cxl/mapped_region.h"
#include "tiers/cxl/numa.h"

namespace firn {
namespace {

// A path for a file that is gone after the test.
class ScratchFile {
 public:
  ScratchFile() {
    char path[] = "/tmp/firn-cxl-XXXXXX";
    int fd = mkstemp(path);
    FIRN_CHECK(fd >= 0);
    close(fd);
    path_ = path;
  }
  ~ScratchFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class CxlHarness final : public TierHarness {
 public:
  CxlHarness(uint64_t capacity_bytes, std::optional<int> node) {
    CxlTierOptions options{.capacity_bytes = capacity_bytes, .numa_node = node, .dax_device = "", .file = ""};
    if (!node.has_value()) options.file = file_.path();
    auto tier = OpenCxlTier(options);
    FIRN_CHECK(tier.ok());
    tier_ = *std::move(tier);
    FIRN_CHECK(tier_->Populate(capacity_bytes).ok());
  }
  Tier& tier() override { return *tier_; }
  absl::Status Audit() override { return tier_->AuditForTest(); }

 private:
  ScratchFile file_;
  std::unique_ptr<ArenaTier> tier_;
};

INSTANTIATE_TEST_SUITE_P(Cxl, TierConformance,
                         testing::Values(TierKind{
                             "File",
                             [](uint64_t capacity) { return std::make_unique<CxlHarness>(capacity, std::nullopt); }}),
                         TierKindName);

TEST(CxlTier, NeedsExactlyOneMedium) {
  for (const CxlTierOptions& options :
       {CxlTierOptions{.capacity_bytes = kMiB, .numa_node = {}, .dax_device = "", .file = ""},
        CxlTierOptions{.capacity_bytes = kMiB, .numa_node = 0, .dax_device = "", .file = "/tmp/x"}}) {
    auto tier = OpenCxlTier(options);
    EXPECT_TRUE(absl::IsInvalidArgument(tier.status())) << tier.status();
  }
}

TEST(CxlTier, SaysWhichNodesThereAre) {
  auto nodes = MemoryNodes();
  auto tier = OpenCxlTier({.capacity_bytes = kMiB, .numa_node = 987, .dax_device = "", .file = ""});
  ASSERT_FALSE(tier.ok());
  if (!nodes.ok()) {
    EXPECT_TRUE(absl::IsUnavailable(tier.status())) << tier.status();
    GTEST_SKIP() << "no NUMA calls here: " << nodes.status();
  }
  EXPECT_TRUE(absl::IsNotFound(tier.status())) << tier.status();
  EXPECT_NE(Message(tier.status()).find("987"), std::string::npos) << tier.status();
  EXPECT_NE(Message(tier.status()).find(std::to_string(nodes->front())), std::string::npos) << tier.status();
}

TEST(CxlTier, PutsPagesOnTheNodeAskedFor) {
  auto nodes = MemoryNodes();
  if (!nodes.ok()) GTEST_SKIP() << "no NUMA calls here: " << nodes.status();
  int node = nodes->back();
  auto tier = OpenCxlTier({.capacity_bytes = 8 * kMiB, .numa_node = node, .dax_device = "", .file = ""});
  if (!tier.ok() && StatusErrno(tier.status()) == EPERM) GTEST_SKIP() << "mbind is forbidden here: " << tier.status();
  ASSERT_TRUE(tier.ok()) << tier.status();
  absl::Status populated = (*tier)->Populate(8 * kMiB);
  if (StatusErrno(populated) == EPERM) GTEST_SKIP() << "move_pages is forbidden here: " << populated;
  ASSERT_TRUE(populated.ok()) << populated;
  EXPECT_TRUE(VerifyOnNode((*tier)->region().base(), 8 * kMiB, node, 4096).ok());
  absl::Status elsewhere = VerifyOnNode((*tier)->region().base(), 8 * kMiB, node + 1, 4096);
  EXPECT_TRUE(absl::IsFailedPrecondition(elsewhere)) << elsewhere;
}

TEST(CxlTier, SaysWhatIsWrongWithADevice) {
  auto open = [](std::string device) {
    return OpenCxlTier({.capacity_bytes = kMiB, .numa_node = {}, .dax_device = std::move(device), .file = ""}).status();
  };
  absl::Status missing = open("/dev/dax987.0");
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_NE(Message(missing).find("/dev/dax987.0"), std::string::npos) << missing;
  EXPECT_TRUE(absl::IsFailedPrecondition(open("/dev/null"))) << open("/dev/null");
  EXPECT_FALSE(open("/tmp").ok());
}

CxlTierOptions OnFile(const std::string& path, uint64_t capacity_bytes) {
  return {.capacity_bytes = capacity_bytes, .numa_node = {}, .dax_device = "", .file = path};
}

uint64_t TakenBytes(const std::string& path) {
  struct stat info = {};
  FIRN_CHECK(stat(path.c_str(), &info) == 0);
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

TEST(CxlTier, AFileIsUsedByOneDaemonAndNeverRead) {
  ScratchFile file;
  {
    auto tier = OpenCxlTier(OnFile(file.path(), 4 * kMiB));
    ASSERT_TRUE(tier.ok()) << tier.status();
    ASSERT_TRUE((*tier)->Populate(kMiB).ok());
    std::memset((*tier)->region().base(), 'x', kMiB);
    auto second = OpenCxlTier(OnFile(file.path(), 4 * kMiB));
    EXPECT_TRUE(absl::IsFailedPrecondition(second.status())) << second.status();
  }
  auto again = OpenCxlTier(OnFile(file.path(), 4 * kMiB));
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_TRUE((*again)->Populate(kMiB).ok());
  for (uint64_t i = 0; i < kMiB; ++i) ASSERT_EQ((*again)->region().base()[i], 0);
  EXPECT_GE(TakenBytes(file.path()), kMiB);
  EXPECT_LE(TakenBytes(file.path()), kMiB + 64 * kKiB) << "the marker takes a block, not the space up to the memory";
}

TEST(CxlTier, AFileOfSomebodyElseIsLeftAlone) {
  ScratchFile file;
  for (const std::string& content : {std::string("precious"), std::string(1 << 20, 'x'), std::string(4 * kMiB, '\0')}) {
    std::ofstream(file.path(), std::ios::trunc) << content;
    absl::Status checked = CheckFileRegion(file.path());
    absl::Status opened = OpenCxlTier(OnFile(file.path(), 4 * kMiB)).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(opened)) << opened;
    EXPECT_EQ(checked, opened);
    EXPECT_NE(Message(opened).find(file.path()), std::string::npos) << opened;
    std::ifstream left(file.path());
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(left), {}), content);
  }
}

TEST(CxlTier, ACheckSaysWhatOpeningWould) {
  ScratchFile file;
  EXPECT_TRUE(CheckFileRegion(file.path()).ok());
  EXPECT_TRUE(OpenCxlTier(OnFile(file.path(), kMiB)).ok());
  EXPECT_TRUE(CheckFileRegion(file.path()).ok()) << "what FirnKV left is taken again";
  EXPECT_TRUE(CheckFileRegion(file.path() + ".absent").ok());
  EXPECT_NE(access((file.path() + ".absent").c_str(), F_OK), 0) << "a check creates nothing";
  EXPECT_TRUE(absl::IsNotFound(CheckFileRegion(file.path() + ".absent/x")));
  EXPECT_FALSE(CheckFileRegion("/tmp").ok());
  EXPECT_TRUE(absl::IsNotFound(CheckDaxRegion("/dev/dax987.0", kMiB)));
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckDaxRegion("/dev/null", kMiB)));
}

TEST(CxlTier, AFileThatCannotGrowLeavesASmallerTier) {
  ScratchFile file;
  auto tier = OpenCxlTier({.capacity_bytes = 16 * kMiB, .numa_node = {}, .dax_device = "", .file = file.path()});
  ASSERT_TRUE(tier.ok()) << tier.status();
  // A limit on file sizes stands in for a full file system.
  struct rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit lower = {4 * kMiB, before.rlim_max};
  auto old_handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &lower), 0);
  absl::Status fits = (*tier)->Populate(kMiB), full = (*tier)->Populate(4 * kMiB);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, old_handler);
  EXPECT_TRUE(fits.ok()) << fits;
  EXPECT_EQ(StatusErrno(full), EFBIG) << full;
  EXPECT_EQ((*tier)->Usage().capacity_bytes, kMiB);
  EXPECT_TRUE((*tier)->Populate(16 * kMiB).ok()) << "room came back";
  EXPECT_EQ((*tier)->Usage().capacity_bytes, 16 * kMiB);
}

}  // namespace
}  // namespace firn
