// Test support: batches of blocks on the host and on the device, and what the reference makes of them.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "codecs/codec_table.h"
#include "codecs/tile_test_util.h"
#include "kernels/device_memory.h"
#include "kernels/nested.h"

namespace firn::kernels {

// Whether a GPU is there; where none is, the test says that it did not run.
inline bool HaveGpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}
#define FIRN_NEED_GPU() \
  if (!HaveGpu()) GTEST_SKIP() << "NOT RUN: no GPU here"

inline void Synchronize() {
  cudaError_t error = cudaDeviceSynchronize();
  ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
}

struct BatchSize {
  uint32_t blocks = 1, layers = 1, heads = 1, tokens = 1, width = 1;
  uint32_t rows() const { return blocks * layers * heads * tokens; }
  uint64_t values() const { return uint64_t{rows()} * width; }
  uint32_t heads_in_all() const { return blocks * layers * heads; }
};

// How a test arranges rows in device memory.
enum class Arrangement {
  kCanonical,    // [block][layer][head][token][channel]
  kTokensFirst,  // [block][layer][token][head][channel], sinks in front of the tokens.
  kPaged,        // A pool of pages in random order for each layer, each with an address of its own.
  kTransposed,   // [block][layer][head][channel][token]
  kMisaligned,   // Canonical, from an odd value on.
};
inline constexpr int kArrangements = 5;

// Rows of values of 1, 2 or 4 bytes on the device, which start out as what the reference has or as 0xEE.
class DeviceRows {
 public:
  DeviceRows(const BatchSize& size, Arrangement arrangement, uint64_t seed, uint32_t value_bytes = 2)
      : size_(size), arrangement_(arrangement), value_bytes_(value_bytes) {
    Arrange(seed);
    host_.assign(total_values_ * value_bytes_, 0xEE);
  }
  // `canonical` has the batch's values.
  void Upload(const std::vector<uint8_t>& canonical) {
    for (uint64_t i = 0; i < size_.values(); ++i) {
      std::memcpy(&host_[Place(i) * value_bytes_], &canonical[i * value_bytes_], value_bytes_);
    }
    Send();
  }
  void Send() {
    memory_ = DeviceMemory(host_);
    view_.base = memory_.as<uint8_t>() + base_values_ * value_bytes_;
    if (layer_values_.empty()) return;
    std::vector<void*> bases;
    for (uint64_t at : layer_values_) bases.push_back(memory_.as<uint8_t>() + at * value_bytes_);
    layer_bases_ = DeviceMemory(bases);
    view_.layer_bases = layer_bases_.as<void*>();
    view_.base = nullptr;
  }
  const RowsView& view() const { return view_; }
  // The values in canonical order; every byte that belongs to none must be as it was.
  std::vector<uint8_t> Download() const {
    std::vector<uint8_t> bytes = memory_.Read(), canonical(size_.values() * value_bytes_);
    std::vector<bool> owned(total_values_);
    for (uint64_t i = 0; i < size_.values(); ++i) {
      std::memcpy(&canonical[i * value_bytes_], &bytes[Place(i) * value_bytes_], value_bytes_);
      owned[Place(i)] = true;
    }
    for (uint64_t i = 0; i < total_values_; ++i) {
      if (owned[i]) continue;
      EXPECT_EQ(std::memcmp(&bytes[i * value_bytes_], &host_[i * value_bytes_], value_bytes_), 0)
          << "a value between rows was written";
    }
    return canonical;
  }

