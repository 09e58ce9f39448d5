// Requests as bytes of the wire: what the daemon checks before it believes them, and what the client makes of answers.
#include "base/check.h"
#include "client/cpp/transport/wire.h"
#include "daemon/config/config.h"
#include "daemon/core/convert.h"
#include "daemon/core/service_core.h"
#include "daemon/payload/payload_sink.h"
#include "daemon/wire/put_frame.h"
#include "firn/v1/kv.pb.h"
#include "tests/fuzz/fuzz_target.h"

namespace firn::fuzz {
namespace {

constexpr uint64_t kPayloadBytesMax = 1 << 20;

template <typename Message>
bool ParseAs(ByteSpan bytes, Message* message) {
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

Bytes BytesOfMessage(const google::protobuf::MessageLite& message) {
  Bytes bytes(message.ByteSizeLong());
  FIRN_CHECK(message.SerializeToArray(bytes.data(), static_cast<int>(bytes.size())));
  return bytes;
}

// Each with its length in 16 bits before it; the last one ends where the input does.
std::vector<ByteSpan> PiecesOf(ByteSpan input) {
  std::vector<ByteSpan> pieces;
  while (input.size() > 2) {
    size_t bytes = std::min<size_t>(LoadLe<uint16_t>(input.data()), input.size() - 2);
    pieces.push_back(input.subspan(2, bytes));
    input = input.subspan(2 + bytes);
  }
  return pieces;
}

Bytes JoinPieces(const std::vector<Bytes>& pieces) {
  ByteWriter writer;
  for (const Bytes& piece : pieces) {
    writer.Write(static_cast<uint16_t>(piece.size()));
    writer.WriteBytes(piece);
  }
  return writer.Take();
}

v1::NamespaceFacts SomeFacts(v1::DType dtype) {
  v1::NamespaceFacts facts;
  facts.set_model_id("m");
  facts.set_dtype(dtype);
  facts.set_layer_last(2);
  facts.set_kv_heads(1);
  facts.set_k_width(8);
  facts.set_v_width(4);
  facts.set_block_tokens(4);
  return facts;
}

// What is taken is kept, and comes back, as it was.
void RunNamespaceRequest(ByteSpan input) {
  v1::RegisterNamespaceRequest request;
  if (!ParseAs(input, &request)) return;
  auto facts = ToFacts(request.facts(), "tenant");
  auto plan = ToPlan(request.plan());
  if (!facts.ok() || !plan.ok() || !ValidatePlan(*facts, *plan).ok()) return;
  auto kept = ParseNamespace(SerializeNamespace(*facts, *plan));
  FIRN_CHECK(kept.ok() && kept->first == *facts && kept->second == *plan);
  v1::RegisterNamespaceRequest shown;
  FromFacts(*facts, shown.mutable_facts());
  FromPlan(*plan, shown.mutable_plan());
  auto facts_again = ToFacts(shown.facts(), "tenant");
  auto plan_again = ToPlan(shown.plan());
  FIRN_CHECK(facts_again.ok() && *facts_again == *facts && plan_again.ok() && *plan_again == *plan);
  FIRN_CHECK(PlanPayload(*facts, facts->block_tokens, std::nullopt, 0).ok());
}

std::vector<Bytes> NamespaceSeeds() {
  v1::RegisterNamespaceRequest request;
  *request.mutable_facts() = SomeFacts(v1::DTYPE_BF16);
  request.mutable_facts()->mutable_rope()->set_theta(10000);
  (*request.mutable_facts()->mutable_rope()->mutable_scaling_params())["factor"] = 8;
  std::vector<Bytes> seeds = {BytesOfMessage(request)};
  v1::PrecisionPlan* plan = request.mutable_plan();
  plan->set_key_method(v1::KEY_METHOD_ROTATED);
  plan->set_ladder(v1::LADDER_TRELLIS);
  plan->set_important_fraction(0.25f);
  plan->mutable_floor()->set_k(v1::PRECISION_CLASS_INT4);
  (*plan->mutable_tier_target())["warm"].set_v(v1::PRECISION_CLASS_INT8);
  v1::TierRule* rule = plan->add_rules();
  rule->set_part(v1::PART_V);
  rule->mutable_coding()->set_codec(v1::CODEC_NUQ_TOKEN);
  rule->mutable_coding()->set_bits(3);
  rule->mutable_coding()->set_outliers_per_mille(10);
  rule->mutable_coding()->set_artifact(std::string(32, 'a'));
  rule = plan->add_rules();
  rule->set_tier("cold");
  for (auto c : {v1::PRECISION_CLASS_INT4, v1::PRECISION_CLASS_INT2}) rule->add_heads(c);
  seeds.push_back(BytesOfMessage(request));
  return seeds;
}

// A put's payload as it arrives, into runs of its size.
class Filling {
 public:
  explicit Filling(PayloadPlan plan) : runs_(RunsOf(plan)), sink_(std::move(plan), runs_) {}

  // False: it is over.
  bool Write(uint64_t offset, const PutFrame& frame) {
    if (!sink_.Write(offset, frame.payload).ok()) return false;
    if (!sink_.complete()) return true;
    FIRN_CHECK(sink_.Finish().ok());
    return false;
  }

 private:
  MutableRuns RunsOf(const PayloadPlan& plan) {
    constexpr RunKind kKinds[] = {RunKind::kWhole, RunKind::kWhole, RunKind::kMeta, RunKind::kMeta};
    MutableRuns runs;
    for (size_t i = 0; i < kPayloadParts; ++i) {
      memory_[i].resize(plan.part_bytes[i]);
      runs[RunIndex(kKinds[i], i % 2 == 0 ? Part::kK : Part::kV)].Append(memory_[i]);
    }
    return runs;
  }

  std::array<Bytes, kPayloadParts> memory_;
  MutableRuns runs_;
  PayloadSink sink_;
};

// The facts of a namespace, then messages of a Put stream.
void RunPutStream(ByteSpan input) {
  std::vector<ByteSpan> pieces = PiecesOf(input);
  v1::NamespaceFacts wire_facts;
  if (pieces.empty() || !ParseAs(pieces[0], &wire_facts)) return;
  auto facts = ToFacts(wire_facts, "tenant");
  if (!facts.ok()) return;
  const NamespaceRef ns{.id = 1, .facts = *facts, .fingerprint = {}, .model_fingerprint = {}};
  std::optional<Filling> filling;
  for (size_t i = 1; i < pieces.size(); ++i) {
    auto frame = ParsePutFrame(std::span<const ByteSpan>(&pieces[i], 1));
    v1::PutRequest control;
    if (!frame.ok() || !control.ParseFromString(frame->control)) return;
    if (control.has_block()) {
      filling.reset();
      auto order = CheckPut(control.block(), ns, 0, LimitSettings{});
      if (!order.ok()) continue;
      FIRN_CHECK(order->plan.TotalBytes() == control.block().payload_bytes());
      if (order->plan.TotalBytes() + order->plan.StagingBytes() <= kPayloadBytesMax) filling.emplace(order->plan);
    }
    if (filling.has_value() && !filling->Write(control.offset(), *frame)) filling.reset();
  }
}

std::vector<Bytes> PutSeeds() {
  std::vector<Bytes> seeds;
  for (v1::DType dtype : {v1::DTYPE_FP16, v1::DTYPE_FP8_E4M3}) {
    const uint64_t values = 2 * 4 * (8 + 4), bytes = dtype == v1::DTYPE_FP16 ? values * 2 : values + 16;
    v1::PutRequest request;
    v1::PutBlock* block = request.mutable_block();
    block->mutable_ref()->mutable_key()->set_digest(std::string(32, 'k'));
    block->mutable_parent()->set_opaque("parent");
    block->set_tokens(4);
    block->set_payload_bytes(bytes);
    for (float importance : {0.5f, 0.25f, 1.0f, 0.0f}) block->add_token_importance(importance);
    request.set_payload(std::string(bytes / 2, 'p'));
    v1::PutRequest rest;
    rest.set_offset(bytes / 2);
    rest.set_payload(std::string(bytes - bytes / 2, 'q'));
    seeds.push_back(JoinPieces({BytesOfMessage(SomeFacts(dtype)), BytesOfMessage(request), BytesOfMessage(rest)}));
    // The same in a layout of tokens outside heads, K before V.
    if (dtype != v1::DTYPE_FP16) continue;
    for (auto [part, offset, width] : {std::tuple{block->mutable_layout()->mutable_k(), 0, 8},
                                       std::tuple{block->mutable_layout()->mutable_v(), 64, 4}}) {
      part->set_offset(static_cast<uint64_t>(offset));
      part->set_layer_stride(static_cast<uint64_t>(4 * width));
      part->set_head_stride(static_cast<uint64_t>(width));
      part->set_token_stride(static_cast<uint64_t>(width));
    }
    block->mutable_layout()->set_payload_bytes(bytes);
    seeds.push_back(JoinPieces({BytesOfMessage(SomeFacts(dtype)), BytesOfMessage(request), BytesOfMessage(rest)}));
  }
  return seeds;
}

// The first byte says where the message is cut in two.
void RunPutFrame(ByteSpan input) {
  if (input.empty()) return;
  size_t first = std::min<size_t>(input[0], input.size() - 1);
  ByteSpan slices[] = {input.subspan(1, first), input.subspan(1 + first)};
  auto frame = ParsePutFrame(slices);
  if (!frame.ok()) return;
  std::string payload;
  for (ByteSpan piece : frame->payload) payload += AsText(piece);
  FIRN_CHECK(payload.size() == frame->payload_bytes);
  FIRN_CHECK(frame->control.size() <= kControlBytesMax);
  v1::PutRequest control, whole;
  if (!control.ParseFromString(frame->control)) return;
  // What is taken apart is what protobuf reads.
  FIRN_CHECK(ParseAs(input.subspan(1), &whole) && whole.payload() == payload);
  whole.clear_payload();
  FIRN_CHECK(whole.SerializeAsString() == control.SerializeAsString());
}

void RunGetFrame(ByteSpan input) {
  if (input.empty()) return;
  size_t first = std::min<size_t>(input[0], input.size() - 1);
  grpc::Slice slices[] = {grpc::Slice(input.data() + 1, first),
                          grpc::Slice(input.data() + 1 + first, input.size() - 1 - first)};
  firnkv::GetFrame frame;
  if (!firnkv::ParseGet(grpc::ByteBuffer(slices, 2), &frame).ok()) return;
  std::string payload;
  for (ByteSpan piece : frame.payload) payload += AsText(piece);
  v1::GetResponse whole;
  FIRN_CHECK(payload.size() == frame.payload_bytes);
  FIRN_CHECK(ParseAs(input.subspan(1), &whole) && whole.payload() == payload);
  whole.clear_payload();
  FIRN_CHECK(whole.SerializeAsString() == frame.head.SerializeAsString());
}

std::vector<Bytes> GetSeeds() {
  v1::GetResponse response;
  response.mutable_found()->set_tokens(4);
  response.set_offset(8);
  response.set_payload("payload");
  Bytes bytes = BytesOfMessage(response);
  bytes.insert(bytes.begin(), 5);
  return {bytes};
}

}  // namespace

std::vector<Target> RequestTargets() {
  return {{"namespace_request", RunNamespaceRequest, NamespaceSeeds(), nullptr},
          {"put_stream", RunPutStream, PutSeeds(), nullptr},
          {"put_frame", RunPutFrame, {{3, 0x0A, 2, 1, 1, 0x7A, 4, 9, 9, 9, 9}, {200, 0x7A, 0}}, nullptr},
          {"get_frame", RunGetFrame, GetSeeds(), nullptr}};
}

}  // namespace firn::fuzz
