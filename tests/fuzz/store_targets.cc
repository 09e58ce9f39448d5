// What the store and the cold tier read back: namespaces, segments, extents, rows of the index.
#include <algorithm>

#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mend_segment.h"
#include "tiers/cold/index/index_rows.h"
#include "tiers/cold/log/extent_format.h"
#include "tiers/hot/protocol/messages.h"
#include "tiers/store/namespace.h"

namespace firn::fuzz {
namespace {

constexpr uint64_t kSalt = 0x1234'5678'9ABC'DEF0;

NamespaceFacts SomeFacts() {
  NamespaceFacts facts;
  facts.tenant = "tenant";
  facts.model_id = "model";
  facts.layer_last = 4;
  facts.kv_heads = 2;
  facts.k_width = 64;
  facts.v_width = 32;
  facts.block_tokens = 16;
  return facts;
}

PrecisionPlan SomePlan() {
  PrecisionPlan plan;
  plan.tier_target["warm"] = {PrecisionClass::k8Bit, PrecisionClass::k4Bit};
  TierRule rule;
  rule.tier = "cold";
  rule.part = Part::kK;
  rule.coding.codec = CodecId::kIntToken;
  rule.coding.bits = 4;
  rule.coding.group = 64;
  plan.rules.push_back(rule);
  plan.recent_tokens = 128;
  return plan;
}

ExtentHeader SomeExtent() {
  ExtentHeader extent;
  extent.place = {3, 8192};
  extent.sequence = 77;
  extent.payload_bytes = 4096;
  extent.shape.runs = RunMask::Both(RunKind::kMeta) | RunMask::Both(RunKind::kP2);
  extent.shape.runs_at = 512;
  extent.has_record_header = true;
  extent.siblings = {{4, 4096}};
  extent.note.identity.key.bytes.fill(9);
  extent.note.tokens = 16;
  extent.note.header_bytes = 448;
  extent.note.written = extent.shape.runs;
  for (uint32_t run = 0; run < kRunIds; ++run) {
    if (extent.note.written.Has(run)) extent.note.run_bytes[run] = 512;
  }
  return extent;
}

void RunNamespace(ByteSpan input) {
  auto parsed = ParseNamespace(input);
  if (parsed.ok()) FIRN_CHECK(ValidateFacts(parsed->first).ok());
}

void RunExtent(ByteSpan input) {
  auto header = ParseExtentHeader(input, kSalt);
  if (!header.ok()) return;
  FIRN_CHECK(header->header_bytes() <= kExtentHeaderBytesMax);
  FIRN_CHECK(std::ranges::equal(SerializeExtentHeader(*header, kSalt), input.first(header->header_bytes())));
}

// A trailer in the last 4 KiB, its footer before it.
void RunFooter(ByteSpan input) {
  if (input.size() < kTrailerBytes) return;
  auto trailer = ParseTrailer(input.last(kTrailerBytes), kSalt);
  if (!trailer.ok()) return;
  ByteSpan entries = input.first(std::min<uint64_t>(trailer->footer_bytes, input.size() - kTrailerBytes));
  static_cast<void>(ParseFooter(entries, *trailer, kSalt));
}

// The first byte says which parser, the second how long the key is.
void RunRow(ByteSpan input) {
  if (input.size() < 2) return;
  size_t key_bytes = std::min<size_t>(input[1], input.size() - 2);
  std::string key(AsText(input.subspan(2, key_bytes))), value(AsText(input.subspan(2 + key_bytes)));
  switch (input[0] % 7) {
    case 0: {
      auto row = ParseRecordRow(key, value);
      if (row.ok()) FIRN_CHECK(RecordValue(*row) == value);
      return;
    }
    case 1:
      return static_cast<void>(ParseRecordName(key, value));
    case 2:
      return static_cast<void>(ParseFactRow(value));
    case 3:
      return static_cast<void>(ParseNamespaceRow(value));
    case 4:
      return static_cast<void>(ParseNumber(value));
    case 5:
      return static_cast<void>(ParseSegmentKey(key));
    default:
      return static_cast<void>(ParseTombstoneKey(key));
  }
}

Bytes RowInput(uint8_t parser, const std::string& key, const std::string& value) {
  Bytes bytes = {parser, static_cast<uint8_t>(key.size())};
  bytes.insert(bytes.end(), key.begin(), key.end());
  bytes.insert(bytes.end(), value.begin(), value.end());
  return bytes;
}

std::vector<Bytes> RowSeeds() {
  RecordRow row;
  row.sequence = 77;
  row.note = SomeExtent().note;
  FactRow fact{.fact = {"namespace", "name", {1, 2, 3}}, .sequence = 5, .place = {1, 4096}};
  std::vector<Bytes> seeds;
  for (uint8_t parser : {0, 1}) seeds.push_back(RowInput(parser, RecordKey(row.sequence), RecordValue(row)));
  seeds.push_back(RowInput(2, FactKey("namespace", "name"), FactValue(fact)));
  seeds.push_back(RowInput(3, NamespaceKey(9), NamespaceValue({9, {}, 4})));
  seeds.push_back(RowInput(4, NumberKey("next"), NumberValue(12)));
  seeds.push_back(RowInput(5, SegmentKey(7), ""));
  seeds.push_back(RowInput(6, TombstoneKey(7, 12), ""));
  return seeds;
}

// The first byte is the message's type. What parses is written as the same bytes, and no job names what is not there.
void RunGpuMessage(ByteSpan input) {
  if (input.empty()) return;
  auto type = static_cast<gpu::MessageType>(input[0]);
  auto message = gpu::ParseMessage(type, input.subspan(1));
  if (!message.ok()) return;
  FIRN_CHECK(gpu::TypeOf(*message) == type);
  FIRN_CHECK(std::ranges::equal(gpu::SerializeMessage(*message), input.subspan(1)));
  const auto* job = std::get_if<gpu::Job>(&*message);
  if (job == nullptr) return;
  gpu::SpaceBytes spaces{};
  spaces[0] = 1 << 20, spaces[1] = 4096;
  static_cast<void>(gpu::CheckJob(*job, spaces));
  if (const auto* import = std::get_if<gpu::ImportJob>(&job->work)) {
    std::vector<uint64_t> ends;
    static_cast<void>(CheckDeviceRows(import->from, SomeFacts().Shape(16), 2, &ends));
  }
}

std::vector<Bytes> GpuSeeds() {
  DeviceRows rows;
  rows.memory = {DeviceHandle{1}, DeviceHandle{2}};
  rows.event = DeviceHandle{3};
  for (DevicePart& part : rows.parts) {
    part = {{{0, 0}, {1, 64}, {0, 128}, {1, 192}}, {5}, 16, 4096, 256, 128};
  }
  gpu::RecodeJob recode;
  recode.source_header = recode.target_header = {1, 2, 3};
  recode.source[10] = recode.target[4] = {{0, 4096, 64}};
  gpu::ImportJob import{{1, 2}, rows, {}};
  import.target[10] = {{ 0, 0, 4096 }};
  gpu::ExportJob out{{3}, {}, rows};
  out.source[0] = {{1, 8, 8}, {0, 16, 8}};
  std::vector<gpu::Message> messages = {gpu::Hello{},
                                        gpu::Ready{.device = "a GPU"},
                                        gpu::MapRegion{1, 4096, 4096},
                                        gpu::RegionUsable{1, 4096},
                                        gpu::ArtifactData{{1, 2, 3}},
                                        gpu::Job{1, gpu::Lane::kServe, gpu::CopyJob{{{0, 0, 8}}, {{1, 0, 8}}}},
                                        gpu::Job{2, gpu::Lane::kDemote, recode},
                                        gpu::Job{3, gpu::Lane::kImport, import},
                                        gpu::Job{4, gpu::Lane::kServe, out},
                                        gpu::JobDone{1, absl::InternalError("x"), {1}},
                                        gpu::Fatal{700, "x"}};
  std::vector<Bytes> seeds;
  for (const gpu::Message& message : messages) {
    Bytes bytes = gpu::SerializeMessage(message);
    bytes.insert(bytes.begin(), static_cast<uint8_t>(gpu::TypeOf(message)));
    seeds.push_back(std::move(bytes));
  }
  return seeds;
}

}  // namespace

std::vector<Target> StoreTargets() {
  std::vector<Target> targets;
  targets.push_back({"gpu_message", RunGpuMessage, GpuSeeds(), nullptr});
  targets.push_back({"namespace",
                     RunNamespace,
                     {SerializeNamespace(SomeFacts(), {}), SerializeNamespace(SomeFacts(), SomePlan())},
                     nullptr});
  targets.push_back({"segment_header",
                     [](ByteSpan input) {
                       if (input.size() >= kSegmentHeaderBytes) static_cast<void>(ParseSegmentHeader(input));
                     },
                     {SerializeSegmentHeader({7, Stream::kP4, kSalt, 1 << 20})},
                     [](Bytes* bytes) {
                       if (bytes->size() >= kSegmentHeaderBytes) MendSegmentHeader(*bytes);
                     }});
  targets.push_back({"extent", RunExtent, {SerializeExtentHeader(SomeExtent(), kSalt)}, [](Bytes* bytes) {
                       MendExtentHeader(*bytes, kSalt);
                     }});
  Bytes entries = SerializeExtentHeader(SomeExtent(), kSalt);
  Bytes footer = SerializeFooter(3, kSalt, 1 << 16, entries, 1);
  targets.push_back({"footer", RunFooter, {footer}, [](Bytes* bytes) { MendFooter(*bytes, kSalt); }});
  targets.push_back({"fact",
                     [](ByteSpan input) { static_cast<void>(ParseFact(input)); },
                     {SerializeFact({"namespace", "name", {1, 2, 3}}), SerializeFact({"artifact", "", {}})},
                     nullptr});
  targets.push_back({"tombstones",
                     [](ByteSpan input) { static_cast<void>(ParseTombstones(input)); },
                     {SerializeTombstones({{77, {1, 2, 0, 0}}, {78, {3, 0, 0, 0}}})},
                     nullptr});
  targets.push_back({"index_row", RunRow, RowSeeds(), nullptr});
  return targets;
}

}  // namespace firn::fuzz