 private:
  void Arrange(uint64_t seed) {
    auto [blocks, layers, heads, tokens, width] = size_;
    uint32_t row_values = width;
    view_.page_tokens = tokens;
    view_.head_stride = int64_t{tokens} * width;
    view_.token_stride = width;
    view_.layer_stride = view_.head_stride * heads;
    view_.page_stride = view_.layer_stride * layers;
    switch (arrangement_) {
      case Arrangement::kCanonical:
        break;
      case Arrangement::kMisaligned:
        base_values_ = 1;
        break;
      case Arrangement::kTransposed:
        view_.token_stride = 1, view_.channel_stride = tokens;
        break;
      case Arrangement::kTokensFirst:
        view_.first_token = 3;
        view_.page_tokens = tokens + 3;
        view_.head_stride = width, view_.token_stride = int64_t{heads} * width;
        view_.layer_stride = view_.token_stride * (tokens + 3);
        view_.page_stride = view_.layer_stride * layers;
        break;
      case Arrangement::kPaged: {
        view_.page_tokens = 16;
        view_.pages_per_block = (tokens + 15) / 16;
        view_.head_stride = row_values, view_.token_stride = int64_t{heads} * row_values;
        view_.page_stride = view_.token_stride * 16;
        uint32_t pages = blocks * view_.pages_per_block + 5;
        pages_.resize(pages);
        std::iota(pages_.begin(), pages_.end(), 0u);
        std::mt19937_64 rng(seed);
        std::shuffle(pages_.begin(), pages_.end(), rng);
        device_pages_ = DeviceMemory(pages_);
        view_.pages = device_pages_.as<uint32_t>();
        for (uint32_t l = 0; l < layers; ++l)
          layer_values_.push_back(uint64_t{layers - 1 - l} * pages * view_.page_stride);
        total_values_ = uint64_t{layers} * pages * view_.page_stride;
        return;
      }
    }
    total_values_ = base_values_ + uint64_t{blocks} * view_.page_stride + 8;
  }
  // Where the value of a canonical index lies, in values.
  uint64_t Place(uint64_t index) const {
    uint64_t channel = index % size_.width, row = index / size_.width;
    uint64_t token = row % size_.tokens + view_.first_token, head = row / size_.tokens % size_.heads;
    uint64_t layer = row / size_.tokens / size_.heads % size_.layers;
    uint64_t block = row / size_.tokens / size_.heads / size_.layers;
    uint64_t page = block * view_.pages_per_block + token / view_.page_tokens;
    if (!pages_.empty()) page = pages_[page];
    uint64_t base = layer_values_.empty() ? base_values_ + layer * view_.layer_stride : layer_values_[layer];
    return base + page * view_.page_stride + token % view_.page_tokens * view_.token_stride + head * view_.head_stride +
           channel * view_.channel_stride;
  }

  BatchSize size_;
  Arrangement arrangement_;
  uint32_t value_bytes_;
  RowsView view_;
  uint64_t base_values_ = 0, total_values_ = 0;
  std::vector<uint64_t> layer_values_;
  std::vector<uint32_t> pages_;
  std::vector<uint8_t> host_;
  DeviceMemory memory_, device_pages_, layer_bases_;
};

// How a test keeps runs.
enum class RunPlace { kContiguous, kOwnAddress, kArenaPages, kSmallPages };
inline constexpr int kRunPlaces = 4;

// A coding of a batch, and how it lies.
struct CodedCase {
  BatchSize size;
  PartCoding coding;
  DType values = DType::kFp16;
  ValueKind kind = ValueKind::kNormal;
  Arrangement arrangement = Arrangement::kCanonical;
  RunPlace place = RunPlace::kContiguous;

  std::string Name() const {
    return fmt::format("{} blocks {} layers {} heads {} values {} kind {} arrangement {} place {}",
                       Describe(coding, size.width, size.tokens), size.blocks, size.layers, size.heads,
                       DTypeName(values), static_cast<int>(kind), static_cast<int>(arrangement),
                       static_cast<int>(place));
  }
};

