// Connections: how many there may be, and what outlives a listener.
#include <grpc/grpc.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "daemon/tests/service_harness_test_util.h"

namespace firn {
namespace {

// The last grpc_shutdown of a process may take 10 s, which a stop does not have.
TEST(ServiceConnections, GrpcStaysUpWhenTheLastListenerHasGone) {
  { ServiceHarness harness; }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_NE(grpc_is_initialized(), 0);
}

}  // namespace
}  // namespace firn
