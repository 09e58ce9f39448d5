// handover_bench: three ways to hand KV that a worker's GPU has just written over to host memory as INT4, and what each
// costs the worker.
//
//   handover_bench [--label TEXT] [--seconds 1] [--batch-mib 64]
//
// `direct`: another process opens the worker's memory and event by CUDA IPC, and its kernel stores codes over the bus.
// `staged`: as that, but the kernel stores them in device memory and the copy engine takes them. `own`: the worker does
// the same itself, on streams of its own. Each with the worker's GPU idle but for the kernel that writes the values,
// with a light load (one block of 256 threads a multiprocessor) and a full one (as many threads as it holds), launches
// of 0.25 ms one behind the other. `handover LABEL WAY LOAD GB/s SLOWDOWN`: FP16 bytes represented a second, and the
// rate of the load alone over its rate meanwhile. The codes of all ways are compared; exit code 1: they differ.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "tests/bench/gpu/sharing/demotion_queue.h"
#include "tests/bench/gpu/sharing/load.h"

namespace firn::bench {
namespace {

using Clock = std::chrono::steady_clock;
using kernels::CheckCuda;

constexpr uint32_t kSlots = 4;  // Batches that are under way.
constexpr int kPatience_s = 20;

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

// What the two processes say to each other, one packet each.
struct Setup {
  uint32_t blocks;
  cudaIpcMemHandle_t values;  // kSlots batches.
  cudaIpcEventHandle_t written[kSlots];
};
struct Message {
  enum Kind : uint32_t { kReady, kBatch, kMoved, kSum } kind;
  uint32_t slot = 0;
  uint64_t sum = 0;
};

// Packets over a socket pair; who hears nothing for kPatience_s ends.
class Link {
 public:
  explicit Link(int fd) : fd_(fd) {
    timeval patience{kPatience_s, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  ~Link() { close(fd_); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  template <typename T>
  void Send(const T& packet) {
    if (send(fd_, &packet, sizeof(packet), MSG_NOSIGNAL) != sizeof(packet)) Fail("send to the other process");
  }
  // False where the other end is closed.
  template <typename T>
  bool Receive(T* packet) {
    ssize_t got = recv(fd_, packet, sizeof(*packet), 0);
    if (got == 0) return false;
    if (got != sizeof(*packet)) Fail("hear from the other process");
    return true;
  }
  bool Waiting() {
    char byte;
    return recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
  }

 private:
  const int fd_;
};

// The other process: codes batches of memory that is not its own.
int RunMover(const char* way, int fd) {
  Link link(fd);
  Setup setup;
  if (!link.Receive(&setup)) return 0;
  void* values = nullptr;
  CheckCuda(cudaIpcOpenMemHandle(&values, setup.values, cudaIpcMemLazyEnablePeerAccess));
  cudaEvent_t written[kSlots];
  for (uint32_t i = 0; i < kSlots; ++i) CheckCuda(cudaIpcOpenEventHandle(&written[i], setup.written[i]));
  {
    kernels::TransferWorkload work(setup.blocks);
    DemotionQueue queue(&work, std::strcmp(way, "direct") == 0 ? TransferWay::kDirect : TransferWay::kStaged, kSlots);
    link.Send(Message{Message::kReady});
    for (;;) {
      if (queue.under_way() > 0 && !link.Waiting()) {
        link.Send(Message{Message::kMoved, queue.WaitOldest()});
        continue;
      }
      Message message;
      if (!link.Receive(&message)) break;
      if (message.kind == Message::kSum) {
        link.Send(Message{Message::kSum, 0, queue.HostChecksum()});
      } else {
        auto* rows = static_cast<uint8_t*>(values) + message.slot * work.batch_bytes();
        queue.Push(rows, written[message.slot], message.slot);
      }
    }
  }
  for (cudaEvent_t event : written) cudaEventDestroy(event);
  cudaIpcCloseMemHandle(values);
  return 0;
}

// Launches of the load, back to back, as long as it is on.
class Load {
 public:
  Load() : sink_(sizeof(float)) {
    CheckCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CheckCuda(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, 0));
    for (cudaEvent_t& event : events_) CheckCuda(cudaEventCreateWithFlags(&event, cudaEventBlockingSync));
  }
  // 0 blocks a multiprocessor: none.
  void Set(uint32_t blocks_each) {
    blocks_ = blocks_each * static_cast<uint32_t>(processors_);
    if (blocks_ == 0) return;
    iterations_ = 20'000;
    for (int i = 0; i < 3; ++i) {  // The first times are those of slow clocks.
      double launch_s = kernels::MedianSeconds(stream_, [&] { Launch(); });
      iterations_ = std::max(1u, static_cast<uint32_t>(iterations_ * kLaunch_s / launch_s));
    }
  }
  // Launches a second over so long a time.
  double Rate(double seconds) {
    if (blocks_ == 0) {
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
      return 0;
    }
    auto begin = Clock::now();
    uint64_t windows = 0;
    for (; SecondsSince(begin) < seconds; ++windows) {
      // Never more than kWindows under way, and never none.
      if (windows >= kWindows) CheckCuda(cudaEventSynchronize(events_[windows % kWindows]));
      for (uint32_t i = 0; i < kLaunches; ++i) Launch();
      CheckCuda(cudaEventRecord(events_[windows % kWindows], stream_));
    }
    CheckCuda(cudaStreamSynchronize(stream_));
    return static_cast<double>(windows * kLaunches) / SecondsSince(begin);
  }

 private:
  static constexpr double kLaunch_s = 250e-6;
  static constexpr uint32_t kLaunches = 8, kWindows = 3;

  void Launch() { LaunchLoad(blocks_, iterations_, sink_.as<float>(), stream_); }

  kernels::DeviceMemory sink_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t events_[kWindows];
  int processors_ = 0;
  uint32_t blocks_ = 0, iterations_ = 0;
};

// The worker's side: writes batches into slots and has them moved, by itself or by a process.
class Worker {
 public:
  Worker(const char* way, uint32_t blocks) : work_(blocks), values_(kSlots * work_.batch_bytes()) {
    CheckCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (cudaEvent_t& event : written_) {
      CheckCuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
    }
    if (std::strcmp(way, "own") == 0) {
      queue_.emplace(&work_, TransferWay::kStaged, kSlots);
    } else {
      StartMover(way);
    }
    Move(0.1);
  }
  ~Worker() {
    link_.reset();
    if (mover_ > 0) waitpid(mover_, nullptr, 0);
  }

  // Hands batches over for so long: GB of FP16 a second.
  double Move(double seconds) {
    auto begin = Clock::now();
    uint64_t moved = 0, given = 0;
    uint32_t slot = 0;
    for (; SecondsSince(begin) < seconds; ++given, slot = (slot + 1) % kSlots) {
      if (given >= kSlots) AwaitOne(), ++moved;  // Batches come back in order: the slot is free.
      LaunchProduce(values_.as<uint8_t>() + slot * work_.batch_bytes(), work_.batch_bytes(), slot, stream_);
      CheckCuda(cudaEventRecord(written_[slot], stream_));
      if (queue_) {
        queue_->Push(values_.as<uint8_t>() + slot * work_.batch_bytes(), written_[slot], slot);
      } else {
        link_->Send(Message{Message::kBatch, slot});
      }
    }
    for (; moved < given; ++moved) AwaitOne();
    return static_cast<double>(moved * work_.batch_bytes()) / 1e9 / SecondsSince(begin);
  }
  uint64_t Checksum() {
    if (queue_) return queue_->HostChecksum();
    link_->Send(Message{Message::kSum});
    Message answer{};
    Hear(&answer, Message::kSum);
    return answer.sum;
  }

 private:
  void StartMover(const char* way) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) Fail("make a socket pair");
    const std::string fd = std::to_string(ends[1]);
    mover_ = fork();
    if (mover_ < 0) Fail("fork");
    if (mover_ == 0) {
      close(ends[0]);
      execl("/proc/self/exe", "handover_bench", "--mover", way, fd.c_str(), nullptr);
      _exit(127);
    }
    close(ends[1]);
    link_ = std::make_unique<Link>(ends[0]);
    Setup setup;
    setup.blocks = work_.blocks();
    CheckCuda(cudaIpcGetMemHandle(&setup.values, values_.as<void>()));
    for (uint32_t i = 0; i < kSlots; ++i) CheckCuda(cudaIpcGetEventHandle(&setup.written[i], written_[i]));
    link_->Send(setup);
    Message ready{};
    Hear(&ready, Message::kReady);
  }
  void AwaitOne() {
    if (queue_) {
      queue_->WaitOldest();
      return;
    }
    Message moved{};
    Hear(&moved, Message::kMoved);
  }
  void Hear(Message* message, Message::Kind expected) {
    if (link_->Receive(message) && message->kind == expected) return;
    std::fprintf(stderr, "handover_bench: the mover ended or said something else\n");
    std::exit(1);
  }

