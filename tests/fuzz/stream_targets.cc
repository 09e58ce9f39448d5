// Whole streams of bytes: a segment's file as recovery and reclaiming read it, and what a GPU child's socket brings.
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mend_segment.h"
#include "tiers/cold/device/memory_device.h"
#include "tiers/cold/log/segment_reader.h"
#include "tiers/hot/protocol/channel.h"

namespace firn::fuzz {
namespace {

constexpr uint64_t kSalt = 0x1234'5678'9ABC'DEF0;
constexpr uint32_t kSegment = 7;
constexpr size_t kFileBytesMax = 1 << 18, kSocketBytesMax = 1 << 16;

void CheckExtents(const SegmentContents& contents, uint64_t file_bytes, SegmentReader* reader) {
  for (const ExtentHeader& extent : contents.extents) {
    FIRN_CHECK(extent.place.offset >= kSegmentHeaderBytes && extent.place.offset <= file_bytes);
    FIRN_CHECK(extent.extent_bytes() <= file_bytes - extent.place.offset);
    auto payload = reader->ReadPayload(extent);
    if (!payload.ok()) continue;
    FIRN_CHECK(payload->size() == extent.payload_bytes);
    ParseFact(*payload).IgnoreError();
    ParseTombstones(*payload).IgnoreError();
  }
}

void RunSegment(ByteSpan input) {
  if (input.size() > kFileBytesMax) return;
  MemoryDevice device(kFileBytesMax);
  const uint64_t bytes = std::max(AlignUp(input.size(), kIoAlignment), kIoAlignment);
  auto file = device.Create("segment", bytes);
  FIRN_CHECK(file.ok());
  device.Poke("segment", 0, input);
  SegmentReader reader(&device, *file);
  auto header = reader.ReadHeader();
  if (!header.ok()) return;
  auto scanned = reader.Scan(header->id, header->salt);
  FIRN_CHECK(scanned.ok());
  CheckExtents(*scanned, bytes, &reader);
  auto sealed = reader.ReadFooter(header->id, header->salt);
  if (sealed.ok()) CheckExtents(*sealed, bytes, &reader);
}

void MendSegment(Bytes* bytes) {
  MutableByteSpan file(*bytes);
  if (file.size() < kSegmentHeaderBytes + kTrailerBytes) return;
  const uint64_t salt = MendSegmentHeader(file);
  for (size_t at = kSegmentHeaderBytes; at < file.size(); at += kExtentAlignment) {
    MendExtent(file.subspan(at), salt);
  }
  uint64_t footer_at = FooterPlace(file);
  if (footer_at <= file.size() - kTrailerBytes) MendFooter(file.subspan(footer_at), salt);
}

struct SomeExtent {
  ExtentHeader header;
  Bytes payload;
};

// Extents that fit behind each other from `at` on.
Bytes SegmentOf(std::vector<SomeExtent> extents, bool sealed) {
  Bytes file = SerializeSegmentHeader({kSegment, Stream::kFacts, kSalt, 1 << 16});
  Bytes entries;
  for (SomeExtent& extent : extents) {
    file.resize(AlignUp(file.size(), kExtentAlignment));
    extent.header.place = {kSegment, file.size()};
    extent.header.payload_bytes = extent.payload.size();
    Bytes header = SerializeExtentHeader(extent.header, kSalt);
    entries.insert(entries.end(), header.begin(), header.end());
    file.insert(file.end(), header.begin(), header.end());
    file.insert(file.end(), extent.payload.begin(), extent.payload.end());
  }
  file.resize(AlignUp(file.size(), kIoAlignment));
  if (sealed) {
    Bytes footer = SerializeFooter(kSegment, kSalt, file.size(), entries, static_cast<uint32_t>(extents.size()));
    file.insert(file.end(), footer.begin(), footer.end());
  } else {
    file.resize(file.size() + kIoAlignment);
  }
  MendSegment(&file);  // The payloads' checksums.
  return file;
}

std::vector<Bytes> SegmentSeeds() {
  SomeExtent record;
  record.header.stream = Stream::kFacts;
  record.header.sequence = 77;
  record.header.shape.runs = RunMask::Both(RunKind::kP2);
  record.header.shape.runs_at = 256;
  record.header.note.written = record.header.shape.runs;
  for (uint32_t run = 0; run < kRunIds; ++run) {
    if (record.header.note.written.Has(run)) record.header.note.run_bytes[run] = 64;
  }
  record.payload.resize(256 + 128 - record.header.header_bytes(), 0x5A);
  SomeExtent fact, tombstones;
  fact.header.kind = ExtentKind::kFact;
  fact.header.stream = Stream::kFacts;
  fact.header.sequence = 5;
  fact.payload = SerializeFact({"namespace", "name", {1, 2, 3}});
  tombstones.header.kind = ExtentKind::kTombstones;
  tombstones.header.stream = Stream::kFacts;
  tombstones.header.sequence = 6;
  tombstones.payload = SerializeTombstones({{77, {1, 2, 0, 0}}});
  return {SegmentOf({record, fact, tombstones}, true), SegmentOf({fact, record}, false), SegmentOf({}, true)};
}

// With one descriptor, that of the socket itself, so that messages which come with one are taken too.
void Send(int socket, ByteSpan bytes) {
  iovec piece{const_cast<uint8_t*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &socket, sizeof(int));
  FIRN_CHECK(::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
}

void RunGpuChannel(ByteSpan input) {
  if (input.empty() || input.size() > kSocketBytesMax) return;
  auto sockets = gpu::SocketPair();
  FIRN_CHECK(sockets.ok());
  Send(sockets->first.get(), input);
  gpu::Channel channel(std::move(sockets->second));
  auto open = channel.Receive();
  FIRN_CHECK(open.ok());
  for (;;) {
    auto received = channel.Next();
    if (!received.ok() || !received->has_value()) return;
    FIRN_CHECK(((*received)->fd.get() >= 0) == std::holds_alternative<gpu::MapRegion>((*received)->message));
  }
}

Bytes FrameOf(const gpu::Message& message) {
  Bytes payload = gpu::SerializeMessage(message);
  ByteWriter frame;
  frame.Write(gpu::kFrameMagic);
  frame.Write(static_cast<uint16_t>(gpu::TypeOf(message)));
  frame.Write(static_cast<uint16_t>(std::holds_alternative<gpu::MapRegion>(message)));
  frame.Write(static_cast<uint32_t>(payload.size()));
  frame.Write<uint32_t>(0);
  frame.WriteBytes(payload);
  return frame.Take();
}

std::vector<Bytes> ChannelSeeds() {
  std::vector<Bytes> seeds = {{}};
  for (const gpu::Message& message : std::vector<gpu::Message>{
           gpu::Hello{}, gpu::Ready{.device = "a GPU"}, gpu::MapRegion{1, 4096, 4096}, gpu::RegionUsable{1, 4096},
           gpu::Job{1, gpu::Lane::kServe, gpu::CopyJob{{{0, 0, 8}}, {{1, 0, 8}}}},
           gpu::JobDone{1, absl::InternalError("x"), {1}}, gpu::Fatal{700, "x"}}) {
    seeds.push_back(FrameOf(message));
    seeds[0].insert(seeds[0].end(), seeds.back().begin(), seeds.back().end());
  }
  return seeds;
}

}  // namespace

std::vector<Target> StreamTargets() {
  return {{"segment", RunSegment, SegmentSeeds(), MendSegment},
          {"gpu_channel", RunGpuChannel, ChannelSeeds(), nullptr}};
}

}  // namespace firn::fuzz
