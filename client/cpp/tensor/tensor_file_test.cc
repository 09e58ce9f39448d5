#include "client/cpp/tensor/tensor_file.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace firn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "firn-tensor-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string Safetensors(std::string header, const std::string& values) {
  std::string out(8, '\0');
  StoreLe<uint64_t>(reinterpret_cast<uint8_t*>(out.data()), header.size());
  return out + header + values;
}

std::string Npy(const std::string& header, const std::string& values, char major = 1) {
  std::string out("\x93NUMPY", 6);
  out += {major, '\0', static_cast<char>(header.size() & 0xFF), static_cast<char>(header.size() >> 8)};
  if (major > 1) out += std::string(2, '\0');
  return out + header + values;
}

absl::StatusOr<TensorFile> Parse(const std::string& bytes) {
  auto keep = std::make_shared<const std::string>(bytes);
  return TensorFile::Parse("test", AsBytes(*keep), keep);
}

void ExpectRefused(const std::string& bytes, const std::string& message) {
  auto file = Parse(bytes);
  ASSERT_FALSE(file.ok()) << message;
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(file.status()), HasSubstr(message));
}

TEST(TensorFile, ReadsBackEveryTypeItWrites) {
  TempDir dir;
  for (const ElementTraits& traits : AllElementTraits()) {
    std::vector<uint8_t> values(6 * traits.bytes);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(i * 37 + 1);
    Tensor tensor{.name = "a", .type = traits.type, .shape = {2, 3}, .bytes = values};
    std::string path = dir / std::string(traits.safetensors);
    ASSERT_TRUE(WriteSafetensors(path, {tensor}, {{"note", "x"}}).ok());
    auto file = TensorFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_NE(file->Find("a"), nullptr);
    EXPECT_EQ(file->Find("a")->type, traits.type);
    EXPECT_THAT(file->Find("a")->shape, ElementsAre(2, 3));
    EXPECT_EQ(AsText(file->Find("a")->bytes), AsText(values));
    EXPECT_EQ(file->metadata().at("note"), "x");

    absl::Status written = WriteNpy(path + ".npy", tensor);
    EXPECT_EQ(written.ok(), !traits.npy.empty()) << written;
    if (!written.ok()) continue;
    auto npy = TensorFile::Open(path + ".npy");
    ASSERT_TRUE(npy.ok()) << npy.status();
    EXPECT_EQ(npy->tensors()[0].type, traits.type);
    EXPECT_THAT(npy->tensors()[0].shape, ElementsAre(2, 3));
    EXPECT_EQ(AsText(npy->tensors()[0].bytes), AsText(values));
  }
}

TEST(TensorFile, KeepsScalarsEmptyTensorsAndTheirOrder) {
  TempDir dir;
  const uint8_t bytes[4] = {1, 2, 3, 4};
  Tensor scalar{.name = "s", .type = ElementType::kF32, .shape = {}, .bytes = bytes};
  Tensor empty{.name = "e", .type = ElementType::kF16, .shape = {0, 5}, .bytes = {}};
  ASSERT_TRUE(WriteSafetensors(dir / "f", {empty, scalar, Tensor{"z", ElementType::kI8, {0}, {}}}, {}).ok());
  auto file = TensorFile::Open(dir / "f");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors().size(), 3u);
  EXPECT_TRUE(file->Find("s")->shape.empty());
  EXPECT_EQ(file->Find("e")->bytes.size(), 0u);
  for (const std::vector<uint64_t>& shape : {std::vector<uint64_t>{}, {1}}) {
    ASSERT_TRUE(WriteNpy(dir / "n", Tensor{"", ElementType::kF32, shape, bytes}).ok());
    auto npy = TensorFile::Open(dir / "n");
    ASSERT_TRUE(npy.ok()) << npy.status();
    EXPECT_EQ(npy->tensors()[0].shape, shape);
  }
}

