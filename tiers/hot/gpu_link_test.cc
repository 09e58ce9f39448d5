#include "tiers/hot/gpu_link.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "base/status.h"
#include "tiers/hot/gpu_test_util.h"

namespace firn {
namespace {

// A child that a test plays by hand.
class PlayedChild final : public GpuChild {
 public:
  explicit PlayedChild(std::function<void(UniqueFd)> play) {
    auto sockets = gpu::SocketPair();
    FIRN_CHECK(sockets.ok());
    socket_ = std::move(sockets->first);
    end_ = UniqueFd(::dup(sockets->second.get()));
    thread_ = std::thread(
        [play = std::move(play), socket = std::move(sockets->second)]() mutable { play(std::move(socket)); });
  }
  ~PlayedChild() override {
    ::shutdown(end_.get(), SHUT_RDWR);
    thread_.join();
  }
  UniqueFd TakeSocket() override { return std::move(socket_); }
  int pid() const override { return 0; }

 private:
  UniqueFd socket_, end_;
  std::thread thread_;
};

struct Watch {
  std::atomic<int> ups{0}, downs{0};
  std::promise<absl::Status> first_down;
  std::promise<uint64_t> first_up;
};

GpuLink::Options OptionsOf(GpuChildStarter start, Watch* watch) {
  GpuLink::Options options;
  options.start = std::move(start);
  options.backoff_first_ms = 1;
  options.on_up = [watch](uint64_t epoch, const gpu::Ready&) {
    if (watch->ups++ == 0) watch->first_up.set_value(epoch);
  };
  options.on_down = [watch](uint64_t, const absl::Status& why) {
    if (watch->downs++ == 0) watch->first_down.set_value(why);
  };
  return options;
}

// Answers the hello, then does `more`.
GpuChildStarter Play(std::function<void(gpu::Channel*)> more) {
  return [more]() -> absl::StatusOr<std::unique_ptr<GpuChild>> {
    return std::unique_ptr<GpuChild>(std::make_unique<PlayedChild>([more](UniqueFd socket) {
      gpu::Channel channel(std::move(socket));
      for (;;) {
        auto open = channel.Receive();
        auto got = channel.Next();
        if (got.ok() && got->has_value()) break;
        if (!open.ok() || !*open) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      more(&channel);
      // Until it is told to go.
      for (auto open = channel.Receive(); open.ok() && *open; open = channel.Receive()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }));
  };
}

void Say(gpu::Channel* channel, const gpu::Message& message) {
  (void)channel->Queue(message);
  (void)channel->Flush();
}

TEST(GpuLink, JobsOfAnotherEpochAndBeforeTheFirstAreUnavailable) {
  Watch watch;
  GpuLink link(OptionsOf(StartThread(), &watch));
  absl::Status early;
  link.Run(1, gpu::Lane::kServe, gpu::CopyJob{}, {}, [&](auto answer) { early = answer.status(); });
  EXPECT_TRUE(absl::IsUnavailable(early));
  link.Start();
  uint64_t epoch = watch.first_up.get_future().get();
  std::promise<absl::Status> right;
  link.Run(epoch, gpu::Lane::kServe, gpu::CopyJob{}, {}, [&](auto answer) { right.set_value(answer.status()); });
  EXPECT_TRUE(right.get_future().get().ok());
  absl::Status late;
  link.Run(epoch + 1, gpu::Lane::kServe, gpu::CopyJob{}, {}, [&](auto answer) { late = answer.status(); });
  EXPECT_TRUE(absl::IsUnavailable(late));
  link.Stop();
  link.Run(epoch, gpu::Lane::kServe, gpu::CopyJob{}, {}, [&](auto answer) { late = answer.status(); });
  EXPECT_TRUE(absl::IsUnavailable(late));
}

TEST(GpuLink, ChildrenThatBreakTheProtocolAreReplaced) {
  struct Case {
    const char* name;
    std::function<void(gpu::Channel*)> more;
    bool gets_ready;
  };
  const std::vector<Case> cases = {
      {"another version", [](gpu::Channel* c) { Say(c, gpu::Ready{.version = 2, .device = "x"}); }, false},
      {"more pool than asked for", [](gpu::Channel* c) { Say(c, gpu::Ready{.pool_bytes = 1, .device = "x"}); }, false},
      {"no ready",
       [](gpu::Channel* c) {
         Say(c, gpu::RegionUsable{1, 1});
       },
       false},
      {"gives up",
       [](gpu::Channel* c) {
         Say(c, gpu::Fatal{100, "no device"});
       },
       false},
      {"an answer that nobody asked for",
       [](gpu::Channel* c) {
         Say(c, gpu::Ready{.device = "x"});
         Say(c, gpu::JobDone{77, absl::OkStatus(), {}});
       },
       true},
      {"a parent's message",
       [](gpu::Channel* c) {
         Say(c, gpu::Ready{.device = "x"});
         Say(c, gpu::Hello{});
       },
       true},
      {"noise",
       [](gpu::Channel* c) {
         Say(c, gpu::Ready{.device = "x"});
         (void)!::send(c->fd(), "this is no frame of any kind", 28, MSG_NOSIGNAL);
       },
       true},
      {"lost",
       [](gpu::Channel* c) {
         Say(c, gpu::Ready{.device = "x"});
         Say(c, gpu::Fatal{214, "uncorrectable ECC error"});
       },
       true},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Watch watch;
    GpuLink link(OptionsOf(Play(c.more), &watch));
    link.Start();
    for (int i = 0; i < 20'000 && link.GetStats().deaths < 3; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_GE(link.GetStats().deaths, 3u);
    EXPECT_EQ(watch.ups > 0, c.gets_ready);
    EXPECT_FALSE(link.GetStats().last_failure.empty());
    link.Stop();
    EXPECT_EQ(watch.ups, watch.downs);
  }
}

TEST(GpuLink, AJobWithoutAnAnswerEndsTheChild) {
  Watch watch;
  gpu::CpuFaults hangs{.hang_at_job = 1};
  auto options = OptionsOf(StartThread(hangs), &watch);
  options.job_timeout_ms = 50;
  GpuLink link(std::move(options));
  link.Start();
  uint64_t epoch = watch.first_up.get_future().get();
  std::promise<absl::Status> answer;
  link.Run(epoch, gpu::Lane::kServe, gpu::CopyJob{}, {}, [&](auto got) { answer.set_value(got.status()); });
  EXPECT_TRUE(absl::IsUnavailable(answer.get_future().get()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(watch.first_down.get_future().get()));
  link.Stop();
}

TEST(GpuLink, WhatCannotBeStartedIsTriedAgainMoreAndMoreSlowly) {
  Watch watch;
  auto options =
      OptionsOf([]() -> absl::StatusOr<std::unique_ptr<GpuChild>> { return NotFound("no program"); }, &watch);
  options.backoff_max_ms = 40;
  GpuLink link(std::move(options));
  link.Start();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  uint64_t starts = link.GetStats().starts;
  link.Stop();
  EXPECT_GE(starts, 3u);
  EXPECT_LE(starts, 30u) << "1, 2, 4, ... 40, 40 ms: no more in 300 ms, however the machine is loaded";
  EXPECT_NE(link.GetStats().last_failure.find("no program"), std::string::npos);
}

TEST(GpuLink, AMissingProgramIsSaidByName) {
  auto child = StartProgram("/nowhere/firnd-gpu", {})();
  ASSERT_FALSE(child.ok());
  EXPECT_NE(Message(child.status()).find("/nowhere/firnd-gpu"), std::string::npos);
}

}  // namespace
}  // namespace firn
