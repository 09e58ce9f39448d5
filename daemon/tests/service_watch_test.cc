// Watching over restarts: sequence numbers of one daemon are never taken for another's.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "daemon/tests/service_harness_test_util.h"

namespace firn {
namespace {

struct Watching {
  std::unique_ptr<RawStream> stream;
  v1::WatchResponse first;
};

Watching Watch(RawClient* client, std::optional<uint64_t> after) {
  v1::WatchRequest request;
  if (after.has_value()) request.set_after(*after);
  Watching out{client->Open("KvStore/Watch"), {}};
  out.stream->Write(request.SerializeAsString());
  out.stream->HalfClose();
  std::string bytes;
  EXPECT_TRUE(out.stream->Read(&bytes) && out.first.ParseFromString(bytes));
  return out;
}

TEST(ServiceWatch, NumbersThatThisProcessHasNotGivenAreAnsweredWithAGap) {
  uint64_t seen = 0;
  for (bool again : {false, true}) {
    ServiceHarness harness;
    ApiClient api(harness.client.get(), FactsOf(1, 1, 16, 16, 4));
    for (const char* key : {"a", "b", "c"}) ASSERT_EQ(api.Put(key, 1, 4).outcome(), v1::PUT_OUTCOME_STORED);
    std::vector<uint64_t> places = {0, 1, uint64_t{1} << 62, UINT64_MAX};
    if (again) places.push_back(seen);
    for (uint64_t after : places) {
      Watching watch = Watch(harness.client.get(), after);
      EXPECT_TRUE(watch.first.gap()) << after;
      std::string bytes;
      v1::WatchResponse next;
      ASSERT_TRUE(watch.stream->Read(&bytes) && next.ParseFromString(bytes));
      EXPECT_EQ(next.events_size(), 3) << after;  // What is kept follows.
      EXPECT_FALSE(next.gap());
      EXPECT_EQ(next.events(0).sequence(), watch.first.sequence() + 1);
    }
    Watching now = Watch(harness.client.get(), std::nullopt);
    EXPECT_FALSE(now.first.gap());
    EXPECT_GT(now.first.sequence(), seen);
    EXPECT_LT(now.first.sequence(), uint64_t{1} << 53);  // A JSON number holds it.
    seen = now.first.sequence();
    EXPECT_FALSE(Watch(harness.client.get(), seen).first.gap());
    EXPECT_TRUE(Watch(harness.client.get(), seen + 1).first.gap());
  }
}

TEST(ServiceWatch, WhatARemovedNamespaceHeldIsToldToHaveGone) {
  ServiceHarness harness;
  ApiClient api(harness.client.get(), FactsOf(1, 1, 16, 16, 4));
  for (const char* key : {"a", "b"}) ASSERT_EQ(api.Put(key, 1, 4).outcome(), v1::PUT_OUTCOME_STORED);
  v1::RemoveNamespaceRequest request;
  request.set_namespace_fingerprint(api.fingerprint());
  v1::RemoveNamespaceResponse removed;
  ASSERT_TRUE(harness.client->Call("Admin/RemoveNamespace", request, &removed).ok());
  EXPECT_EQ(removed.copies_removed(), 2u);
  Watching watch = Watch(harness.client.get(), 0);
  std::string bytes;
  v1::WatchResponse next;
  ASSERT_TRUE(watch.stream->Read(&bytes) && next.ParseFromString(bytes));
  ASSERT_EQ(next.events_size(), 4);
  for (int i : {2, 3}) EXPECT_EQ(next.events(i).kind(), v1::EVENT_KIND_REMOVED);
  for (const auto& event : next.events()) EXPECT_EQ(event.namespace_fingerprint(), api.fingerprint());
}

}  // namespace
}  // namespace firn
