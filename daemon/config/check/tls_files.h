// Whether what is in certificate and key files is what TLS needs. The same readers as gRPC's. Threads: any.
// Errors: InvalidArgument with OpenSSL's reason.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace firn {

struct TlsTexts {
  std::string certificate, private_key, client_ca;
};

// One certificate at least.
absl::Status CheckPemCertificates(const std::string& text);
absl::Status CheckPemKey(const std::string& text);
// The key of the first certificate.
absl::Status CheckKeyBelongs(const std::string& certificate, const std::string& private_key);

}  // namespace firn
