#include "tiers/hot/protocol/messages.h"

#include <algorithm>

#include "base/status.h"
#include "codecs/record.h"

namespace firn::gpu {
namespace {

constexpr uint32_t kArtifactBytesMax = 256u << 20;

void WriteText(const std::string& text, ByteWriter* out) {
  std::string_view kept = std::string_view(text).substr(0, kMessageTextMax);
  out->Write<uint32_t>(static_cast<uint32_t>(kept.size()));
  out->WriteBytes(AsBytes(kept));
}
void WriteBlob(const std::vector<uint8_t>& bytes, ByteWriter* out) {
  out->Write<uint32_t>(static_cast<uint32_t>(bytes.size()));
  out->WriteBytes(bytes);
}
void WritePlaces(const std::vector<Place>& places, ByteWriter* out) {
  out->Write<uint32_t>(static_cast<uint32_t>(places.size()));
  for (const Place& place : places) {
    out->Write(place.space);
    out->Write(place.offset);
    out->Write(place.bytes);
  }
}
constexpr size_t kPlaceBytes = 20;

// A reader with a place for what is wrong.
class Parser {
 public:
  explicit Parser(ByteSpan bytes) : reader_(bytes) {}
  template <typename T>
  T Read() {
    return reader_.Read<T>();
  }
  std::vector<uint8_t> Blob(uint32_t bytes_max, const char* what) {
    auto bytes = Read<uint32_t>();
    if (reader_.ok() && bytes > bytes_max) Fail(InvalidArgument("{} of {} bytes, at most {}", what, bytes, bytes_max));
    ByteSpan span = wrong_.ok() ? reader_.ReadBytes(bytes) : ByteSpan();
    return {span.begin(), span.end()};
  }
  std::string Text() {
    std::vector<uint8_t> bytes = Blob(kMessageTextMax, "a text");
    return std::string(AsText(bytes));
  }
  std::vector<Place> Places() {
    auto count = Read<uint32_t>();
    places_ += count;
    if (reader_.ok() && places_ > kPlacesMax)
      Fail(InvalidArgument("{} places in a job, at most {}", places_, kPlacesMax));
    if (!wrong_.ok() || reader_.remaining() / kPlaceBytes < count) {
      Fail(InvalidArgument("{} places in {} bytes", count, reader_.remaining()));
      return {};
    }
    std::vector<Place> places(count);
    for (Place& place : places) {
      place.space = Read<uint32_t>();
      place.offset = Read<uint64_t>();
      place.bytes = Read<uint64_t>();
    }
    return places;
  }
  // Of things that take `bytes_each` or more: never more than what is left could hold.
  uint32_t Count(size_t bytes_each, const char* what) {
    auto count = Read<uint32_t>();
    if (wrong_.ok() && reader_.ok() && reader_.remaining() / bytes_each >= count) return count;
    Fail(InvalidArgument("{} {} in {} bytes", count, what, reader_.remaining()));
    return 0;
  }
  DeviceHandle Handle() {
    DeviceHandle handle{};
    ByteSpan bytes = reader_.ReadBytes(handle.size());
    std::copy(bytes.begin(), bytes.end(), handle.begin());
    return handle;
  }
  DeviceRows Rows() {
    DeviceRows rows;
    rows.memory.resize(Count(kDeviceHandleBytes, "handles"));
    for (DeviceHandle& handle : rows.memory) handle = Handle();
    rows.event = Handle();
    for (DevicePart& part : rows.parts) {
      part.layers.resize(Count(12, "layers"));
      for (DeviceLayer& layer : part.layers) {
        layer.memory = Read<uint32_t>();
        layer.offset = Read<uint64_t>();
      }
      part.pages.resize(Count(4, "pages"));
      for (uint32_t& page : part.pages) page = Read<uint32_t>();
      part.page_tokens = Read<uint32_t>();
      part.page_stride = Read<uint64_t>();
      part.token_stride = Read<uint64_t>();
      part.head_stride = Read<uint64_t>();
    }
    return rows;
  }
  void Fail(absl::Status status) {
    if (wrong_.ok()) wrong_ = std::move(status);
  }
  template <typename T>
  absl::StatusOr<Message> End(T message) {
    FIRN_RETURN_IF_ERROR(wrong_);
    if (!reader_.ok()) return InvalidArgument("a message that ends early");
    if (reader_.remaining() > 0) return InvalidArgument("a message with {} bytes too many", reader_.remaining());
    return Message(std::move(message));
  }

