#include "tiers/hot/protocol/channel.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/status.h"

namespace firn::gpu {
namespace {

constexpr size_t kReadBytes = 256 * 1024;
constexpr size_t kFramesEach = 64;  // That one call sends.
constexpr size_t kFdsWaitingMax = kRegionsMax;

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

absl::StatusOr<std::pair<UniqueFd, UniqueFd>> SocketPair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) {
    return ErrnoStatus(errno, "make a socket pair");
  }
  return std::pair(UniqueFd(fds[0]), UniqueFd(fds[1]));
}

Channel::Channel(UniqueFd socket)
    : socket_(std::move(socket)), incoming_(std::make_unique_for_overwrite<uint8_t[]>(kReadBytes)) {}

absl::Status Channel::Queue(const Message& message, int fd) {
  std::vector<uint8_t> payload = SerializeMessage(message);
  if (payload.size() > kFrameBytesMax) {
    return InvalidArgument("a message of {} bytes, at most {}", payload.size(), kFrameBytesMax);
  }
  if (unsent_bytes_ + payload.size() > kUnsentBytesMax) {
    return ResourceExhausted("{} bytes wait to be sent, at most {}", unsent_bytes_, kUnsentBytesMax);
  }
  ByteWriter frame;
  frame.bytes().reserve(kFrameHeaderBytes + payload.size());
  frame.Write(kFrameMagic);
  frame.Write(static_cast<uint16_t>(TypeOf(message)));
  frame.Write(static_cast<uint16_t>(fd >= 0 ? 1 : 0));
  frame.Write(static_cast<uint32_t>(payload.size()));
  frame.Write<uint32_t>(0);
  frame.WriteBytes(payload);
  unsent_bytes_ += frame.size();
  frames_.push_back({frame.Take(), 0, fd});
  return absl::OkStatus();
}

absl::Status Channel::Flush() {
  while (!frames_.empty()) {
    // As many as one call takes; one with a descriptor begins a call of its own.
    iovec pieces[kFramesEach];
    size_t count = 0;
    while (count < std::min(frames_.size(), kFramesEach) && (count == 0 || frames_[count].fd < 0)) {
      Frame& frame = frames_[count];
      pieces[count++] = {frame.bytes.data() + frame.sent, frame.bytes.size() - frame.sent};
    }
    Frame& first = frames_.front();
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (first.fd >= 0 && first.sent == 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &first.fd, sizeof(int));
    }
    ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && WouldBlock(errno)) return absl::OkStatus();
    if (sent < 0) return ErrnoStatus(errno, "send to the other end of a GPU channel");
    unsent_bytes_ -= static_cast<size_t>(sent);
    for (auto left = static_cast<size_t>(sent); left > 0;) {
      Frame& frame = frames_.front();
      size_t take = std::min(left, frame.bytes.size() - frame.sent);
      frame.sent += take;
      left -= take;
      if (frame.sent == frame.bytes.size()) frames_.pop_front();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Channel::Receive() {
  for (;;) {
    // What is parsed goes once it is the larger part, and nobody gets more than a frame ahead of the parser.
    if (parsed_ > received_.size() / 2) {
      received_.erase(received_.begin(), received_.begin() + static_cast<ptrdiff_t>(parsed_));
      parsed_ = 0;
    }
    if (received_.size() - parsed_ > kFrameHeaderBytes + kFrameBytesMax) return true;
    iovec piece{incoming_.get(), kReadBytes};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 8)];
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    ssize_t got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && WouldBlock(errno)) return true;
    if (got < 0 && errno == ECONNRESET) return false;
    if (got < 0) return ErrnoStatus(errno, "receive from the other end of a GPU channel");
    received_.insert(received_.end(), incoming_.get(), incoming_.get() + got);
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        fds_.emplace_back(fd);
      }
    }
    if (fds_.size() > kFdsWaitingMax) return InvalidArgument("{} descriptors nobody asked for", fds_.size());
    if (got == 0) return false;
  }
}

absl::StatusOr<std::optional<Received>> Channel::Next() {
  ByteSpan rest = ByteSpan(received_).subspan(parsed_);
  if (rest.size() < kFrameHeaderBytes) return std::nullopt;
  ByteReader header(rest);
  auto magic = header.Read<uint32_t>();
  auto type = header.Read<uint16_t>();
  auto fds = header.Read<uint16_t>();
  auto bytes = header.Read<uint32_t>();
  auto reserved = header.Read<uint32_t>();
  if (magic != kFrameMagic || reserved != 0 || fds > 1) {
    return InvalidArgument("no frame of a GPU channel: {:08x} with {} descriptors", magic, fds);
  }
  if (bytes > kFrameBytesMax) return InvalidArgument("a frame of {} bytes, at most {}", bytes, kFrameBytesMax);
  if (rest.size() - kFrameHeaderBytes < bytes) return std::nullopt;
  Received out;
  FIRN_ASSIGN_OR_RETURN(out.message,
                        ParseMessage(static_cast<MessageType>(type), rest.subspan(kFrameHeaderBytes, bytes)));
  bool wants = std::holds_alternative<MapRegion>(out.message);
  if (wants != (fds == 1)) return InvalidArgument("a message of type {} with {} descriptors", type, fds);
  if (fds == 1) {
    if (fds_.empty()) return InvalidArgument("a message of type {} without its descriptor", type);
    out.fd = std::move(fds_.front());
    fds_.pop_front();
  }
  parsed_ += kFrameHeaderBytes + bytes;
  return std::optional<Received>(std::move(out));
}

}  // namespace firn::gpu
