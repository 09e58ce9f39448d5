#include "client/cpp/tensor/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/status.h"
#include "client/cpp/tensor/tensor_file.h"

namespace firn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class OutputFileTest : public testing::Test {
 protected:
  OutputFileTest() {
    char folder[] = "/tmp/firn-out-XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~OutputFileTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  mode_t TypeOf(const std::string& path) const {
    struct stat facts = {};
    return lstat(path.c_str(), &facts) == 0 ? facts.st_mode & S_IFMT : 0;
  }
  size_t Entries() const {
    std::filesystem::directory_iterator first(folder_), last;
    return static_cast<size_t>(std::distance(first, last));
  }
  std::string folder_;
};

std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST_F(OutputFileTest, WritesAndReplacesRegularFiles) {
  ASSERT_TRUE(WriteOutputFile(Path("f"), {AsBytes("one"), AsBytes("two")}).ok());
  EXPECT_EQ(ContentOf(Path("f")), "onetwo");
  ASSERT_TRUE(WriteOutputFile(Path("f"), {AsBytes("three")}).ok());
  EXPECT_EQ(ContentOf(Path("f")), "three");
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(OutputFileTest, WhatIsNoRegularFileStaysAsItIs) {
  std::ofstream(Path("target")) << "precious";
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  ASSERT_EQ(mkdir(Path("folder").c_str(), 0700), 0);
  ASSERT_EQ(symlink("target", Path("link").c_str()), 0);
  ASSERT_EQ(symlink("absent", Path("dangling").c_str()), 0);
  std::vector<std::string> names = {"fifo", "folder", "link", "dangling"};
  // A node of our own, never opened; making one takes privileges.
  if (mknod(Path("device").c_str(), S_IFCHR | 0600, makedev(60, 200)) == 0) names.push_back("device");
  const size_t entries = Entries();
  for (const std::string& name : names) {
    mode_t type = TypeOf(Path(name));
    absl::Status refused = WriteOutputFile(Path(name), {AsBytes("x")});
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(Message(refused), AllOf(HasSubstr(Path(name)), HasSubstr("allowed: a regular file")));
    EXPECT_EQ(refused, CheckOutputPath(Path(name)));
    EXPECT_TRUE(absl::IsInvalidArgument(WriteSafetensors(Path(name), {}, {}))) << name;
    EXPECT_EQ(TypeOf(Path(name)), type) << name;
  }
  EXPECT_EQ(Entries(), entries);
  EXPECT_EQ(ContentOf(Path("target")), "precious");
}

TEST_F(OutputFileTest, SaysWhatFailed) {
  absl::Status missing = WriteOutputFile(Path("no/such/folder"), {});
  EXPECT_EQ(StatusErrno(missing), ENOENT) << missing;
  // Whatever lies at the temporary name is replaced, not followed.
  std::ofstream(Path("target")) << "precious";
  ASSERT_EQ(symlink("target", (Path("f") + ".partial-" + std::to_string(getpid())).c_str()), 0);
  ASSERT_TRUE(WriteOutputFile(Path("f"), {AsBytes("x")}).ok());
  EXPECT_EQ(ContentOf(Path("target")), "precious");
}

// Opening one would wait for a writer.
TEST_F(OutputFileTest, AFifoIsNoTensorFile) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(Message(TensorFile::Open(Path("fifo")).status()), HasSubstr("is not a regular file"));
}

}  // namespace
}  // namespace firn
