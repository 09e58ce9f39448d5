// Where the daemon listens: addresses, socket files, TLS.
#include <filesystem>
#include <map>

#include "base/status.h"
#include "daemon/config/check/address.h"
#include "daemon/config/check/checks.h"
#include "daemon/config/check/tls_files.h"

namespace firn {
namespace {

void CheckUds(const ListenerSettings& listener, const std::string& prefix, const Machine& machine, FindingSink* sink) {
  const std::string key = prefix + "uds", value = InQuotes(listener.uds);
  if (listener.uds.size() > 107) {
    sink->Error(key, value, fmt::format("has {} bytes; allowed: at most 107", listener.uds.size()));
  }
  if (!listener.group.empty() && !machine.group_exists(listener.group)) {
    sink->Error(prefix + "group", InQuotes(listener.group),
                "no such group on this machine; allowed: a group of this machine");
  }
  // The lock of the socket lies beside it.
  std::string trouble = DirectoryTrouble(std::filesystem::path(listener.uds).parent_path(), machine);
  PlaceFacts place = machine.place(listener.uds);
  if (trouble.empty() && place.kind != PlaceKind::kMissing && place.kind != PlaceKind::kSocket) {
    trouble = "something else than a socket is there and is left alone";
  }
  if (!trouble.empty()) {
    sink->Error(key, value, trouble + "; allowed: a path where nothing or a socket is, in a directory to write in");
  }
}

void CheckTls(const ListenerSettings& listener, const std::string& prefix, const Machine& machine, FindingSink* sink) {
  if (listener.certificate.empty() || listener.private_key.empty() || listener.client_ca.empty()) return;
  TlsTexts texts;
  bool all = true;
  auto read = [&](const char* key, const std::string& path, std::string* text, const char* allowed) {
    auto content = machine.read_file(path);
    absl::Status status = content.status();
    if (content.ok()) {
      *text = *std::move(content);
      status = key == std::string_view("private_key") ? CheckPemKey(*text) : CheckPemCertificates(*text);
    }
    if (status.ok()) return;
    all = false;
    sink->Error(prefix + key, InQuotes(path), fmt::format("{}; allowed: {}", Message(status), allowed));
  };
  read("certificate", listener.certificate, &texts.certificate, "a PEM file of a certificate, and of its chain");
  read("private_key", listener.private_key, &texts.private_key, "a PEM file of a private key without a password");
  read("client_ca", listener.client_ca, &texts.client_ca, "a PEM file of certificates");
  if (!all) return;
  absl::Status match = CheckKeyBelongs(texts.certificate, texts.private_key);
  if (!match.ok()) {
    sink->Error(prefix + "private_key", InQuotes(listener.private_key),
                Message(match) + "; allowed: the key of " + listener.certificate);
  }
}

void CheckTcp(const ListenerSettings& listener, const std::string& prefix, const Machine& machine, FindingSink* sink) {
  const std::string key = prefix + "tcp", value = InQuotes(listener.tcp);
  auto address = SplitAddress(listener.tcp);
  if (!address.has_value()) {
    return sink->Error(key, value, "allowed: \"host:port\", port 0 to 65535");
  }
  if (!IsLoopback(address->host) && listener.certificate.empty()) {
    sink->Error(key, value,
                "an address that is not loopback needs mutual TLS: certificate, private_key and client_ca; allowed "
                "without: 127.0.0.0/8, [::1], localhost");
  }
  absl::Status here = machine.can_listen_on(address->host);
  if (!here.ok()) sink->Error(key, value, Message(here) + "; allowed: an address of this machine");
  CheckTls(listener, prefix, machine, sink);
}

}  // namespace

void CheckListeners(const Config& config, const Machine& machine, FindingSink* sink) {
  const auto& listeners = config.listeners;
  if (listeners.empty() || listeners.size() > 64) {
    sink->Error("listener", "", fmt::format("{} listeners; allowed: 1 to 64", listeners.size()));
  }
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < listeners.size(); ++i) {
    const ListenerSettings& listener = listeners[i];
    if (listener.uds.empty() && listener.tcp.empty()) continue;
    const std::string prefix = fmt::format("listener[{}].", i);
    const bool file = !listener.uds.empty();
    if (file) {
      CheckUds(listener, prefix, machine, sink);
    } else {
      CheckTcp(listener, prefix, machine, sink);
    }
    // Port 0 is another one each time.
    auto address = SplitAddress(listener.tcp);
    if (!file && (!address.has_value() || address->port == 0)) continue;
    auto [other, is_new] = places.emplace(file ? machine.place(listener.uds).real : listener.tcp, i);
    if (!is_new) {
      sink->Error(prefix + (file ? "uds" : "tcp"), InQuotes(file ? listener.uds : listener.tcp),
                  fmt::format("listener[{}] has this address; allowed: an address of its own", other->second));
    }
  }
}

void CheckAdminHttp(const Config& config, const Machine& machine, FindingSink* sink) {
  if (config.admin_http == "off") return;
  const std::string value = InQuotes(config.admin_http);
  auto address = SplitAddress(config.admin_http);
  if (!address.has_value()) {
    return sink->Error("admin.http", value, "allowed: \"host:port\", port 0 to 65535, or \"off\"");
  }
  if (!IsLoopback(address->host) && !config.admin_http_expose) {
    return sink->Error("admin.http", value,
                       "not loopback, and it has no authentication; allowed: loopback, or any address of this machine "
                       "with admin.expose = true");
  }
  if (!IsLoopback(address->host) && !IsNumericAddress(address->host)) {
    return sink->Error("admin.http", value, "allowed: a numeric address or localhost");
  }
  absl::Status here = machine.can_listen_on(address->host);
  if (!here.ok()) sink->Error("admin.http", value, Message(here) + "; allowed: an address of this machine");
}

}  // namespace firn
