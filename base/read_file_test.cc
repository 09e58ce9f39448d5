#include "base/read_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/status.h"

namespace firn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ReadSmallFileTest : public testing::Test {
 protected:
  ReadSmallFileTest() {
    char folder[] = "/tmp/firn-read-XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~ReadSmallFileTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string folder_;
};

TEST_F(ReadSmallFileTest, ReadsUpToTheLimitAndNotBeyond) {
  std::ofstream(Path("f")) << std::string(100'000, 'x');
  auto text = ReadSmallFile(Path("f"), 100'000);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, std::string(100'000, 'x'));
  absl::Status large = ReadSmallFile(Path("f"), 99'999).status();
  EXPECT_TRUE(absl::IsInvalidArgument(large)) << large;
  EXPECT_THAT(Message(large), AllOf(HasSubstr(Path("f")), HasSubstr("100000"), HasSubstr("at most 99999")));
}

// Such a file has no size before it is read.
TEST_F(ReadSmallFileTest, TheLimitHoldsWhereTheSizeSaysNothing) {
  EXPECT_TRUE(absl::IsInvalidArgument(ReadSmallFile("/proc/self/status", 16).status()));
  EXPECT_TRUE(ReadSmallFile("/proc/self/status", 1 << 20).ok());
}

TEST_F(ReadSmallFileTest, OnlyRegularFilesAreRead) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(Message(ReadSmallFile(folder_, 100).status()), AllOf(HasSubstr(folder_), HasSubstr("a directory")));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadSmallFile(folder_, 100).status()));
  EXPECT_THAT(Message(ReadSmallFile(Path("fifo"), 100).status()), HasSubstr("a FIFO"));
  EXPECT_THAT(Message(ReadSmallFile("/dev/zero", 100).status()), HasSubstr("a device"));
  EXPECT_EQ(StatusErrno(ReadSmallFile(Path("absent"), 100).status()), ENOENT);
}

}  // namespace
}  // namespace firn
