#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace firn {
namespace {

TEST(Status, ErrnoIsKeptAndNamed) {
  absl::Status status = ErrnoStatus(ENOSPC, "write segment 7");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(StatusErrno(status), ENOSPC);
  EXPECT_NE(Message(status).find("write segment 7"), std::string::npos);
  EXPECT_NE(Message(status).find("errno 28"), std::string::npos);
  EXPECT_EQ(StatusErrno(absl::InternalError("no errno here")), std::nullopt);
}

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return InvalidArgument("{} is odd", value);
  return value / 2;
}

absl::StatusOr<int> Quarter(int value) {
  FIRN_ASSIGN_OR_RETURN(int half, Half(value));
  return Half(half);
}

TEST(Status, MacrosCarryTheFirstError) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Message(Quarter(6).status()), "3 is odd");
  EXPECT_EQ(Message(Quarter(5).status()), "5 is odd");
}

}  // namespace
}  // namespace firn
