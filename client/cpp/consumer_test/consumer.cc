// Puts one block and gets it back. The example of docs/client.md, complete; every public header is included.

#include <cstdint>
#include <cstdio>
#include <vector>

#include "firnkv/blocks.h"
#include "firnkv/client.h"
#include "firnkv/key.h"
#include "firnkv/plan_file.h"
#include "firnkv/session.h"
#include "firnkv/types.h"
#include "firnkv/watch.h"

namespace {

int Fail(const char* what, const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
  return 1;
}

}  // namespace

int main() {
  auto client = firnkv::Client::Create();  // $FIRN_SOCKET, or the daemon's default.
  if (!client.ok()) return Fail("create", client.status());
  if (absl::Status ready = (*client)->WaitUntilReady(10'000); !ready.ok()) return Fail("wait", ready);

  auto plan = firnkv::ParsePlanFile("preset = \"int4\"\n[targets]\nhot = \"exact\"\n");
  if (!plan.ok()) return Fail("plan", plan.status());

  firnkv::NamespaceFacts facts;
  facts.model_id = "my-model";
  facts.layer_last = 4;
  facts.kv_heads = 2;
  facts.k_width = facts.v_width = 64;
  facts.block_tokens = 16;
  auto ns = (*client)->RegisterNamespace(facts, plan->plan);
  if (!ns.ok()) return Fail("register", ns.status());

  std::vector<uint32_t> tokens(16, 7);
  firnkv::Digest key = ns->Keys(tokens)[0];
  std::vector<uint8_t> k(ns->KBytes(16), 1), v(ns->VBytes(16), 2);
  std::vector<firnkv::PutItem> puts(1);
  puts[0].key = key;
  puts[0].tokens = 16;
  puts[0].parts.k = firnkv::SourcePieces(k.data(), k.size());
  puts[0].parts.v = firnkv::SourcePieces(v.data(), v.size());
  auto put = (*client)->Put(*ns, puts);
  if (!put.ok()) return Fail("put", put.status());
  if (!put->front().status.ok()) return Fail("put", put->front().status);

  std::vector<uint8_t> k_back(k.size()), v_back(v.size());
  std::vector<firnkv::GetItem> gets(1);
  gets[0].key = key;
  gets[0].parts.k = firnkv::TargetPieces(k_back.data(), k_back.size());
  gets[0].parts.v = firnkv::TargetPieces(v_back.data(), v_back.size());
  auto got = (*client)->Get(*ns, gets);
  if (!got.ok()) return Fail("get", got.status());
  if (!got->front().status.ok()) return Fail("get", got->front().status);
  if (k_back != k || v_back != v) return Fail("get", absl::DataLossError("other bytes came back"));
  std::printf("%s came back as %s\n", key.Hex().c_str(),
              std::string(firnkv::PrecisionName(got->front().served.Min())).c_str());
  return 0;
}
