// What people and clients hand in: tensor files, configurations, frames of the protocol.
#include "base/check.h"
#include "client/cpp/tensor/tensor_file.h"
#include "client/cpp/tensor/tensor_formats.h"
#include "daemon/config/config.h"
#include "daemon/wire/put_frame.h"
#include "tests/fuzz/fuzz_target.h"

namespace firn::fuzz {
namespace {

Bytes FromText(std::string_view text) { return Bytes(text.begin(), text.end()); }

void UseTensors(const std::vector<Tensor>& tensors) {
  for (const Tensor& tensor : tensors) {
    static_cast<void>(DescribeTensor(tensor));
    ToFloats(tensor).IgnoreError();
    ToTokenIds(tensor).IgnoreError();
  }
}

void RunTensorFile(const std::string& path, ByteSpan input) {
  auto file = TensorFile::Parse(path, input, nullptr);
  if (file.ok()) UseTensors(file->tensors());
}

Bytes SomeNpy() {
  std::string header = "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3), }";
  header.resize(118 - 1, ' ');
  header += '\n';
  Bytes bytes = FromText(std::string("\x93NUMPY\x01\x00", 8));
  bytes.push_back(static_cast<uint8_t>(header.size()));
  bytes.push_back(0);
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.resize(bytes.size() + 12, 0x3C);
  return bytes;
}

Bytes SomeSafetensors() {
  std::string header =
      R"({"__metadata__":{"a":"b"},"0.k":{"dtype":"F16","shape":[2,1,4],"data_offsets":[0,16]},"0.v":{"dtype":"BF16","shape":[2,4],"data_offsets":[16,32]}})";
  Bytes bytes(8);
  StoreLe<uint64_t>(bytes.data(), header.size());
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.resize(bytes.size() + 32, 0x11);
  return bytes;
}

void RunConfig(ByteSpan input) {
  ConfigPlaces places{"/var/lib/x", "/run/x"};
  auto config = ParseConfig(AsText(input), "fuzz.toml", places);
  if (!config.ok()) return;
  // What is accepted reads back as itself.
  auto again = ParseConfig(PrintConfig(*config), "printed.toml", places);
  FIRN_CHECK(again.ok() && *again == *config);
}

void RunPutFrame(ByteSpan input) {
  // In two slices, where the first byte says.
  if (input.empty()) return;
  size_t first = std::min<size_t>(input[0], input.size() - 1);
  ByteSpan slices[] = {input.subspan(1, first), input.subspan(1 + first)};
  auto frame = ParsePutFrame(slices);
  if (!frame.ok()) return;
  uint64_t bytes = 0;
  for (ByteSpan piece : frame->payload) bytes += piece.size();
  FIRN_CHECK(bytes == frame->payload_bytes);
  FIRN_CHECK(frame->control.size() <= kControlBytesMax);
}

}  // namespace

std::vector<Target> OuterTargets() {
  std::vector<Target> targets;
  targets.push_back({"npy", [](ByteSpan input) { RunTensorFile("x.npy", input); }, {SomeNpy()}, nullptr});
  targets.push_back(
      {"safetensors", [](ByteSpan input) { RunTensorFile("x.safetensors", input); }, {SomeSafetensors()}, nullptr});
  targets.push_back({"config", RunConfig, {FromText(PrintConfig(DefaultConfig({"/var/lib/x", "/run/x"})))}, nullptr});
  targets.push_back({"put_frame", RunPutFrame, {{3, 0x0A, 2, 1, 1, 0x7A, 4, 9, 9, 9, 9}, {200, 0x7A, 0}}, nullptr});
  return targets;
}

}  // namespace firn::fuzz