  const kernels::TransferWorkload work_;
  const kernels::DeviceMemory values_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t written_[kSlots];
  std::optional<DemotionQueue> queue_;
  std::unique_ptr<Link> link_;
  pid_t mover_ = 0;
};

struct LoadKind {
  const char* name;
  uint32_t blocks_each;
};
constexpr LoadKind kLoads[] = {{"none", 0}, {"light", 1}, {"full", 2048 / kLoadThreads}};

int RunAll(const std::string& label, double seconds, uint32_t blocks) {
  std::optional<uint64_t> checksum;
  bool alike = true;
  for (const char* way : {"direct", "staged", "own"}) {
    Worker worker(way, blocks);
    Load load;
    for (const LoadKind& kind : kLoads) {
      load.Set(kind.blocks_each);
      double before = load.Rate(seconds / 2);
      double moved = 0, meanwhile = 0;
      // The load begins first and ends last, so that every batch is handed over beside it.
      std::atomic<bool> moving{true};
      std::thread mover([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        moved = worker.Move(seconds);
        moving = false;
      });
      meanwhile = load.Rate(seconds);
      while (moving) load.Rate(0.02);
      mover.join();
      double after = load.Rate(seconds / 2);
      double slowdown = kind.blocks_each == 0 ? 1 : (before + after) / 2 / meanwhile;
      std::printf("handover %s %-6s %-5s %6.1f %5.2f\n", label.c_str(), way, kind.name, moved, slowdown);
      std::fflush(stdout);
    }
    uint64_t sum = worker.Checksum();
    if (!checksum) checksum = sum;
    alike &= sum == *checksum;
    if (sum != *checksum) std::fprintf(stderr, "handover_bench: the codes of `%s` differ from the first way's\n", way);
  }
  return alike ? 0 : 1;
}

int Main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--mover") == 0) return RunMover(argv[2], std::atoi(argv[3]));
  std::string label = "-";
  double seconds = 1;
  uint64_t mebibytes = 64;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--label") == 0) label = argv[i + 1];
    if (std::strcmp(argv[i], "--seconds") == 0) seconds = std::strtod(argv[i + 1], nullptr);
    if (std::strcmp(argv[i], "--batch-mib") == 0) mebibytes = std::strtoull(argv[i + 1], nullptr, 10);
  }
  if (mebibytes < 8 || mebibytes > 1024 || mebibytes % 8 != 0 || seconds <= 0) {
    std::fprintf(stderr, "handover_bench: a batch is a multiple of 8 MiB from 8 to 1024, and takes time\n");
    return 2;
  }
  return RunAll(label, seconds, static_cast<uint32_t>((mebibytes << 20) / kernels::kBlockBytes));
}

}  // namespace
}  // namespace firn::bench

int main(int argc, char** argv) { return firn::bench::Main(argc, argv); }
