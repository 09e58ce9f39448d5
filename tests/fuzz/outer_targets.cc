// What people hand in: tensor files and configurations.
#include <filesystem>

#include "base/check.h"
#include "base/units.h"
#include "client/cpp/tensor/tensor_file.h"
#include "client/cpp/tensor/tensor_formats.h"
#include "daemon/config/check/check.h"
#include "daemon/config/config.h"
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

// Everything there is to listen on and to keep blocks in; files and directories below /files and /sealed are in the
// way.
Machine SomeMachine() {
  Machine machine;
  machine.ram_bytes = 64 * kGiB;
  machine.numa_nodes = {0, 1};
  machine.disk = [](const std::string& path) -> absl::StatusOr<DiskFacts> {
    return DiskFacts{100 * kGiB, 50 * kGiB, 10 * kGiB, path.starts_with("/root"), path.starts_with("/full")};
  };
  machine.group_exists = [](const std::string& group) { return group == "firn"; };
  machine.place = [](const std::string& path) {
    PlaceFacts place;
    place.real = std::filesystem::path(path).lexically_normal().string();
    if (place.real.starts_with("/files/")) place.kind = PlaceKind::kRegular;
    if (place.real.starts_with("/sealed/")) place.obstacle = "cannot write";
    return place;
  };
  machine.cxl_place = [](const std::string&, uint64_t) { return absl::OkStatus(); };
  machine.gpu = [](uint32_t, bool) { return absl::OkStatus(); };
  machine.can_listen_on = [](const std::string&) { return absl::OkStatus(); };
  machine.read_file = [](const std::string&) -> absl::StatusOr<std::string> { return std::string("nonsense"); };
  return machine;
}

void RunConfig(ByteSpan input) {
  const ConfigPlaces places{"/var/lib/x", "/run/x"};
  static const Machine machine = SomeMachine();
  auto reading = ReadConfig(AsText(input), "fuzz.toml", places);
  if (!reading.ok()) return;
  // What a start would accept reads back as itself.
  if (!CheckConfig(*reading, machine).errors.empty()) return;
  auto again = ParseConfig(PrintConfig(reading->config), "printed.toml", places);
  FIRN_CHECK(again.ok() && *again == reading->config);
}

}  // namespace

std::vector<Target> OuterTargets() {
  std::vector<Target> targets;
  targets.push_back({"npy", [](ByteSpan input) { RunTensorFile("x.npy", input); }, {SomeNpy()}, nullptr});
  targets.push_back(
      {"safetensors", [](ByteSpan input) { RunTensorFile("x.safetensors", input); }, {SomeSafetensors()}, nullptr});
  targets.push_back({"config", RunConfig, {FromText(PrintConfig(DefaultConfig({"/var/lib/x", "/run/x"})))}, nullptr});
  return targets;
}

}  // namespace firn::fuzz
