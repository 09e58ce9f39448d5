// C42: a client that is used after fork() answers at once with advice, in every call, and never hangs.

#include <sys/wait.h>
#include <unistd.h>

#include "client/cpp/testing/fixture.h"
#include "firnkv/session.h"
#include "firnkv/watch.h"

namespace firnkv {
namespace {

using ForkTest = FakeDaemonTest;

bool Advises(const absl::Status& status) {
  return status.code() == absl::StatusCode::kFailedPrecondition &&
         firn::Message(status).find("fork") != std::string::npos;
}

TEST_F(ForkTest, C42_used_after_fork) {
  Client& client = Connect();
  Namespace ns = Register(1, 4);
  std::vector<BlockKey> keys = {BlockKey::Opaque("a")};
  ASSERT_TRUE(client.Exists(ns, keys).ok());
  auto session = client.OpenSession("parent");
  ASSERT_TRUE(session.ok());
  auto watch = client.Watch();
  ASSERT_TRUE(watch.ok());
  ASSERT_TRUE((*watch)->Next(10'000).ok());

  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);  // A hang ends as a signal, which the parent reports.
    std::vector<GetItem> gets = {{.key = keys[0], .allocate = true}};
    std::vector<PutItem> puts = {{.key = keys[0], .tokens = 4}};
    int failures = 0;
    for (int i = 0; i < 100; ++i) failures += !Advises(client.Get(ns, gets).status());
    failures += !Advises(client.Put(ns, puts).status());
    failures += !Advises(client.Exists(ns, keys).status());
    failures += !Advises(client.GetStats().status());
    failures += !Advises(client.OpenSession("child").status());
    failures += !Advises(client.Watch().status());
    failures += !Advises((*watch)->Next(1000).status());
    failures += !Advises(Client::Create(options_).status());
    failures += (*session)->alive();
    session->reset();
    watch->reset();
    client_.reset();
    _exit(failures == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  // The parent goes on.
  EXPECT_TRUE(client.Exists(ns, keys).ok());
  EXPECT_TRUE((*session)->alive());
}

}  // namespace
}  // namespace firnkv
