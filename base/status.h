// The project's one error language: absl::Status with formatted messages that name the value and the limit.
//
// Threads: all functions are safe from any thread. A failed system call keeps its errno as a payload (StatusErrno).
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace firn {

template <typename... Args>
absl::Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
absl::Status NotFound(fmt::format_string<Args...> format, Args&&... args) {
  return absl::NotFoundError(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
absl::Status AlreadyExists(fmt::format_string<Args...> format, Args&&... args) {
  return absl::AlreadyExistsError(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
absl::Status ResourceExhausted(fmt::format_string<Args...> format, Args&&... args) {
  return absl::ResourceExhaustedError(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
absl::Status FailedPrecondition(fmt::format_string<Args...> format, Args&&... args) {
  return absl::FailedPreconditionError(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
absl::Status Unavailable(fmt::format_string<Args...> format, Args&&... args) {
  return absl::UnavailableError(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
absl::Status DataLoss(fmt::format_string<Args...> format, Args&&... args) {
  return absl::DataLossError(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
absl::Status InternalError(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InternalError(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
absl::Status Unimplemented(fmt::format_string<Args...> format, Args&&... args) {
  return absl::UnimplementedError(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
absl::Status Aborted(fmt::format_string<Args...> format, Args&&... args) {
  return absl::AbortedError(fmt::format(format, std::forward<Args>(args)...));
}

// The error of a system call: `what` says what was tried on what ("open /var/lib/firn/seg-3"). The code follows errno
// (ENOENT -> NotFound, ENOSPC, EDQUOT, ENOMEM -> ResourceExhausted, EACCES, EPERM, EROFS -> PermissionDenied, ...).
absl::Status ErrnoStatus(int error_number, const std::string& what);

// The errno kept by ErrnoStatus, or nothing.
std::optional<int> StatusErrno(const absl::Status& status);

// absl::string_view is not std::string_view in Debian's Abseil; this is the message as a std::string.
inline std::string Message(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

}  // namespace firn

#define FIRN_CONCAT_INNER(a, b) a##b
#define FIRN_CONCAT(a, b) FIRN_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expression`, a Status, is not OK.
#define FIRN_RETURN_IF_ERROR(expression)         \
  do {                                           \
    absl::Status firn_status_ = (expression);    \
    if (!firn_status_.ok()) return firn_status_; \
  } while (false)

// Declares or assigns `target` from a StatusOr, or returns its error.
#define FIRN_ASSIGN_OR_RETURN(target, expression) \
  FIRN_ASSIGN_OR_RETURN_IMPL(FIRN_CONCAT(firn_result_, __LINE__), target, expression)
#define FIRN_ASSIGN_OR_RETURN_IMPL(result, target, expression) \
  auto result = (expression);                                  \
  if (!result.ok()) return result.status();                    \
  target = *std::move(result)
