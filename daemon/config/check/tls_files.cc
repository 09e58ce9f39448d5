#include "daemon/config/check/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

#include "base/status.h"

namespace firn {
namespace {

using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

std::unique_ptr<BIO, decltype(&BIO_free)> Reader(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free};
}

// An empty password: gRPC has none either, and nobody is to be asked for one.
char no_password[] = "";

Certificate FirstCertificate(const std::string& text) {
  return {PEM_read_bio_X509(Reader(text).get(), nullptr, nullptr, no_password), &X509_free};
}
Key KeyOf(const std::string& text) {
  return {PEM_read_bio_PrivateKey(Reader(text).get(), nullptr, nullptr, no_password), &EVP_PKEY_free};
}

absl::Status Refused(const char* what) {
  char reason[256] = {};
  ERR_error_string_n(ERR_peek_last_error(), reason, sizeof(reason));
  ERR_clear_error();
  return InvalidArgument("{} ({})", what, reason);
}

}  // namespace

absl::Status CheckPemCertificates(const std::string& text) {
  return FirstCertificate(text) != nullptr ? absl::OkStatus() : Refused("holds no certificate in PEM");
}

absl::Status CheckPemKey(const std::string& text) {
  return KeyOf(text) != nullptr ? absl::OkStatus() : Refused("holds no private key in PEM that can be read");
}

absl::Status CheckKeyBelongs(const std::string& certificate, const std::string& private_key) {
  Certificate first = FirstCertificate(certificate);
  Key key = KeyOf(private_key);
  if (first == nullptr || key == nullptr) return Refused("cannot be read");
  return X509_check_private_key(first.get(), key.get()) == 1 ? absl::OkStatus()
                                                             : Refused("does not belong to the certificate");
}

}  // namespace firn
