// A daemon that a test starts, again and again as it likes, with a client of it and one namespace.
//
// Threads: one. Ownership: the daemon ends with the fixture.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "client/trial/known_blocks.h"
#include "tests/support/daemon_process.h"

namespace firn {

class OneNamespace : public ::testing::Test {
 protected:
  OneNamespace(DaemonOptions options, KnownModel model) : model_(std::move(model)), daemon_(std::move(options)) {}

  void Start() {
    absl::Status started = daemon_.Start();
    ASSERT_TRUE(started.ok()) << started;
    client_ = daemon_.Connect();
    auto ns = client_->RegisterNamespace(model_.Facts());
    ASSERT_TRUE(ns.ok()) << ns.status();
    ns_ = *ns;
  }

  const KnownModel model_;
  DaemonProcess daemon_;
  std::unique_ptr<firnkv::Client> client_;
  firnkv::Namespace ns_;
};

}  // namespace firn
