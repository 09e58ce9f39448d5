#include "client/cli/support/context.h"

#include <cstdio>

#include "base/status.h"
#include "base/units.h"

namespace firn::cli {

absl::StatusOr<int64_t> Context::DeadlineMs() const {
  if (timeout.empty()) return 0;
  auto deadline_ms = ParseDurationMs(timeout);
  if (!deadline_ms.ok()) return InvalidArgument("--timeout {}: {}", timeout, Message(deadline_ms.status()));
  return deadline_ms;
}

absl::StatusOr<firnkv::Client*> Context::Connect() {
  if (client_ == nullptr) {
    FIRN_ASSIGN_OR_RETURN(client_, ConnectTo(socket));
  }
  return client_.get();
}

absl::StatusOr<std::unique_ptr<firnkv::Client>> Context::ConnectTo(const std::string& address) const {
  firnkv::ClientOptions options;
  options.address = address;
  FIRN_ASSIGN_OR_RETURN(int64_t deadline_ms, DeadlineMs());
  if (deadline_ms > 0) options.deadline_ms = options.data_deadline_ms = deadline_ms;
  return firnkv::Client::Create(options);
}

int ExitCodeOf(const absl::Status& status) {
  if (StatusErrno(status).has_value())
    return kExitUsage;  // A file of the caller's; the daemon's errors come without errno.
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kNotFound:
      return kExitSome;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnavailable;
    default:
      return kExitFailed;
  }
}

int Context::Report(const absl::Status& status) {
  int code = ExitCodeOf(status);
  if (status.ok()) return code;
  std::fprintf(stderr, "firn: %s\n", Message(status).c_str());
  if (json) Print({{"error", {{"code", absl::StatusCodeToString(status.code())}, {"message", Message(status)}}}});
  return code;
}

void Context::Print(const Json& document) const {
  std::string text = document.dump(2, ' ', false, Json::error_handler_t::replace);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
}

}  // namespace firn::cli