TEST(TensorFile, WritesNothingFromTensorsThatDoNotAddUp) {
  TempDir dir;
  const uint8_t bytes[4] = {};
  EXPECT_FALSE(WriteSafetensors(dir / "f", {Tensor{"a", ElementType::kF32, {2}, bytes}}, {}).ok());
  EXPECT_FALSE(WriteSafetensors(dir / "f", {Tensor{"", ElementType::kF32, {1}, bytes}}, {}).ok());
  Tensor twice{"a", ElementType::kF32, {1}, bytes};
  EXPECT_FALSE(WriteSafetensors(dir / "f", {twice, twice}, {}).ok());
  EXPECT_FALSE(WriteNpy(dir / "f", Tensor{"a", ElementType::kBf16, {2}, bytes}).ok());
  EXPECT_FALSE(std::filesystem::exists(dir / "f"));
  EXPECT_EQ(WriteNpy(dir / "no/such/folder", twice).code(), absl::StatusCode::kNotFound);
}

TEST(TensorFile, RefusesHostileSafetensors) {
  const std::string two(2, 'x');
  auto entry = [](const std::string& shape, const std::string& offsets, const std::string& dtype = "F16") {
    return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  ASSERT_TRUE(Parse(Safetensors(entry("[1]", "[0,2]"), two)).ok());

  ExpectRefused("", "0 bytes");
  ExpectRefused("short", "5 bytes");
  ExpectRefused(std::string(8, '\xFF') + "{}", "header length 18446744073709551615");
  ExpectRefused(std::string(16, '\0'), "header length 0");
  ExpectRefused(Safetensors("[]", ""), "not a JSON object");
  ExpectRefused(Safetensors("{\"a\":", ""), "not a JSON object");
  ExpectRefused(Safetensors(R"({"a":[[[[[1]]]]]})", ""), "nested deeper");
  ExpectRefused(Safetensors(std::string(100'000, '['), ""), "nested deeper");
  ExpectRefused(Safetensors(R"({"a":1,"a":2})", ""), "twice");
  ExpectRefused(Safetensors(R"({"a":1})", ""), "not described by a JSON object");
  ExpectRefused(Safetensors(entry("[1]", "[0,2]", "F4"), two), "dtype 'F4'");
  ExpectRefused(Safetensors(entry("[-1]", "[0,2]"), two), "not an unsigned integer");
  ExpectRefused(Safetensors(entry("[1.5]", "[0,2]"), two), "not an unsigned integer");
  ExpectRefused(Safetensors(entry("\"x\"", "[0,2]"), two), "no shape");
  ExpectRefused(Safetensors(entry("[1]", "[0]"), two), "two numbers");
  ExpectRefused(Safetensors(entry("[1]", "[2,0]"), two), "[2, 0)");
  ExpectRefused(Safetensors(entry("[1]", "[0,4]"), two), "holds 2 bytes");
  ExpectRefused(Safetensors(entry("[1]", "[0,18446744073709551615]"), two), "holds 2 bytes");
  ExpectRefused(Safetensors(entry("[2]", "[0,2]"), two), "need 4");
  ExpectRefused(Safetensors(entry("[4294967296,4294967296,4294967296]", "[0,2]"), two), "more than");
  ExpectRefused(Safetensors(entry("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,2]"), two), "17 dimensions");
  ExpectRefused(Safetensors(entry("[1]", "[0,2]"), "xxxx"), "cover 2 of 4");
  ExpectRefused(Safetensors(R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},)"
                            R"("b":{"dtype":"I8","shape":[2],"data_offsets":[1,3]}})",
                            "xxx"),
                "starts at byte 1");
  ExpectRefused(Safetensors(R"({"__metadata__":{"a":1}})", ""), "not a string");
}

TEST(TensorFile, RefusesHostileNpy) {
  auto header = [](const std::string& descr, const std::string& order, const std::string& shape) {
    return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  };
  const std::string four(4, 'x');
  for (char version : {1, 2, 3}) ASSERT_TRUE(Parse(Npy(header("<f2", "False", "(2,)"), four, version)).ok());
  ASSERT_TRUE(Parse(Npy(header("<f2", "True", "(2,)"), four)).ok());  // One dimension has no order.

  ExpectRefused(Npy(header("<f2", "False", "(2,)"), four, 9), "version 9");
  ExpectRefused(std::string("\x93NUMPY\x01\x00\xFF\xFF", 10), "65535 bytes");
  ExpectRefused(Npy(header("<f2", "False", "(2,)"), "xxx"), "needs 4 bytes");
  ExpectRefused(Npy(header("<f2", "False", "(2,)"), four + "x"), "holds 5");
  ExpectRefused(Npy(header(">f2", "False", "(2,)"), four), "dtype '>f2'");
  ExpectRefused(Npy(header("|V2", "False", "(2,)"), four), "dtype '|V2'");
  ExpectRefused(Npy(header("|O", "False", "(2,)"), four), "dtype '|O'");
  ExpectRefused(Npy(header("<f2", "True", "(1, 2)"), four), "Fortran order");
  ExpectRefused(Npy(header("<f2", "False", "(-2,)"), four), "header is not");
  ExpectRefused(Npy(header("<f2", "False", "(2"), four), "header is not");
  ExpectRefused(Npy(header("<f2", "Maybe", "(2,)"), four), "header is not");
  ExpectRefused(Npy(header("<f2", "False", "(99999999999999999999,)"), four), "header is not");
  ExpectRefused(Npy(header("<f2", "False", "(9999999999,9999999999)"), four), "more than");
  ExpectRefused(Npy("{'descr': [('a', '<f2')], 'fortran_order': False, 'shape': (2,)}", four), "header is not");
  ExpectRefused(Npy("{'descr': '<f2', 'descr': '<f2', 'fortran_order': False, 'shape': (2,)}", four), "header is not");
  ExpectRefused(Npy("{'descr': '<f2', 'shape': (2,)}", four), "header is not");
}

TEST(TensorFile, SurvivesRandomDamage) {
  const uint32_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string whole[] = {
      Safetensors(R"({"a":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]},"b":{"dtype":"I8","shape":[1],)"
                  R"("data_offsets":[8,9]},"__metadata__":{"k":"v"}})",
                  std::string(9, 'x')),
      Npy("{'descr': '<f2', 'fortran_order': False, 'shape': (2, 2), }\n", std::string(8, 'x'))};
  uint64_t checksum = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = whole[round % 2];
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    auto file = Parse(bytes);
    if (!file.ok()) continue;
    for (const Tensor& tensor : file->tensors()) {  // Every byte a parser promises must be there.
      EXPECT_EQ(tensor.bytes.size() % TraitsOf(tensor.type).bytes, 0u);
      for (uint8_t byte : tensor.bytes) checksum += byte;
    }
  }
  RecordProperty("checksum", std::to_string(checksum));
}

TEST(TensorFile, ConvertsHalvesExactly) {
  EXPECT_EQ(HalfToFloat(0x3C00), 1.0f);
  EXPECT_EQ(HalfToFloat(0xFBFF), -65504.0f);
  EXPECT_EQ(HalfToFloat(0x0001), 5.9604644775390625e-8f);
  EXPECT_EQ(HalfToFloat(0x83FF), -6.097555160522461e-5f);
  EXPECT_TRUE(std::isinf(HalfToFloat(0x7C00)));
  EXPECT_TRUE(std::isnan(HalfToFloat(0x7E01)));
  EXPECT_EQ(Bf16ToFloat(0x3F81), 1.0078125f);
}

TEST(TensorFile, TokenIdsAreChecked) {
  const int64_t good[] = {0, 7, 4294967295};
  auto ids = ToTokenIds(Tensor{"t", ElementType::kI64, {3}, {reinterpret_cast<const uint8_t*>(good), sizeof(good)}});
  ASSERT_TRUE(ids.ok());
  EXPECT_THAT(*ids, ElementsAre(0u, 7u, 4294967295u));
  for (int64_t bad : {int64_t{-1}, int64_t{4294967296}}) {
    auto refused =
        ToTokenIds(Tensor{"t", ElementType::kI64, {1}, {reinterpret_cast<const uint8_t*>(&bad), sizeof(bad)}});
    EXPECT_THAT(Message(refused.status()), HasSubstr(std::to_string(bad)));
  }
}

TEST(TensorFile, ReadsTheSample) {
  auto file = TensorFile::Open(std::string(FIRN_SOURCE_DIR) + "/tests/data/sample_128tok.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  for (const char* name : {"layer0.k", "layer0.v", "layer2.k", "layer2.v"}) {
    ASSERT_NE(file->Find(name), nullptr) << name;
    EXPECT_EQ(DescribeTensor(*file->Find(name)), "F16 (128, 2, 128)");
  }
  auto ids = ToTokenIds(*file->Find("tokens"));
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->size(), 128u);
}

TEST(TensorFile, OpenSaysWhatFailed) {
  EXPECT_EQ(TensorFile::Open("/no/such/file").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(TensorFile::Open("/tmp").status()), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace firn