 private:
  ByteReader reader_;
  uint64_t places_ = 0;
  absl::Status wrong_;
};

void Write(const Hello& m, ByteWriter* out) {
  out->Write(m.version);
  out->Write(m.device);
  out->Write(m.pool_bytes);
  out->Write(m.scratch_bytes);
}
void Write(const Ready& m, ByteWriter* out) {
  out->Write(m.version);
  out->Write(m.pool_bytes);
  out->Write(m.device_bytes);
  WriteText(m.device, out);
}
void Write(const MapRegion& m, ByteWriter* out) {
  out->Write(m.region);
  out->Write(m.bytes);
  out->Write(m.usable_bytes);
}
void Write(const RegionUsable& m, ByteWriter* out) {
  out->Write(m.region);
  out->Write(m.usable_bytes);
}
void Write(const ArtifactData& m, ByteWriter* out) { WriteBlob(m.serialized, out); }
void WriteWork(const CopyJob& job, ByteWriter* out) {
  WritePlaces(job.source, out);
  WritePlaces(job.target, out);
}
void WriteWork(const RecodeJob& job, ByteWriter* out) {
  WriteBlob(job.source_header, out);
  WriteBlob(job.target_header, out);
  for (const auto& places : job.source) WritePlaces(places, out);
  for (const auto& places : job.target) WritePlaces(places, out);
}
void WriteRows(const DeviceRows& rows, ByteWriter* out) {
  out->Write<uint32_t>(static_cast<uint32_t>(rows.memory.size()));
  for (const DeviceHandle& handle : rows.memory) out->WriteBytes(handle);
  out->WriteBytes(rows.event);
  for (const DevicePart& part : rows.parts) {
    out->Write<uint32_t>(static_cast<uint32_t>(part.layers.size()));
    for (const DeviceLayer& layer : part.layers) {
      out->Write(layer.memory);
      out->Write(layer.offset);
    }
    out->Write<uint32_t>(static_cast<uint32_t>(part.pages.size()));
    for (uint32_t page : part.pages) out->Write(page);
    out->Write(part.page_tokens);
    out->Write(part.page_stride);
    out->Write(part.token_stride);
    out->Write(part.head_stride);
  }
}
void WriteWork(const ImportJob& job, ByteWriter* out) {
  WriteBlob(job.header, out);
  WriteRows(job.from, out);
  for (const auto& places : job.target) WritePlaces(places, out);
}
void WriteWork(const ExportJob& job, ByteWriter* out) {
  WriteBlob(job.header, out);
  WriteRows(job.to, out);
  for (const auto& places : job.source) WritePlaces(places, out);
}
void Write(const Job& m, ByteWriter* out) {
  out->Write(m.id);
  out->Write(static_cast<uint8_t>(m.lane));
  out->Write(static_cast<uint8_t>(m.work.index()));
  std::visit([out](const auto& work) { WriteWork(work, out); }, m.work);
}
void Write(const JobDone& m, ByteWriter* out) {
  out->Write(m.id);
  out->Write(static_cast<int32_t>(m.status.code()));
  WriteText(firn::Message(m.status), out);
  WriteBlob(m.payload, out);
}
void Write(const Fatal& m, ByteWriter* out) {
  out->Write(m.code);
  WriteText(m.message, out);
}

absl::StatusOr<Message> ParseJob(Parser in) {
  Job job;
  job.id = in.Read<uint64_t>();
  auto lane = in.Read<uint8_t>();
  if (lane >= kLanes) in.Fail(InvalidArgument("lane {}, there are {}", lane, kLanes));
  job.lane = static_cast<Lane>(lane);
  auto kind = in.Read<uint8_t>();
  if (kind == 0) {
    CopyJob copy;
    copy.source = in.Places();
    copy.target = in.Places();
    job.work = std::move(copy);
  } else if (kind == 1) {
    RecodeJob recode;
    recode.source_header = in.Blob(kRecordHeaderBytesMax, "a header");
    recode.target_header = in.Blob(kRecordHeaderBytesMax, "a header");
    for (auto& places : recode.source) places = in.Places();
    for (auto& places : recode.target) places = in.Places();
    job.work = std::move(recode);
  } else if (kind == 2) {
    ImportJob import;
    import.header = in.Blob(kRecordHeaderBytesMax, "a header");
    import.from = in.Rows();
    for (auto& places : import.target) places = in.Places();
    job.work = std::move(import);
  } else if (kind == 3) {
    ExportJob out;
    out.header = in.Blob(kRecordHeaderBytesMax, "a header");
    out.to = in.Rows();
    for (auto& places : out.source) places = in.Places();
    job.work = std::move(out);
  } else {
    in.Fail(InvalidArgument("a job of kind {}, known are 0 to 3", kind));
  }
  return in.End(std::move(job));
}

absl::StatusOr<Message> ParseJobDone(Parser in) {
  JobDone done;
  done.id = in.Read<uint64_t>();
  auto code = in.Read<int32_t>();
  if (code < 0 || code > static_cast<int32_t>(absl::StatusCode::kUnauthenticated)) {
    in.Fail(InvalidArgument("a status of code {}", code));
  }
  std::string text = in.Text();
  if (code == 0 && !text.empty()) in.Fail(InvalidArgument("a success that says \"{}\"", text));
  done.status = absl::Status(static_cast<absl::StatusCode>(code), text);
  done.payload = in.Blob(kRecordHeaderBytesMax, "an answer");
  return in.End(std::move(done));
}

}  // namespace

MessageType TypeOf(const Message& message) { return static_cast<MessageType>(message.index() + 1); }

std::vector<uint8_t> SerializeMessage(const Message& message) {
  ByteWriter out;
  std::visit([&out](const auto& m) { Write(m, &out); }, message);
  return out.Take();
}

absl::StatusOr<Message> ParseMessage(MessageType type, ByteSpan payload) {
  Parser in(payload);
  switch (type) {
    case MessageType::kHello: {
      Hello m;
      m.version = in.Read<uint32_t>();
      m.device = in.Read<uint32_t>();
      m.pool_bytes = in.Read<uint64_t>();
      m.scratch_bytes = in.Read<uint64_t>();
      return in.End(m);
    }
    case MessageType::kReady: {
      Ready m;
      m.version = in.Read<uint32_t>();
      m.pool_bytes = in.Read<uint64_t>();
      m.device_bytes = in.Read<uint64_t>();
      m.device = in.Text();
      return in.End(std::move(m));
    }
    case MessageType::kMapRegion: {
      MapRegion m;
      m.region = in.Read<uint32_t>();
      m.bytes = in.Read<uint64_t>();
      m.usable_bytes = in.Read<uint64_t>();
      return in.End(m);
    }
    case MessageType::kRegionUsable: {
      RegionUsable m;
      m.region = in.Read<uint32_t>();
      m.usable_bytes = in.Read<uint64_t>();
      return in.End(m);
    }
    case MessageType::kArtifact: {
      ArtifactData m;
      m.serialized = in.Blob(kArtifactBytesMax, "an artifact");
      return in.End(std::move(m));
    }
    case MessageType::kJob:
      return ParseJob(in);
    case MessageType::kJobDone:
      return ParseJobDone(in);
    case MessageType::kFatal: {
      Fatal m;
      m.code = in.Read<int32_t>();
      m.message = in.Text();
      return in.End(std::move(m));
    }
  }
  return InvalidArgument("a message of type {}", static_cast<uint16_t>(type));
}

uint64_t TotalBytes(const std::vector<Place>& places) {
  uint64_t total = 0;
  for (const Place& place : places) total += place.bytes;
  return total;
}

namespace {

absl::Status CheckPlaces(const std::vector<Place>& places, const SpaceBytes& spaces) {
  uint64_t total = 0;
  for (const Place& place : places) {
    if (place.space >= kRegionsMax) return InvalidArgument("space {}, at most {}", place.space, kRegionsMax - 1);
    uint64_t limit = spaces[place.space];
    if (place.bytes > limit || place.offset > limit - place.bytes) {
      return InvalidArgument("bytes {} to {} + {} of space {}, which has {}", place.offset, place.offset, place.bytes,
                             place.space, limit);
    }
    total += place.bytes;
    // No job moves more than a block and its codes.
    if (total > 4 * kBlockBytesMax) return InvalidArgument("a job of more than {} bytes", 4 * kBlockBytesMax);
  }
  return absl::OkStatus();
}

absl::Status CheckWork(const CopyJob& job, const SpaceBytes& spaces) {
  FIRN_RETURN_IF_ERROR(CheckPlaces(job.source, spaces));
  FIRN_RETURN_IF_ERROR(CheckPlaces(job.target, spaces));
  if (TotalBytes(job.source) == TotalBytes(job.target)) return absl::OkStatus();
  return InvalidArgument("a copy of {} bytes into {}", TotalBytes(job.source), TotalBytes(job.target));
}

absl::Status CheckWork(const RecodeJob& job, const SpaceBytes& spaces) {
  for (const auto& places : job.source) FIRN_RETURN_IF_ERROR(CheckPlaces(places, spaces));
  for (const auto& places : job.target) FIRN_RETURN_IF_ERROR(CheckPlaces(places, spaces));
  return absl::OkStatus();
}

absl::Status CheckWork(const ImportJob& job, const SpaceBytes& spaces) {
  for (const auto& places : job.target) FIRN_RETURN_IF_ERROR(CheckPlaces(places, spaces));
  if (!job.from.has_event()) return InvalidArgument("values without the event of who produces them");
  return absl::OkStatus();
}

absl::Status CheckWork(const ExportJob& job, const SpaceBytes& spaces) {
  for (const auto& places : job.source) FIRN_RETURN_IF_ERROR(CheckPlaces(places, spaces));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckJob(const Job& job, const SpaceBytes& spaces) {
  return std::visit([&](const auto& work) { return CheckWork(work, spaces); }, job.work);
}

}  // namespace firn::gpu
