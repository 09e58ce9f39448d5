#include "base/status.h"

#include <cerrno>
#include <charconv>
#include <cstring>

#include "absl/strings/cord.h"

namespace firn {
namespace {

constexpr char kErrnoPayload[] = "firn.errno";

absl::StatusCode CodeOfErrno(int error_number) {
  switch (error_number) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return absl::StatusCode::kResourceExhausted;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case EINVAL:
    case ENAMETOOLONG:
      return absl::StatusCode::kInvalidArgument;
    case EAGAIN:
    case EINTR:
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
      return absl::StatusCode::kUnavailable;
    case ECANCELED:
      return absl::StatusCode::kCancelled;
    case ETIMEDOUT:
      return absl::StatusCode::kDeadlineExceeded;
    case EIO:
      return absl::StatusCode::kDataLoss;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status ErrnoStatus(int error_number, const std::string& what) {
  char buffer[256];
  const char* text = strerror_r(error_number, buffer, sizeof(buffer));
  absl::Status status(CodeOfErrno(error_number), fmt::format("{}: {} (errno {})", what, text, error_number));
  status.SetPayload(kErrnoPayload, absl::Cord(std::to_string(error_number)));
  return status;
}

std::optional<int> StatusErrno(const absl::Status& status) {
  auto payload = status.GetPayload(kErrnoPayload);
  if (!payload.has_value()) return std::nullopt;
  std::string text(*payload);
  int value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace firn
