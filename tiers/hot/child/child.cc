#include "tiers/hot/child/child.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "base/status.h"
#include "codecs/block_codec.h"
#include "codecs/encoded_block.h"
#include "tiers/hot/child/mapped_regions.h"
#include "tiers/hot/protocol/channel.h"

namespace firn::gpu {
namespace {

class ArtifactTable final : public ArtifactSource {
 public:
  std::shared_ptr<const Artifact> Find(const Digest& digest) const override {
    std::lock_guard lock(mu_);
    auto it = artifacts_.find(digest);
    return it == artifacts_.end() ? nullptr : it->second;
  }
  void Add(std::shared_ptr<const Artifact> artifact) {
    std::lock_guard lock(mu_);
    artifacts_[artifact->digest()] = std::move(artifact);
  }

 private:
  mutable std::mutex mu_;
  std::map<Digest, std::shared_ptr<const Artifact>> artifacts_;  // Guarded by mu_.
};

class ChildLoop {
 public:
  ChildLoop(UniqueFd socket, Device* device) : channel_(std::move(socket)), device_(device) {}
  int Run() {
    wake_ = UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    absl::Status status = Loop();
    device_->Stop();  // Its events come here.
    if (status.ok()) return 0;
    std::fprintf(stderr, "firnd-gpu: %s\n", firn::Message(status).c_str());
    return 1;
  }

 private:
  absl::Status Loop();
  absl::Status Handle(Received received);
  absl::Status OnHello(const Hello& hello);
  void OnJob(Job job);
  void Send(Message message) {
    {
      std::lock_guard lock(mu_);
      outgoing_.push_back(std::move(message));
      if (outgoing_.size() > 1) return;  // The loop has been woken for those before.
    }
    uint64_t one = 1;
    [[maybe_unused]] ssize_t ignored = ::write(wake_.get(), &one, sizeof(one));
  }
  // Queues what the device's threads left; true when the last message is among it.
  absl::StatusOr<bool> QueueOutgoing();

  Channel channel_;
  Device* const device_;
  UniqueFd wake_;
  MappedRegions regions_;
  ArtifactTable artifacts_;
  std::optional<Ready> ready_;

