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

// Whether both cannot be listened on at once.
bool Collide(const HostPort& a, const HostPort& b) {
  auto plain = [](const std::string& host) { return host == "localhost" ? "127.0.0.1" : host; };
  auto any = [](const std::string& host) { return host == "0.0.0.0" || host == "::"; };
  if (a.port == 0 || a.port != b.port) return false;  // Port 0 is another one each time.
  return any(a.host) || any(b.host) || plain(a.host) == plain(b.host);
}

// What other settings have files or directories for, by its real path.
std::map<std::string, std::string> TakenPaths(const Config& config, const Machine& machine) {
  std::map<std::string, std::string> taken;
  taken.emplace(machine.place(config.state_dir + "/firnd.lock").real, "the state directory's lock");
  for (size_t i = 0; i < config.tiers.size(); ++i) {
    const std::string& path = config.tiers[i].path;
    if (!path.empty()) taken.emplace(machine.place(path).real, fmt::format("tier[{}].path", i));
  }
  return taken;
}

}  // namespace

void CheckListeners(const Config& config, const Machine& machine, FindingSink* sink) {
  const auto& listeners = config.listeners;
  if (listeners.empty() || listeners.size() > 64) {
    sink->Error("listener", "", fmt::format("{} listeners; allowed: 1 to 64", listeners.size()));
  }
  std::map<std::string, std::string> paths = TakenPaths(config, machine);
  std::vector<std::pair<HostPort, size_t>> addresses;
  for (size_t i = 0; i < listeners.size(); ++i) {
    const ListenerSettings& listener = listeners[i];
    const std::string prefix = fmt::format("listener[{}].", i);
    if (!listener.uds.empty()) {
      CheckUds(listener, prefix, machine, sink);
      for (const char* suffix : {"", ".lock"}) {
        auto [other, is_new] = paths.emplace(machine.place(listener.uds + suffix).real, fmt::format("listener[{}]", i));
        if (is_new) continue;
        sink->Error(prefix + "uds", InQuotes(listener.uds),
                    fmt::format("{} has {}; allowed: an address of its own", other->second,
                                *suffix == 0 ? "this path" : "the path of its lock"));
      }
    } else if (!listener.tcp.empty()) {
      CheckTcp(listener, prefix, machine, sink);
      auto address = SplitAddress(listener.tcp);
      if (!address.has_value()) continue;
      for (const auto& [other, who] : addresses) {
        if (!Collide(*address, other)) continue;
        sink->Error(prefix + "tcp", InQuotes(listener.tcp),
                    fmt::format("listener[{}] has this address; allowed: an address of its own", who));
      }
      addresses.emplace_back(*address, i);
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
  for (size_t i = 0; i < config.listeners.size(); ++i) {
    auto other = SplitAddress(config.listeners[i].tcp);
    if (!other.has_value() || !Collide(*address, *other)) continue;
    return sink->Error("admin.http", value, fmt::format("listener[{}] has this address; allowed: one of its own", i));
  }
  absl::Status here = machine.can_listen_on(address->host);
  if (!here.ok()) sink->Error("admin.http", value, Message(here) + "; allowed: an address of this machine");
}

}  // namespace firn
