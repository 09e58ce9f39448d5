// Importance of tokens from files of every shape that is allowed, and of some that are not.
#include "client/cli/support/importance.h"

#include <unistd.h>

#include <filesystem>
#include <limits>

#include "base/status.h"
#include "client/cpp/tensor/tensor_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace firn::cli {
namespace {

using ::testing::HasSubstr;

class ImportanceTest : public testing::Test {
 protected:
  ~ImportanceTest() override { std::filesystem::remove(path_); }
  // Of 10 tokens in blocks of 4.
  absl::StatusOr<std::vector<float>> Read(const std::vector<float>& values, std::vector<uint64_t> shape,
                                          ElementType type = ElementType::kF32) {
    ByteSpan bytes(reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float));
    EXPECT_TRUE(WriteNpy(path_, {.name = "", .type = type, .shape = std::move(shape), .bytes = bytes}).ok());
    return ReadImportance(path_, 10, 4);
  }
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("importance-" + std::to_string(getpid()) + ".npy")).string();
};

TEST_F(ImportanceTest, AValueATokenOrAPlaceOfEachBlock) {
  std::vector<float> values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(*Read(values, {10}), values);
  std::vector<float> padded = values;
  padded.resize(12, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(*Read(padded, {3, 4}), values) << "what no token fills is not looked at";
  EXPECT_EQ(*Read(padded, {12}), values);
}

TEST_F(ImportanceTest, WhatIsWrongIsNamedWithItsPlace) {
  auto message = [](const absl::StatusOr<std::vector<float>>& read) {
    EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << read.status();
    return Message(read.status());
  };
  EXPECT_THAT(message(Read(std::vector<float>(9), {9})),
              HasSubstr(path_ + " is F32 (9); allowed: (10), a value a token, or (3, 4), a value a place"));
  EXPECT_THAT(message(Read(std::vector<float>(12), {4, 3})), HasSubstr("F32 (4, 3)"));
  EXPECT_THAT(message(Read(std::vector<float>(10), {1, 10})), HasSubstr("F32 (1, 10)"));
  EXPECT_THAT(message(Read(std::vector<float>(20), {10}, ElementType::kF64)), HasSubstr("F64 (10); allowed: F32"));
  for (auto [wrong, said] : {std::pair(std::numeric_limits<float>::quiet_NaN(), "is nan"),
                             {std::numeric_limits<float>::infinity(), "is inf"},
                             {-0.5f, "is -0.5"}}) {
    std::vector<float> values(10);
    values[6] = wrong;
    EXPECT_THAT(message(Read(values, {10})), HasSubstr(std::string("token 6 (block 1, its token 2) ") + said));
  }
  std::filesystem::remove(path_);
  EXPECT_EQ(StatusErrno(ReadImportance(path_, 10, 4).status()), ENOENT);
}

}  // namespace
}  // namespace firn::cli
