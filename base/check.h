// Assertions that stay on in release builds.
//
// FIRN_CHECK(condition) ends the process with file, line and the failed expression when a programmer's error is found.
// Bad input is never a programmer's error: it is answered with a Status. FIRN_DCHECK is for checks too dear for
// release.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace firn::base_internal {
[[noreturn]] inline void CheckFailed(const char* file, int line, const char* expression) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, expression);
  std::fflush(stderr);
  std::abort();
}
}  // namespace firn::base_internal

#define FIRN_CHECK(condition)                        \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? static_cast<void>(0)                        \
       : ::firn::base_internal::CheckFailed(__FILE__, __LINE__, #condition))

#ifdef FIRN_DEBUG
#define FIRN_DCHECK(condition) FIRN_CHECK(condition)
#else
#define FIRN_DCHECK(condition) static_cast<void>(sizeof(static_cast<bool>(condition)))
#endif
