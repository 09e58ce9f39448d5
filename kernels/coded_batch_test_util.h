// Test support: one coding of a batch on the GPU beside the codec table's row, runs and values byte for byte.
#pragma once

#include <functional>

#include "kernels/batch_test_util.h"

namespace firn::kernels {

// What a kernel is given, however its job names it.
struct CodedMemory {
  RowsView rows;
  RunView meta, codes;
  uint32_t* survey;
};
struct CodedCall {
  std::function<absl::Status(const CodedMemory&)> encode, decode;
};

// What the artifact says of a layer's head.
struct CodedModel {
  std::function<ChannelTransform(uint32_t layer, uint32_t head)> transform = [](uint32_t, uint32_t) {
    return ChannelTransform{};
  };
  std::function<ModelData(uint32_t layer, uint32_t head)> model = [](uint32_t, uint32_t) { return ModelData{}; };
};

// What the row makes of the batch; codecs of layer scope see all heads of a layer at once.
class CodedReference {
 public:
  CodedReference(const CodedCase& c, const std::vector<uint8_t>& source, const CodedModel& model = {})
      : c_(c), row_(*FindCodec(c.coding.codec)), model_(model) {
    heads_ = row_.scope == TileScope::kLayer ? c.size.heads : 1;
    survey_.assign(c.size.blocks, 0);
    for (uint32_t i = 0; i < Tiles(); ++i) Encode(source.data() + i * TileBytes(), i);
    for (uint32_t& found : survey_) found = SettledSurvey(found);
  }
  std::vector<uint8_t> meta, codes;  // [block][layer][...]
  const std::vector<uint32_t>& survey() const { return survey_; }

  std::vector<uint8_t> Decode() const {
    std::vector<uint8_t> values(c_.size.values() * DTypeBytes(c_.values));
    uint32_t tiles = Tiles();
    for (uint32_t i = 0; i < tiles; ++i) {
      DecodeTile tile;
      tile.coding = &c_.coding;
      tile.width = c_.size.width, tile.tokens = c_.size.tokens, tile.heads = heads_;
      tile.out = c_.values;
      tile.target = values.data() + i * TileBytes();
      Describe(i, &tile.transform, &tile.model);
      tile.runs[static_cast<size_t>(RunKind::kMeta)] = meta.data() + i * meta.size() / tiles;
      tile.runs[static_cast<size_t>(RunKind::kWhole)] = codes.data() + i * codes.size() / tiles;
      row_.decode_reference(tile);
    }
    return values;
  }

 private:
  uint64_t TileBytes() const { return uint64_t{heads_} * c_.size.tokens * c_.size.width * DTypeBytes(c_.values); }
  uint32_t Tiles() const { return c_.size.heads_in_all() / heads_; }
  void Describe(uint32_t tile, ChannelTransform* transform, ModelData* model) const {
    uint32_t of_layer = c_.size.heads / heads_;
    uint32_t layer = tile / of_layer % c_.size.layers, head = tile % of_layer;
    *transform = model_.transform(layer, head);
    *model = model_.model(layer, head);
  }
  void Encode(const uint8_t* source, uint32_t index) {
    uint32_t block = index / (Tiles() / c_.size.blocks);
    TileMemory memory(row_, c_.coding, DType::kFp16, c_.size.width, c_.size.tokens, heads_);
    Survey found;
    EncodeTile tile;
    tile.coding = &c_.coding;
    tile.width = c_.size.width, tile.tokens = c_.size.tokens, tile.heads = heads_;
    tile.in = c_.values;
    tile.source = source;
    Describe(index, &tile.transform, &tile.model);
    tile.survey = &found;
    memory.Attach(&tile);
    row_.encode_reference(tile);
    const auto& of_meta = memory.runs[static_cast<size_t>(RunKind::kMeta)];
    const auto& of_codes = memory.runs[static_cast<size_t>(RunKind::kWhole)];
    meta.insert(meta.end(), of_meta.begin(), of_meta.end());
    codes.insert(codes.end(), of_codes.begin(), of_codes.end());
    if (found.non_finite || found.out_of_range) survey_[block] |= kSurveyUnfit;
    if (found.needs_float) survey_[block] |= kSurveyNeedsFloat;
  }

  const CodedCase& c_;
  const CodecRow& row_;
  CodedModel model_;
  uint32_t heads_;
  std::vector<uint32_t> survey_;
};

// Of blocks that fit; codes of values that do not mean nothing.
inline void ExpectRun(const DeviceRun& run, const std::vector<uint8_t>& expected, const std::vector<uint32_t>& survey,
                      const char* name) {
  std::vector<uint8_t> bytes = run.Download();
  ASSERT_EQ(bytes.size(), expected.size());
  uint64_t run_bytes = bytes.size() / survey.size();
  for (uint64_t i = 0; i < bytes.size(); ++i) {
    if (survey[i / run_bytes] != 0) continue;
    ASSERT_EQ(int{bytes[i]}, int{expected[i]}) << name << " block " << i / run_bytes << " byte " << i % run_bytes;
  }
}

// Encodes and decodes, and compares all of it.
inline void CheckCoded(const CodedCase& c, const std::vector<uint8_t>& source, const CodedReference& expected,
                       const CodedCall& call) {
  SCOPED_TRACE(c.Name());
  uint32_t value_bytes = DTypeBytes(c.values), blocks = c.size.blocks;
  DeviceRows rows(c.size, c.arrangement, 3, value_bytes), target(c.size, c.arrangement, 3, value_bytes);
  rows.Upload(source);
  target.Send();
  DeviceRun codes(blocks, expected.codes.size() / blocks, c.place, 4), meta;
  if (!expected.meta.empty()) meta = DeviceRun(blocks, expected.meta.size() / blocks, c.place, 5);
  DeviceMemory survey(std::vector<uint32_t>(blocks, 0));
  CodedMemory memory{rows.view(), meta.view(), codes.view(), survey.as<uint32_t>()};
  absl::Status status = call.encode(memory);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_NO_FATAL_FAILURE(Synchronize());
  std::vector<uint32_t> found = survey.Read<uint32_t>();
  for (uint32_t& f : found) f = SettledSurvey(f);
  ASSERT_EQ(found, expected.survey());
  if (!expected.meta.empty()) {
    ASSERT_NO_FATAL_FAILURE(ExpectRun(meta, expected.meta, found, "metadata"));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectRun(codes, expected.codes, found, "codes"));
  if (std::any_of(found.begin(), found.end(), [](uint32_t f) { return f != 0; })) return;
  memory.rows = target.view();
  status = call.decode(memory);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_NO_FATAL_FAILURE(Synchronize());
  std::vector<uint8_t> decoded = target.Download(), wanted = expected.Decode();
  for (uint64_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(int{decoded[i]}, int{wanted[i]}) << "value " << i / value_bytes << " byte " << i % value_bytes;
  }
}

}  // namespace firn::kernels
