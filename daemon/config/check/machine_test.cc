// What is said of the machine that the test runs on.
#include "daemon/config/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/status.h"
#include "base/units.h"
#include "daemon/config/check/address.h"
#include "daemon/config/check/tls_files.h"

namespace firn {
namespace {

using ::testing::HasSubstr;

class MachineTest : public testing::Test {
 protected:
  MachineTest() {
    char folder[] = "/tmp/firn-machine-XXXXXX";
    folder_ = std::filesystem::canonical(mkdtemp(folder));
    std::ofstream(Path("file")) << "x";
  }
  ~MachineTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string folder_;
};

TEST_F(MachineTest, SaysWhatIsAtAPlaceAndWhatIsInTheWay) {
  EXPECT_EQ(InspectPlace(folder_).kind, PlaceKind::kDirectory);
  EXPECT_EQ(InspectPlace(folder_).obstacle, "");
  EXPECT_EQ(InspectPlace(Path("file")).kind, PlaceKind::kRegular);
  EXPECT_EQ(InspectPlace("/dev/null").kind, PlaceKind::kOther);
  EXPECT_EQ(InspectPlace(Path("a/b/c")).kind, PlaceKind::kMissing);
  EXPECT_EQ(InspectPlace(Path("a/b/c")).obstacle, "");
  EXPECT_THAT(InspectPlace(Path("file/x")).obstacle, HasSubstr("file is not a directory"));
  EXPECT_THAT(InspectPlace(Path("file/x/y")).obstacle, HasSubstr("file is not a directory"));
  ASSERT_EQ(symlink("nowhere", Path("link").c_str()), 0);
  EXPECT_THAT(InspectPlace(Path("link")).obstacle, HasSubstr("dangling"));
  EXPECT_FALSE(std::filesystem::exists(Path("a")));
  EXPECT_EQ(InspectPlace(Path("./a/../file")).real, Path("file"));
  EXPECT_EQ(InspectPlace(Path("a/")).real, Path("a"));
}

TEST_F(MachineTest, WhatIsForbiddenIsInTheWay) {
  ASSERT_EQ(chmod(folder_.c_str(), 0555), 0);
  const bool root = geteuid() == 0;  // It may write everywhere: be nobody for a moment.
  if (root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  EXPECT_THAT(InspectPlace(folder_).obstacle, HasSubstr("Permission denied"));
  EXPECT_THAT(InspectPlace(Path("new")).obstacle, HasSubstr("Permission denied"));
  EXPECT_TRUE(absl::IsPermissionDenied(ThisMachine().cxl_place(Path("new"), kMiB)));
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  ASSERT_EQ(chmod(folder_.c_str(), 0700), 0);
}

TEST_F(MachineTest, ATierThatHoldsDataIsKnownByItsLog) {
  Machine machine = ThisMachine();
  EXPECT_FALSE(machine.disk(Path("absent"))->holds_data);
  std::filesystem::create_directories(Path("log"));
  EXPECT_FALSE(machine.disk(folder_)->holds_data);
  std::ofstream(Path("log/segment")) << "x";
  EXPECT_TRUE(machine.disk(folder_)->holds_data);
}

TEST_F(MachineTest, ADeviceIsNoPlaceForACxlFile) {
  Machine machine = ThisMachine();
  EXPECT_TRUE(machine.cxl_place(Path("new"), kMiB).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(machine.cxl_place(Path("file"), kMiB)));
  EXPECT_TRUE(absl::IsFailedPrecondition(machine.cxl_place("/dev/null", kMiB)));
  EXPECT_TRUE(absl::IsNotFound(machine.cxl_place("/dev/dax987.0", kMiB)));
  EXPECT_FALSE(machine.cxl_place(folder_, kMiB).ok());
  EXPECT_FALSE(machine.read_file("/dev/zero").ok());
  EXPECT_FALSE(machine.read_file(folder_).ok());
}

TEST_F(MachineTest, ListensOnItsOwnAddressesOnly) {
  EXPECT_TRUE(CanListenOn("127.0.0.1").ok());
  EXPECT_TRUE(CanListenOn("0.0.0.0").ok());
  EXPECT_FALSE(CanListenOn("192.0.2.1").ok()) << "an address for documentation";
  EXPECT_FALSE(CanListenOn("no such name").ok());
}

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

struct Identity {
  std::string certificate, key;
  Identity() {
    EVP_PKEY* pair = EVP_EC_gen("P-256");
    X509* signed_by_itself = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(signed_by_itself), 0);
    X509_gmtime_adj(X509_getm_notAfter(signed_by_itself), 3600);
    X509_set_pubkey(signed_by_itself, pair);
    X509_sign(signed_by_itself, pair, EVP_sha256());
    BIO* out = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(out, signed_by_itself);
    certificate = TextOf(out);
    out = BIO_new(BIO_s_mem());
    PEM_write_bio_PrivateKey(out, pair, nullptr, nullptr, 0, nullptr, nullptr);
    key = TextOf(out);
    X509_free(signed_by_itself);
    EVP_PKEY_free(pair);
  }
};

TEST(TlsFiles, AKeyAndItsCertificate) {
  Identity one, other;
  EXPECT_TRUE(CheckPemCertificates(one.certificate).ok());
  EXPECT_TRUE(CheckPemCertificates(one.certificate + other.certificate).ok());
  EXPECT_TRUE(CheckPemKey(one.key).ok());
  EXPECT_TRUE(CheckKeyBelongs(one.certificate, one.key).ok());
  EXPECT_FALSE(CheckKeyBelongs(one.certificate, other.key).ok());
  for (const std::string& text : {std::string(), std::string("nonsense"), one.certificate.substr(0, 100)}) {
    EXPECT_FALSE(CheckPemCertificates(text).ok()) << text;
    EXPECT_FALSE(CheckPemKey(text).ok()) << text;
  }
  EXPECT_FALSE(CheckPemCertificates(one.key).ok());
  EXPECT_FALSE(CheckPemKey(one.certificate).ok());
}

}  // namespace
}  // namespace firn
