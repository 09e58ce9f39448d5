// A listener with mutual TLS: whoever has a certificate of the client CA is served, nobody else gets as far as a call.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/status.h"
#include "client/trial/known_blocks.h"
#include "firn/v1/kv.grpc.pb.h"
#include "tests/support/daemon_process.h"
#include "tests/support/free_port.h"

namespace firn {
namespace {

namespace fs = std::filesystem;

std::string Contents(const fs::path& file) {
  std::ifstream in(file);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Two authorities; `server` and `client` are signed by one of them, `stranger` by the other.
class Certificates {
 public:
  Certificates() {
    std::string pattern = (fs::temp_directory_path() / "firn-tls-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    std::ofstream(folder_ / "make.sh") << R"sh(set -e
cd "$(dirname "$0")"
authority() {
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=$1" -keyout $1.key -out $1.crt
}
signed() {
  openssl req -newkey rsa:2048 -nodes -subj "/CN=$1" -keyout $1.key -out $1.csr
  echo "subjectAltName=DNS:localhost,IP:127.0.0.1" >$1.ext
  openssl x509 -req -days 2 -in $1.csr -CA $2.crt -CAkey $2.key -CAcreateserial -extfile $1.ext -out $1.crt
}
authority ours
authority theirs
signed server ours
signed client ours
signed stranger theirs
)sh";
    std::string command = "sh '" + (folder_ / "make.sh").string() + "' >'" + (folder_ / "said").string() + "' 2>&1";
    made_ = std::system(command.c_str()) == 0;
  }
  ~Certificates() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  bool made() const { return made_; }
  std::string said() const { return Contents(folder_ / "said"); }
  fs::path File(const std::string& name) const { return folder_ / name; }

 private:
  fs::path folder_;
  bool made_ = false;
};

class Tls : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("openssl version >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no openssl to make keys with";
    ASSERT_TRUE(certificates_.made()) << certificates_.said();
    port_ = FreePort();
    DaemonOptions options;
    options.extra_toml = "[[listener]]\ntcp = \"127.0.0.1:" + std::to_string(port_) +
                         "\"\ntenant = \"remote\"\ncertificate = \"" + certificates_.File("server.crt").string() +
                         "\"\nprivate_key = \"" + certificates_.File("server.key").string() + "\"\nclient_ca = \"" +
                         certificates_.File("ours.crt").string() + "\"\n";
    daemon_ = std::make_unique<DaemonProcess>(options);
    absl::Status started = daemon_->Start();
    ASSERT_TRUE(started.ok()) << started;
  }

  std::unique_ptr<v1::KvStore::Stub> Connect(const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    return v1::KvStore::NewStub(grpc::CreateChannel("ipv4:127.0.0.1:" + std::to_string(port_), credentials));
  }

  // Credentials that trust the server, and show the certificate `name`, or none.
  std::shared_ptr<grpc::ChannelCredentials> Showing(const std::string& name) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = Contents(certificates_.File("ours.crt"));
    if (!name.empty()) {
      options.pem_private_key = Contents(certificates_.File(name + ".key"));
      options.pem_cert_chain = Contents(certificates_.File(name + ".crt"));
    }
    return grpc::SslCredentials(options);
  }

  static grpc::Status Capabilities(v1::KvStore::Stub& stub, v1::CapabilitiesResponse* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    return stub.Capabilities(&context, v1::CapabilitiesRequest(), response);
  }

  Certificates certificates_;
  uint16_t port_ = 0;
  std::unique_ptr<DaemonProcess> daemon_;
};

TEST_F(Tls, ServesWhoeverShowsACertificateOfTheClientAuthority) {
  auto stub = Connect(Showing("client"));
  v1::CapabilitiesResponse capabilities;
  grpc::Status status = Capabilities(*stub, &capabilities);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(capabilities.tiers_size(), 3);
  EXPECT_FALSE(capabilities.admin());
  // The listener's tenant is its own: what it registers is not there for the socket's.
  v1::RegisterNamespaceRequest request;
  request.mutable_facts()->set_model_id("remote");
  request.mutable_facts()->set_dtype(v1::DTYPE_FP16);
  request.mutable_facts()->set_layer_last(1);
  request.mutable_facts()->set_kv_heads(1);
  request.mutable_facts()->set_k_width(32);
  request.mutable_facts()->set_v_width(32);
  request.mutable_facts()->set_block_tokens(16);
  v1::NamespaceInfo info;
  grpc::ClientContext context;
  status = stub->RegisterNamespace(&context, request, &info);
  ASSERT_TRUE(status.ok()) << status.error_message();
  auto fingerprint = firnkv::Digest::FromBytes(info.namespace_fingerprint());
  ASSERT_TRUE(fingerprint.has_value());
  auto local = daemon_->Connect();
  EXPECT_EQ(local->DescribeNamespace(*fingerprint).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(Tls, RefusesEverybodyElseAndGoesOn) {
  v1::CapabilitiesResponse capabilities;
  for (const char* shown : {"", "stranger"}) {
    auto stub = Connect(Showing(shown));
    EXPECT_EQ(Capabilities(*stub, &capabilities).error_code(), grpc::StatusCode::UNAVAILABLE) << '"' << shown << '"';
  }
  // In plain text, as the project's own client speaks.
  firnkv::ClientOptions options;
  options.address = "127.0.0.1:" + std::to_string(port_);
  options.attempts_max = 1;
  auto plain = firnkv::Client::Create(options);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ((*plain)->GetCapabilities({.deadline_ms = 10'000}).status().code(), absl::StatusCode::kUnavailable);
  // A client that trusts others does not talk to this server either.
  grpc::SslCredentialsOptions strangers;
  strangers.pem_root_certs = Contents(certificates_.File("theirs.crt"));
  strangers.pem_private_key = Contents(certificates_.File("client.key"));
  strangers.pem_cert_chain = Contents(certificates_.File("client.crt"));
  EXPECT_EQ(Capabilities(*Connect(grpc::SslCredentials(strangers)), &capabilities).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Capabilities(*Connect(Showing("client")), &capabilities).ok());
  EXPECT_TRUE(daemon_->Connect()->GetStats().ok());
}

TEST_F(Tls, ACertificateThatIsNotThereIsAClearEnd) {
  ASSERT_EQ(daemon_->Terminate(), 0);
  fs::remove(certificates_.File("server.key"));
  EXPECT_FALSE(daemon_->Start(5'000).ok());
  EXPECT_THAT(daemon_->Log(), testing::HasSubstr("server.key"));
}

}  // namespace
}  // namespace firn