  std::mutex mu_;
  std::vector<Message> outgoing_;  // Guarded by mu_.
};

absl::StatusOr<bool> ChildLoop::QueueOutgoing() {
  std::vector<Message> messages;
  {
    std::lock_guard lock(mu_);
    messages = std::exchange(outgoing_, {});
  }
  for (const Message& message : messages) {
    FIRN_RETURN_IF_ERROR(channel_.Queue(message));
    if (std::holds_alternative<Fatal>(message)) return true;
  }
  return false;
}

absl::Status ChildLoop::Loop() {
  for (;;) {
    pollfd polled[] = {{channel_.fd(), static_cast<short>(POLLIN | (channel_.unsent() ? POLLOUT : 0)), 0},
                       {wake_.get(), POLLIN, 0}};
    ::poll(polled, 2, -1);
    if (polled[1].revents != 0) {
      uint64_t count = 0;
      [[maybe_unused]] ssize_t ignored = ::read(wake_.get(), &count, sizeof(count));
    }
    FIRN_ASSIGN_OR_RETURN(bool open, channel_.Receive());
    for (;;) {
      FIRN_ASSIGN_OR_RETURN(auto received, channel_.Next());
      if (!received.has_value()) break;
      FIRN_RETURN_IF_ERROR(Handle(*std::move(received)));
    }
    if (!open) return absl::OkStatus();
    FIRN_ASSIGN_OR_RETURN(bool last, QueueOutgoing());
    FIRN_RETURN_IF_ERROR(channel_.Flush());
    if (!last) continue;
    for (int tries = 0; channel_.unsent() && tries < 100; ++tries) {
      ::poll(polled, 1, 10);
      FIRN_RETURN_IF_ERROR(channel_.Flush());
    }
    return Unavailable("the GPU is lost to this process");
  }
}

absl::Status ChildLoop::Handle(Received received) {
  if (const auto* hello = std::get_if<Hello>(&received.message)) return OnHello(*hello);
  if (!ready_.has_value()) return InvalidArgument("a message of type {} before hello", received.message.index() + 1);
  if (const auto* map = std::get_if<MapRegion>(&received.message)) {
    FIRN_RETURN_IF_ERROR(regions_.Map(*map, received.fd));
    device_->AddRegion(map->region, regions_.base(map->region), map->bytes);
    device_->SetUsable(map->region, map->usable_bytes);
    return absl::OkStatus();
  }
  if (const auto* usable = std::get_if<RegionUsable>(&received.message)) {
    FIRN_RETURN_IF_ERROR(regions_.SetUsable(*usable));
    device_->SetUsable(usable->region, usable->usable_bytes);
    return absl::OkStatus();
  }
  if (const auto* data = std::get_if<ArtifactData>(&received.message)) {
    FIRN_ASSIGN_OR_RETURN(auto artifact, Artifact::Parse(data->serialized));
    artifacts_.Add(std::move(artifact));
    return absl::OkStatus();
  }
  if (auto* job = std::get_if<Job>(&received.message)) {
    OnJob(std::move(*job));
    return absl::OkStatus();
  }
  return InvalidArgument("a message of type {} from the parent", received.message.index() + 1);
}

absl::Status ChildLoop::OnHello(const Hello& hello) {
  if (ready_.has_value()) return InvalidArgument("a second hello");
  if (hello.version != kProtocolVersion) {
    // The answer tells the parent, which knows what to do about it.
    Send(Ready{});
    ready_.emplace();
    return absl::OkStatus();
  }
  Device::Events events;
  events.on_done = [this](JobDone done) { Send(std::move(done)); };
  events.on_fatal = [this](Fatal fatal) { Send(std::move(fatal)); };
  auto ready = device_->Open(hello, &artifacts_, std::move(events));
  if (!ready.ok()) {
    Send(Fatal{0, firn::Message(ready.status())});
    ready_.emplace();
    return absl::OkStatus();
  }
  ready_ = *std::move(ready);
  Send(*ready_);
  return absl::OkStatus();
}

void ChildLoop::OnJob(Job job) {
  SpaceBytes spaces = regions_.usable();
  spaces[kPoolSpace] = ready_->pool_bytes;
  absl::Status checked = CheckJob(job, spaces);
  if (!checked.ok()) return Send(JobDone{job.id, checked, {}});
  device_->Submit(std::move(job));
}

}  // namespace

int RunChild(UniqueFd socket, Device* device) { return ChildLoop(std::move(socket), device).Run(); }

absl::StatusOr<Recoding> ParseRecoding(const RecodeJob& job) {
  Recoding recoding;
  FIRN_ASSIGN_OR_RETURN(recoding.source, ParseHeader(job.source_header, nullptr));
  FIRN_ASSIGN_OR_RETURN(recoding.target, ParseHeader(job.target_header, nullptr));
  if (recoding.source.identity != recoding.target.identity || recoding.source.shape != recoding.target.shape ||
      recoding.source.dtype != recoding.target.dtype) {
    return InvalidArgument("a record cannot be coded as another block's");
  }
  // Parts that are kept as they are keep what is known of them.
  recoding.target.errors = recoding.source.errors;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    uint64_t have = TotalBytes(job.source[i]);
    bool encoded = recoding.source.encoded.Has(i);
    if (encoded && have == recoding.source.runs[i].bytes) {
      recoding.present |= RunMask(static_cast<uint16_t>(1u << i));
    } else if (have != 0) {
      return InvalidArgument("run {} of the source has {} bytes, {} given", i, recoding.source.runs[i].bytes, have);
    }
    uint64_t wanted = recoding.target.encoded.Has(i) ? recoding.target.runs[i].bytes : 0;
    if (TotalBytes(job.target[i]) != wanted) {
      return InvalidArgument("run {} of the target has {} bytes, {} given", i, wanted, TotalBytes(job.target[i]));
    }
  }
  return recoding;
}

absl::Status CheckImport(const RecordHeader& header) {
  FIRN_RETURN_IF_ERROR(CheckRecord(header));
  for (Part part : kParts) {
    const CodecId codec = header.CodingOf(part).codec;
    if (codec == CodecId::kIdentity || codec == CodecId::kNone) continue;
    return InvalidArgument("codec {} of what device memory has: values as they are", static_cast<int>(codec));
  }
  return absl::OkStatus();
}

absl::StatusOr<Moving> ParseMoving(const std::vector<uint8_t>& header, const DeviceRows& rows,
                                   const std::array<std::vector<Place>, kRunIds>& places) {
  Moving moving;
  FIRN_ASSIGN_OR_RETURN(moving.header, ParseHeader(header, nullptr));
  if (moving.header.dtype != DType::kFp16 && moving.header.dtype != DType::kBf16) {
    return Unimplemented("values of type {}; FP16 and BF16 go by device memory", DTypeName(moving.header.dtype));
  }
  FIRN_RETURN_IF_ERROR(CheckDeviceRows(rows, moving.header.shape, DTypeBytes(moving.header.dtype), &moving.ends));
  for (uint32_t i = 0; i < kRunIds; ++i) {
    uint64_t bytes = TotalBytes(places[i]);
    bool encoded = moving.header.encoded.Has(i);
    if (encoded && bytes == moving.header.runs[i].bytes) {
      moving.present |= RunMask(static_cast<uint16_t>(1u << i));
    } else if (bytes != 0) {
      return InvalidArgument("run {} has {} bytes, {} given", i, moving.header.runs[i].bytes, bytes);
    }
  }
  return moving;
}

}  // namespace firn::gpu
