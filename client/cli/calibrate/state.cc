#include "client/cli/calibrate/state.h"

#include <filesystem>

#include "base/checksum.h"
#include "base/read_file.h"
#include "base/status.h"
#include "client/cli/calibrate/settings_text.h"
#include "client/cpp/tensor/output_file.h"

namespace firn::cli {
namespace {

constexpr uint32_t kMagic = 0x53435646;  // "FVCS" as bytes.
// Also goes up where what is measured changes: old layers must not go with new ones.
constexpr uint16_t kVersion = 1;
constexpr uint64_t kStateBytesMax = uint64_t{1} << 30;
constexpr uint32_t kClassesMax = 16;

void WriteText(ByteWriter* writer, const std::string& text) {
  writer->Write<uint32_t>(static_cast<uint32_t>(text.size()));
  writer->WriteBytes(AsBytes(text));
}

bool HasSections(const ArtifactSections& s) {
  return !s.mean.empty() || !s.centre.empty() || !s.scales.empty() || !s.codebooks.empty();
}

// Sections as the artifact that they make.
absl::Status WriteSections(ByteWriter* writer, const ArtifactSections& sections) {
  if (!HasSections(sections)) {
    writer->Write<uint64_t>(0);
    return absl::OkStatus();
  }
  FIRN_ASSIGN_OR_RETURN(auto artifact, Artifact::Create(sections));
  writer->Write<uint64_t>(artifact->serialized().size());
  writer->WriteBytes(artifact->serialized());
  return absl::OkStatus();
}

absl::StatusOr<ArtifactSections> ReadSections(ByteReader* reader) {
  auto length = reader->Read<uint64_t>();
  if (length == 0) return ArtifactSections{};
  FIRN_ASSIGN_OR_RETURN(auto artifact, Artifact::Parse(reader->ReadBytes(length)));
  return artifact->sections();
}

void WriteErrors(ByteWriter* writer, const LayerErrors& errors) {
  writer->Write<uint32_t>(errors.heads);
  if (errors.heads == 0) return;
  writer->Write<uint32_t>(static_cast<uint32_t>(errors.head_bytes[0].size()));
  writer->Write<uint64_t>(errors.outputs);
  writer->Write<uint64_t>(errors.window_tokens);
  writer->Write<uint64_t>(errors.gradient_tokens);
  for (double norm : errors.output_norm) writer->Write<double>(norm);
  for (size_t p = 0; p < errors.errors.size(); ++p) {
    for (uint64_t bytes : errors.head_bytes[p]) writer->Write<uint64_t>(bytes);
    for (const HeadErrors& head : errors.errors[p]) {
      for (double value : {head.output, head.attention, head.gradient}) writer->Write<double>(value);
    }
  }
}

absl::StatusOr<LayerErrors> ReadErrors(ByteReader* reader) {
  LayerErrors errors;
  errors.heads = reader->Read<uint32_t>();
  if (errors.heads == 0) return errors;
  auto classes = reader->Read<uint32_t>();
  if (errors.heads > kHeadsMax || classes > kClassesMax) {
    return InvalidArgument("errors of {} heads and {} classes", errors.heads, classes);
  }
  errors.outputs = reader->Read<uint64_t>();
  errors.window_tokens = reader->Read<uint64_t>();
  errors.gradient_tokens = reader->Read<uint64_t>();
  for (uint32_t i = 0; i < errors.heads; ++i) errors.output_norm.push_back(reader->Read<double>());
  for (size_t p = 0; p < errors.errors.size(); ++p) {
    for (uint32_t c = 0; c < classes; ++c) errors.head_bytes[p].push_back(reader->Read<uint64_t>());
    for (uint32_t i = 0; i < classes * errors.heads; ++i) {
      HeadErrors head;
      for (double* value : {&head.output, &head.attention, &head.gradient}) *value = reader->Read<double>();
      errors.errors[p].push_back(head);
    }
  }
  return errors;
}

absl::StatusOr<LayerResult> ReadResult(ByteReader* reader) {
  LayerResult result;
  result.tokens = reader->Read<uint64_t>();
  result.captures_without_queries = reader->Read<uint32_t>();
  FIRN_ASSIGN_OR_RETURN(result.keys, ReadSections(reader));
  FIRN_ASSIGN_OR_RETURN(result.values, ReadSections(reader));
  FIRN_ASSIGN_OR_RETURN(result.errors, ReadErrors(reader));
  return result;
}

}  // namespace

absl::StatusOr<std::vector<uint8_t>> SerializeState(const CalibrationState& state) {
  ByteWriter writer;
  writer.Write<uint32_t>(kMagic);
  writer.Write<uint16_t>(kVersion);
  writer.Write<uint16_t>(0);
  WriteText(&writer, state.settings);
  writer.Write<uint32_t>(static_cast<uint32_t>(state.captures.size()));
  for (const Digest& digest : state.captures) writer.WriteBytes(digest.span());
  writer.Write<uint32_t>(static_cast<uint32_t>(state.layers.size()));
  for (const auto& [layer, result] : state.layers) {
    writer.Write<uint32_t>(layer);
    writer.Write<uint64_t>(result.tokens);
    writer.Write<uint32_t>(result.captures_without_queries);
    FIRN_RETURN_IF_ERROR(WriteSections(&writer, result.keys));
    FIRN_RETURN_IF_ERROR(WriteSections(&writer, result.values));
    WriteErrors(&writer, result.errors);
  }
  writer.Write<uint64_t>(Crc64(writer.bytes(), 0));
  return writer.Take();
}

absl::StatusOr<CalibrationState> ParseState(const std::string& path, ByteSpan bytes) {
  constexpr size_t kLeast = 8 + sizeof(uint64_t);
  if (bytes.size() < kLeast || LoadLe<uint32_t>(bytes.data()) != kMagic) {
    return InvalidArgument("{} is not the state of a calibration", path);
  }
  if (auto version = LoadLe<uint16_t>(bytes.data() + 4); version != kVersion) {
    return InvalidArgument("{} is the state of a calibration of version {}; this is version {}", path, version,
                           kVersion);
  }
  ByteSpan body = bytes.first(bytes.size() - sizeof(uint64_t));
  if (Crc64(body, 0) != LoadLe<uint64_t>(bytes.data() + body.size()))
    return InvalidArgument("{}: the checksum is wrong", path);
  ByteReader reader(body.subspan(8));
  CalibrationState state;
  state.settings = std::string(AsText(reader.ReadBytes(reader.Read<uint32_t>())));
  auto captures = reader.Read<uint32_t>();
  for (uint32_t i = 0; i < captures && reader.ok(); ++i) {
    state.captures.push_back(Digest::FromBytes(reader.ReadBytes(32)).value_or(Digest{}));
  }
  auto layers = reader.Read<uint32_t>();
  for (uint32_t i = 0; i < layers && reader.ok(); ++i) {
    auto layer = reader.Read<uint32_t>();
    auto result = ReadResult(&reader);
    if (!result.ok()) return InvalidArgument("{}: layer {}: {}", path, layer, Message(result.status()));
    state.layers[layer] = *std::move(result);
  }
  if (!reader.ok() || reader.remaining() != 0) return InvalidArgument("{}: its lengths do not go together", path);
  return state;
}

absl::Status CheckState(const std::string& path, const CalibrationState& state, const CalibrationState& now) {
  if (state.settings != now.settings) {
    return InvalidArgument("{} was made with other options: {}. Give the same ones, or --resume another file", path,
                           SettingsDifference(state.settings, now.settings));
  }
  if (state.captures.size() != now.captures.size()) {
    return InvalidArgument("{} was made of {} captures; {} are given", path, state.captures.size(),
                           now.captures.size());
  }
  for (size_t i = 0; i < now.captures.size(); ++i) {
    if (state.captures[i] == now.captures[i]) continue;
    return InvalidArgument("{}: capture {} is not the one it was made of: {}, now {}", path, i + 1,
                           state.captures[i].Hex(), now.captures[i].Hex());
  }
  return absl::OkStatus();
}

absl::StatusOr<CalibrationState> ReadState(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return CalibrationState{};
  FIRN_ASSIGN_OR_RETURN(std::string text, ReadSmallFile(path, kStateBytesMax));
  return ParseState(path, AsBytes(text));
}

absl::Status WriteState(const std::string& path, const CalibrationState& state) {
  FIRN_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, SerializeState(state));
  return WriteOutputFile(path, {ByteSpan(bytes)});
}

}  // namespace firn::cli
