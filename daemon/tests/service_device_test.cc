// Device memory where no tier is on a GPU: refused in words, and the lease is as it was.
#include <gtest/gtest.h>

#include "base/status.h"
#include "daemon/tests/service_harness_test_util.h"

namespace firn {
namespace {

TEST(ServiceDevice, WithoutAGpuBlocksAreRefusedOneByOne) {
  ServiceHarness harness;
  v1::CapabilitiesResponse capabilities;
  ASSERT_TRUE(harness.client->Call("KvStore/Capabilities", v1::CapabilitiesRequest(), &capabilities).ok());
  for (const std::string& path : capabilities.byte_paths()) EXPECT_NE(path, "gpu_handle");

  v1::GetToDeviceRequest get;
  get.set_namespace_fingerprint("no namespace");
  v1::GetToDeviceResponse got;
  EXPECT_FALSE(harness.client->Call("KvStore/GetToDevice", get, &got).ok());

  v1::FillFromDeviceRequest fill;
  fill.set_session("no session");
  v1::FillFromDeviceResponse filled;
  EXPECT_FALSE(harness.client->Call("KvStore/FillFromDevice", fill, &filled).ok());
}

}  // namespace
}  // namespace firn
