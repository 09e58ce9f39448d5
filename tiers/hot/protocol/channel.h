// A framed, ordered channel over a Unix stream socket, with descriptors: both ends of the parent's talk with its child.
//
// A frame is a header of 16 bytes and a payload. Sending never blocks: frames wait in the channel until Flush gets them
// out; Receive takes what has arrived. Threads: one at a time. Ownership: the channel owns its socket and the
// descriptors that arrived and were not taken. Errors: InvalidArgument for frames that break the grammar,
// errno kept for the socket's own.
// Limits: kFrameBytesMax a frame, kUnsentBytesMax waiting: whoever fills that is told ResourceExhausted.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "tiers/hot/protocol/messages.h"
#include "tiers/hot/protocol/unique_fd.h"

namespace firn::gpu {

inline constexpr uint32_t kFrameMagic = 0x55504746;  // "FGPU"
inline constexpr uint32_t kFrameHeaderBytes = 16;
inline constexpr uint32_t kFrameBytesMax = 320u << 20;
inline constexpr uint64_t kUnsentBytesMax = uint64_t{1} << 30;

struct Received {
  Message message;
  UniqueFd fd;  // Where the message came with one.
};

class Channel {
 public:
  explicit Channel(UniqueFd socket);

  // Queues a message. `fd`, not owned, must stay open until the message is out; -1: none.
  absl::Status Queue(const Message& message, int fd = -1);
  // Sends what the socket takes now.
  absl::Status Flush();
  bool unsent() const { return !frames_.empty(); }

  // Reads what has arrived. False: the other end is closed.
  absl::StatusOr<bool> Receive();
  // The next whole message of what was read.
  absl::StatusOr<std::optional<Received>> Next();

  int fd() const { return socket_.get(); }

 private:
  struct Frame {
    std::vector<uint8_t> bytes;
    size_t sent = 0;
    int fd = -1;
  };
  const UniqueFd socket_;
  std::deque<Frame> frames_;
  uint64_t unsent_bytes_ = 0;
  const std::unique_ptr<uint8_t[]> incoming_;  // Where the socket's bytes arrive; never cleared.
  std::vector<uint8_t> received_;
  size_t parsed_ = 0;
  std::deque<UniqueFd> fds_;
};

// Two connected, non-blocking sockets.
absl::StatusOr<std::pair<UniqueFd, UniqueFd>> SocketPair();

}  // namespace firn::gpu