// Calls `check` for `c` of each of these widths with each kind of values; ends at the first fatal failure.
inline void ForEveryKindOfValue(CodedCase c, const std::vector<DType>& types, const std::vector<uint32_t>& widths,
                                const std::function<void(const CodedCase&)>& check) {
  for (DType values : types) {
    for (ValueKind kind : kValueKinds) {
      for (uint32_t width : widths) {
        c.values = values, c.kind = kind, c.size.width = width;
        check(c);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// The same, however rows and runs lie.
inline void ForEveryArrangement(CodedCase c, const std::vector<uint32_t>& widths,
                                const std::function<void(const CodedCase&)>& check) {
  for (int arrangement = 0; arrangement < kArrangements; ++arrangement) {
    for (int place = 0; place < kRunPlaces; ++place) {
      for (uint32_t width : widths) {
        c.arrangement = static_cast<Arrangement>(arrangement), c.place = static_cast<RunPlace>(place);
        c.size.width = width;
        check(c);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// One run of every block on the device.
class DeviceRun {
 public:
  DeviceRun() = default;
  DeviceRun(uint32_t blocks, uint64_t run_bytes, RunPlace place, uint64_t seed)
      : blocks_(blocks), run_bytes_(run_bytes), place_(place) {
    stride_ = (run_bytes + 15) / 16 * 16 + 16;
    if (Paged()) {
      view_.page_shift = place == RunPlace::kArenaPages ? 12 : 6;
      view_.pages_per_block = static_cast<uint32_t>((run_bytes + PageBytes() - 1) / PageBytes());
      pages_.resize(uint64_t{blocks} * view_.pages_per_block + 3);
      std::iota(pages_.begin(), pages_.end(), 0u);
      std::mt19937_64 rng(seed);
      std::shuffle(pages_.begin(), pages_.end(), rng);
      device_pages_ = DeviceMemory(pages_);
      memory_ = DeviceMemory(pages_.size() * PageBytes());
      view_.pages = device_pages_.as<uint32_t>();
    } else {
      memory_ = DeviceMemory(stride_ * blocks);
    }
    memory_.Fill(0xEE);
    view_.base = memory_.as<uint8_t>();
    view_.block_stride = place == RunPlace::kContiguous ? stride_ : 0;
    if (place != RunPlace::kOwnAddress) return;
    std::vector<uint8_t*> addresses;
    for (uint32_t b = 0; b < blocks; ++b) addresses.push_back(memory_.as<uint8_t>() + Place(b, 0));
    addresses_ = DeviceMemory(addresses);
    view_.block_bases = addresses_.as<uint8_t*>();
    view_.base = nullptr;
  }
  const RunView& view() const { return view_; }
  // [block][byte]; every byte that belongs to no run must be as it was.
  std::vector<uint8_t> Download() const {
    std::vector<uint8_t> bytes = memory_.Read(), runs(run_bytes_ * blocks_);
    std::vector<bool> owned(bytes.size());
    for (uint32_t b = 0; b < blocks_; ++b) {
      for (uint64_t i = 0; i < run_bytes_; ++i) {
        runs[b * run_bytes_ + i] = bytes[Place(b, i)];
        owned[Place(b, i)] = true;
      }
    }
    for (uint64_t i = 0; i < bytes.size(); ++i) {
      if (owned[i]) continue;
      EXPECT_EQ(bytes[i], 0xEE) << "byte " << i << " between runs was written";
    }
    return runs;
  }
  void Upload(const std::vector<uint8_t>& runs) {
    std::vector<uint8_t> bytes(memory_.bytes(), 0xEE);
    for (uint32_t b = 0; b < blocks_; ++b) {
      for (uint64_t i = 0; i < run_bytes_; ++i) bytes[Place(b, i)] = runs[b * run_bytes_ + i];
    }
    FIRN_CHECK(cudaMemcpy(memory_.as<uint8_t>(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice) == cudaSuccess);
  }

 private:
  bool Paged() const { return place_ == RunPlace::kArenaPages || place_ == RunPlace::kSmallPages; }
  uint64_t PageBytes() const { return uint64_t{1} << view_.page_shift; }
  uint64_t Place(uint32_t block, uint64_t offset) const {
    if (Paged()) {
      return pages_[block * view_.pages_per_block + offset / PageBytes()] * PageBytes() + offset % PageBytes();
    }
    return (place_ == RunPlace::kOwnAddress ? blocks_ - 1 - block : block) * stride_ + offset;
  }

  uint32_t blocks_ = 0;
  uint64_t run_bytes_ = 0, stride_ = 0;
  RunPlace place_ = RunPlace::kContiguous;
  RunView view_;
  std::vector<uint32_t> pages_;
  DeviceMemory memory_, device_pages_, addresses_;
};

// What a block does not fit at all needs no other metadata, and nobody says so for certain.
inline uint32_t SettledSurvey(uint32_t found) { return (found & kSurveyUnfit) != 0 ? kSurveyUnfit : found; }

// What the codec table's row makes of a batch: the runs of all blocks, [block][layer][head], by kind.
struct ReferenceBatch {
  std::array<std::vector<uint8_t>, kRunKinds> runs;
  std::vector<uint32_t> survey;  // By block.
};

// Channel arrays of every (layer, head), on the host and on the device.
struct BatchTransform {
  std::vector<TestTransform> heads;
  DeviceMemory mean, encode_scale, decode_scale;
  float uniform_scale = 1.0f;

  BatchTransform(const BatchSize& size, uint8_t flags) {
    std::vector<float> means, encodes, decodes;
    for (uint32_t h = 0; h < size.layers * size.heads; ++h) {
      heads.emplace_back(size.width, flags, 17 + h);
      const TestTransform& head = heads.back();
      uniform_scale = head.uniform_scale;
      if (head.mean.empty()) continue;
      means.insert(means.end(), head.mean.begin(), head.mean.begin() + size.width);
      encodes.insert(encodes.end(), head.encode_scale.begin(), head.encode_scale.begin() + size.width);
      decodes.insert(decodes.end(), head.decode_scale.begin(), head.decode_scale.begin() + size.width);
    }
    if (means.empty()) return;
    mean = DeviceMemory(means), encode_scale = DeviceMemory(encodes), decode_scale = DeviceMemory(decodes);
  }
  TransformView view() const {
    return {mean.as<float>(), encode_scale.as<float>(), decode_scale.as<float>(), uniform_scale};
  }
};

inline ReferenceBatch EncodeReferenceBatch(const CodecRow& row, const PartCoding& coding, const BatchSize& size,
                                           DType values, const std::vector<uint8_t>& canonical,
                                           const BatchTransform& transform, const ModelData& model = {}) {
  ReferenceBatch batch;
  batch.survey.assign(size.blocks, 0);
  for (uint32_t h = 0; h < size.heads_in_all(); ++h) {
    TileMemory memory(row, coding, values, size.width, size.tokens);
    Survey survey;
    EncodeTile tile;
    tile.coding = &coding;
    tile.width = size.width, tile.tokens = size.tokens;
    tile.in = tile.stored = values;
    tile.source = canonical.data() + uint64_t{h} * size.tokens * size.width * 2;
    tile.transform = transform.heads[h % (size.layers * size.heads)].view();
    tile.model = model;
    tile.survey = &survey;
    memory.Attach(&tile);
    row.encode_reference(tile);
    for (uint32_t kind = 0; kind < kRunKinds; ++kind) {
      auto& to = batch.runs[kind];
      to.insert(to.end(), memory.runs[kind].begin(), memory.runs[kind].end());
    }
    uint32_t& found = batch.survey[h / (size.layers * size.heads)];
    if (survey.non_finite || survey.out_of_range) found |= kSurveyUnfit;
    if (survey.needs_float) found |= kSurveyNeedsFloat;
  }
  for (uint32_t& found : batch.survey) found = SettledSurvey(found);
  return batch;
}

inline std::vector<uint8_t> DecodeReferenceBatch(const CodecRow& row, const PartCoding& coding, const BatchSize& size,
                                                 DType values, const ReferenceBatch& batch, PrecisionClass precision,
                                                 const BatchTransform& transform, const ModelData& model = {}) {
  std::vector<uint8_t> canonical(size.values() * 2);
  for (uint32_t h = 0; h < size.heads_in_all(); ++h) {
    DecodeTile tile;
    tile.coding = &coding;
    tile.width = size.width, tile.tokens = size.tokens;
    tile.stored = tile.out = values;
    tile.target = canonical.data() + uint64_t{h} * size.tokens * size.width * 2;
    tile.precision = precision;
    tile.transform = transform.heads[h % (size.layers * size.heads)].view();
    tile.model = model;
    for (uint32_t kind = 0; kind < kRunKinds; ++kind) {
      const auto& run = batch.runs[kind];
      uint64_t head_bytes = run.size() / size.heads_in_all();
      tile.runs[kind] = head_bytes == 0 ? nullptr : run.data() + h * head_bytes;
    }
    row.decode_reference(tile);
  }
  return canonical;
}

}  // namespace firn::kernels
