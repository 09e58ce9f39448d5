// A client with a fake daemon behind it, on a socket in a folder of its own.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "client/cpp/testing/fake_daemon.h"
#include "client/cpp/testing/patterns.h"
#include "firnkv/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace firnkv {

class FakeDaemonTest : public testing::Test {
 protected:
  FakeDaemonTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "firn-client-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    address_ = "unix:" + folder_ + "/s";
    daemon_ = std::make_unique<FakeDaemon>();
    options_.address = address_;
  }
  ~FakeDaemonTest() override {
    client_.reset();
    daemon_.reset();
    std::filesystem::remove_all(folder_);
  }

  Client& Connect() {
    daemon_->Start(address_);
    return ConnectOnly();
  }
  Client& ConnectOnly() {
    auto client = Client::Create(options_);
    EXPECT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    return *client_;
  }
  // `layers` layers of 8 heads of 128 channels in FP16.
  Namespace Register(uint32_t layers, uint32_t block_tokens) {
    auto ns = client_->RegisterNamespace({.model_id = "m",
                                          .layer_last = layers,
                                          .kv_heads = 8,
                                          .k_width = 128,
                                          .v_width = 128,
                                          .block_tokens = block_tokens});
    EXPECT_TRUE(ns.ok()) << ns.status();
    return *std::move(ns);
  }

  std::string folder_, address_;
  ClientOptions options_;
  std::unique_ptr<FakeDaemon> daemon_;
  std::unique_ptr<Client> client_;
};

inline std::span<const uint8_t> View(const std::vector<uint8_t>& bytes) { return bytes; }

}  // namespace firnkv
