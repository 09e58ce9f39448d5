// What a caller may rely on once it was answered: pins, durable acknowledgements, one shape a key.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <thread>

#include "tiers/store/store_harness_test_util.h"

namespace firn {
namespace {

constexpr ClassPair kExactPair{PrecisionClass::kExact, PrecisionClass::kExact};

std::optional<absl::StatusOr<PutResult>> EnsureDurable(StoreHarness& h, uint64_t key) {
  std::optional<absl::StatusOr<PutResult>> result;
  h.store->EnsureDurable({h.ns, TestKey(key), 0}, [&](absl::StatusOr<PutResult> got) { result = std::move(got); });
  h.Settle();
  return result;
}

TEST(StorePromises, ABlockThatIsThereIsMadeDurable) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  PutSpec durable = h.Spec(1);
  durable.ack = AckLevel::kDurable;
  EXPECT_EQ(h.Put(durable, 1).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(h.tiers[2]->remembered(), 0u) << "saying so does not make it durable";
  auto ensured = EnsureDurable(h, 1);
  ASSERT_TRUE(ensured.has_value() && ensured->ok());
  EXPECT_FALSE((*ensured)->stored);
  EXPECT_EQ((*ensured)->stored_class, kExactPair);
  EXPECT_EQ((*ensured)->durable_class.Min(), PrecisionClass::k4Bit);
  EXPECT_EQ(h.tiers[2]->remembered(), 1u);
  // Once more costs a flush, not a copy.
  uint64_t demotions = h.store->Stats().tiers[2].demotions_in;
  ensured = EnsureDurable(h, 1);
  ASSERT_TRUE(ensured.has_value() && ensured->ok());
  EXPECT_EQ(h.store->Stats().tiers[2].demotions_in, demotions);
  ensured = EnsureDurable(h, 2);
  ASSERT_TRUE(ensured.has_value());
  EXPECT_EQ(ensured->status().code(), absl::StatusCode::kNotFound);
  h.ExpectConsistent();
}

// C30: the coarser block that a put refines is evicted, expires or is reclaimed while the put is on its way.
TEST(StorePromises, C30_a_refining_put_outlives_the_block_it_refines) {
  for (bool while_committing : {false, true}) {
    SCOPED_TRACE(while_committing ? "while committing" : "before the commit");
    StoreHarness h({.late_commits = true});
    PutSpec brief = h.Spec(1);
    brief.ttl_ms = 500;
    auto first = h.Put(brief, 1);
    ASSERT_TRUE(first.ok()) << Message(first.status());
    ASSERT_TRUE(h.Demote(1, 2).ok());
    auto put = h.store->BeginPut(h.Spec(1));
    ASSERT_TRUE(put.ok()) << Message(put.status());
    StoreHarness::FillPut(**put, 1);
    auto expire = [&] {
      h.clock.AdvanceMs(1000);
      h.store->Tick();
      EXPECT_EQ(h.store->Stats().blocks, 0u);
    };
    if (!while_committing) expire();
    std::optional<absl::StatusOr<PutResult>> result;
    h.store->CommitPut(*std::move(put), [&](absl::StatusOr<PutResult> got) { result = std::move(got); });
    if (while_committing) {
      ASSERT_TRUE(h.manual.RunOne());  // Sealed and given to the tier, which has not answered.
      ASSERT_FALSE(result.has_value());
      expire();
    }
    h.Settle();
    ASSERT_TRUE(result.has_value() && result->ok()) << (result.has_value() ? Message(result->status()) : "no answer");
    EXPECT_GT((*result)->generation, first->generation);
    auto got = h.Get(1, kExactPair);
    ASSERT_TRUE(got.ok()) << Message(got.status());
    EXPECT_EQ(h.RelativeError(*got, 1), 0.0);
    EXPECT_EQ(IntactRuns(got->block), got->block.present);
    h.ExpectConsistent();
  }
}

// A put that refines a block keeps its generation: a promotion of what was there before must not undo it.
TEST(StorePromises, ARefiningPutOutlastsAPromotionUnderWay) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Demote(1, 2).ok());
  auto put = h.store->BeginPut(h.Spec(1));
  ASSERT_TRUE(put.ok()) << Message(put.status());
  StoreHarness::FillPut(**put, 1);
  std::optional<absl::StatusOr<ClassPair>> promoted;
  std::optional<absl::StatusOr<PutResult>> result;
  h.store->Promote(h.ns, TestKey(1), 0, [&](absl::StatusOr<ClassPair> got) { promoted = std::move(got); });
  h.store->CommitPut(*std::move(put), [&](absl::StatusOr<PutResult> got) { result = std::move(got); });
  h.Settle();
  ASSERT_TRUE(result.has_value() && result->ok());
  EXPECT_EQ((*result)->stored_class, kExactPair);
  ASSERT_TRUE(promoted.has_value() && promoted->ok());
  EXPECT_EQ(**promoted, kExactPair) << "what is there now";
  auto got = h.Get(1, kExactPair);
  ASSERT_TRUE(got.ok()) << Message(got.status());
  EXPECT_EQ(h.RelativeError(*got, 1), 0.0);
  h.ExpectConsistent();
}

// A record is coded for its shard's heads: another shard's means would be added back, and an artifact may lack them.
TEST(StorePromises, APackedRecordBelongsToItsShard) {
  StoreHarness h;
  NamespaceFacts facts = StoreHarness::Facts();
  facts.model_id = "sharded";
  facts.shards = 4;
  NamespaceId ns = h.Register(facts);
  const BlockShape shape = facts.Shape(16);
  const size_t count = size_t{shape.layers} * shape.heads * 2 * shape.k_width;
  auto artifact = Artifact::CreateBalance(shape.layers, shape.heads * 2, shape.k_width, std::vector<float>(count, 0.5f),
                                          std::vector<float>(count, 1.0f));
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  h.store->PutArtifact(*artifact, [](absl::Status) {});
  h.Settle();
  std::vector<uint16_t> values = StoreHarness::Values(1, shape.part(Part::kK).values());
  ByteSpan bytes(reinterpret_cast<const uint8_t*>(values.data()), values.size() * 2);
  Identity identity;
  identity.shard = 1;
  auto source = WrapRaw(identity, DType::kFp16, shape, bytes, bytes, {}, {});
  ASSERT_TRUE(source.ok()) << source.status();
  EncodeSpec encode;
  encode.target = {PrecisionClass::k8Bit, PrecisionClass::k8Bit};
  encode.key_method = KeyMethod::kBalancedRotated;
  encode.balance = *artifact;
  auto coded = EncodeToHeap(*source, encode, h.store->artifacts());
  ASSERT_TRUE(coded.ok()) << coded.status();
  PutSpec spec = h.Spec(1);
  spec.address.ns = ns;
  for (uint16_t shard : {0, 1}) {
    spec.address.shard = shard;
    spec.packed = coded->header;
    EXPECT_EQ(h.store->BeginPut(spec).ok(), shard == 1) << shard;
  }
  auto lacking = std::make_shared<RecordHeader>(*coded->header);
  lacking->identity.shard = 3;
  spec.address.shard = 3;
  spec.packed = lacking;
  EXPECT_FALSE(h.store->BeginPut(spec).ok()) << "the artifact is of two shards";
}

TEST(StorePromises, APinThatComesDuringADemotionThatFailsHolds) {
  StoreHarness h;
  SessionId session = h.store->OpenSession("tenant");
  ASSERT_TRUE(h.Put(1).ok());
  h.tiers[1]->FailCommits(1 << 20, Unavailable("gone"));
  ASSERT_TRUE(h.store->SetCapacity(0, kTestBlockBytes / 2).ok());  // Pressure starts a move down.
  ASSERT_EQ(h.store->Stats().moves_in_flight, 1u);
  ASSERT_TRUE(h.store->Pin(h.ns, TestKey(1), session).ok());
  h.Settle();
  auto got = h.Get(1, kExactPair);
  EXPECT_TRUE(got.ok()) << Message(got.status());
  h.ExpectConsistent();
}

TEST(StorePromises, APinThatComesDuringADegradeOnDiskHolds) {
  StoreHarness h;
  SessionId session = h.store->OpenSession("tenant");
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Demote(1, 2).ok());
  const ClassPair int2{PrecisionClass::k2Bit, PrecisionClass::k2Bit},
      int4{PrecisionClass::k4Bit, PrecisionClass::k4Bit};
  std::optional<absl::StatusOr<ClassPair>> degraded;
  h.store->Degrade(h.ns, TestKey(1), 2, int2, [&](absl::StatusOr<ClassPair> got) { degraded = std::move(got); });
  ASSERT_EQ(h.store->Stats().moves_in_flight, 1u);
  ASSERT_TRUE(h.store->Pin(h.ns, TestKey(1), session).ok());
  h.Settle();
  ASSERT_TRUE(degraded.has_value());
  EXPECT_EQ(degraded->status().code(), absl::StatusCode::kFailedPrecondition) << degraded->status();
  auto got = h.Get(1, int4);
  EXPECT_TRUE(got.ok()) << Message(got.status());
  h.ExpectConsistent();
}

TEST(StorePromises, APinThatComesDuringADemotionHolds) {
  StoreHarness h;
  SessionId session = h.store->OpenSession("tenant");
  ASSERT_TRUE(h.Put(1).ok());
  std::optional<absl::StatusOr<ClassPair>> moved;
  h.store->Demote(h.ns, TestKey(1), 2, [&](absl::StatusOr<ClassPair> got) { moved = std::move(got); });
  ASSERT_TRUE(h.store->Pin(h.ns, TestKey(1), session).ok());
  h.Settle();
  ASSERT_TRUE(moved.has_value());
  auto got = h.Get(1);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->tier, 0);
  EXPECT_EQ(got->served, kExactPair);
  h.ExpectConsistent();
}

TEST(StorePromises, WhatIsPinnedIsNeitherDemotedNorDegraded) {
  StoreHarness h;
  SessionId session = h.store->OpenSession("tenant");
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Put(2).ok());
  ASSERT_TRUE(h.Demote(2, 1).ok());
  for (uint64_t key : {1, 2}) ASSERT_TRUE(h.store->Pin(h.ns, TestKey(key), session).ok());
  EXPECT_EQ(h.Demote(1, 1).status().code(), absl::StatusCode::kFailedPrecondition);
  absl::Status degraded = h.Degrade(2, 1, PrecisionClass::k4Bit).status();
  EXPECT_EQ(degraded.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(Message(degraded).find("pinned 1 times"), std::string::npos) << degraded;
  EXPECT_EQ(h.Get(2)->served.Min(), PrecisionClass::k8Bit);
  h.store->CloseSession(session);
  EXPECT_TRUE(h.Demote(1, 1).ok());
  EXPECT_TRUE(h.Degrade(2, 1, PrecisionClass::k4Bit).ok());
  h.ExpectConsistent();
}

// Dropping planes on the way down is a loss like any other, although nothing is encoded.
TEST(StorePromises, C13_an_error_limit_holds_where_planes_are_dropped) {
  StoreHarness h;
  PrecisionPlan plan;
  plan.max_relative_error = 0.02f;  // INT8 is within it, INT4 is not.
  h.Register(StoreHarness::Facts(), plan);
  ASSERT_TRUE(h.Put(1).ok());
  EXPECT_EQ(h.Demote(1, 1)->Min(), PrecisionClass::k8Bit);
  EXPECT_EQ(h.Demote(1, 2)->Min(), PrecisionClass::k8Bit) << "INT8 in warm, INT4 wanted in cold";
  EXPECT_EQ(h.store->Stats().error_gate_stops, 1u);
  EXPECT_EQ(h.Get(1)->served.Min(), PrecisionClass::k8Bit);
  absl::Status refused = h.Degrade(1, 2, PrecisionClass::k2Bit).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(Message(refused).find("error limit of 0.02"), std::string::npos) << refused;
  EXPECT_EQ(h.Get(1)->served.Min(), PrecisionClass::k8Bit);
  EXPECT_LT(h.RelativeError(*h.Get(1), 1), 0.02);
  h.ExpectConsistent();
}

TEST(StorePromises, DegradingPastALimitIsRefusedWithTheLimit) {
  StoreHarness h;
  auto refuses = [&h](uint64_t key, uint8_t tier, PrecisionClass to, absl::StatusCode code, const std::string& why) {
    absl::Status status = h.Degrade(key, tier, to).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(Message(status).find(why), std::string::npos) << status;
  };
  constexpr auto kNotNow = absl::StatusCode::kFailedPrecondition;
  ASSERT_TRUE(h.Put(1).ok());
  refuses(1, 0, PrecisionClass::k8Bit, kNotNow, "its copy in tier \"hot\" is whole");
  ASSERT_TRUE(h.Demote(1, 1).ok());
  refuses(1, 1, PrecisionClass::k2Bit, kNotNow, "from int8 to int2: tier \"warm\" has least = int4");
  for (PrecisionClass c : {PrecisionClass::kExact, PrecisionClass::k3Bit, PrecisionClass::kNone}) {
    refuses(1, 1, c, absl::StatusCode::kInvalidArgument, "allowed: int8, int4, int2");
  }
  EXPECT_EQ(h.Get(1)->served.Min(), PrecisionClass::k8Bit);
  // As coarse already is no refusal, and changes nothing.
  EXPECT_EQ(h.Degrade(1, 1, PrecisionClass::k4Bit)->Min(), PrecisionClass::k4Bit);
  uint64_t degrades = h.store->Stats().tiers[1].degrades;
  EXPECT_EQ(h.Degrade(1, 1, PrecisionClass::k4Bit)->Min(), PrecisionClass::k4Bit);
  EXPECT_EQ(h.Degrade(1, 1, PrecisionClass::k8Bit)->Min(), PrecisionClass::k4Bit);
  EXPECT_EQ(h.store->Stats().tiers[1].degrades, degrades);

  // What no codec may touch.
  NamespaceFacts bytes = StoreHarness::Facts();
  bytes.dtype = DType::kBytes;
  h.ns = h.Register(bytes);
  ASSERT_TRUE(h.Put(2).ok());
  ASSERT_TRUE(h.Demote(2, 2).ok());
  refuses(2, 2, PrecisionClass::k4Bit, kNotNow, "values of dtype");
  EXPECT_EQ(h.Get(2)->served, kExactPair);
  h.ExpectConsistent();
}

TEST(StorePromises, DescribingReadsTheErrorsThatOnlyThePersistentTierHas) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Put(2).ok());
  ASSERT_TRUE(h.Demote(1, 1).ok());
  ClassErrors warm = h.store->Describe(h.ns, TestKey(1))->front().errors[0];
  EXPECT_GT(warm.int4, warm.int8);
  ASSERT_TRUE(h.Demote(1, 2).ok());
  EXPECT_TRUE(std::isnan(h.store->Describe(h.ns, TestKey(1))->front().errors[0].int4));
  auto describe = [&h](std::vector<Digest> keys) {
    std::optional<std::vector<Store::Description>> answers;
    h.store->DescribeWithErrors(h.ns, keys, h.clock.NowNs() + 1'000'000'000, ~uint64_t{0},
                                [&](std::vector<Store::Description> got) { answers = std::move(got); });
    h.Settle();
    EXPECT_TRUE(answers.has_value());
    return *std::move(answers);
  };
  auto answers = describe({TestKey(1), TestKey(7), TestKey(2)});
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0]->front().errors[0].int8, warm.int8);
  EXPECT_EQ(answers[0]->front().errors[0].int4, warm.int4);
  EXPECT_GT(answers[0]->front().errors[1].int2, answers[0]->front().errors[1].int4);
  EXPECT_EQ(answers[1].status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(std::isnan(answers[2]->front().errors[0].int4)) << "it was never encoded";
  EXPECT_TRUE(describe({}).empty());
  // More at once than are read at once.
  std::vector<Digest> many(300, TestKey(1));
  for (const auto& answer : describe(many)) EXPECT_EQ(answer->front().errors[0].int4, warm.int4);
  // A header that cannot be read takes the errors, not the answer.
  h.tiers[2]->FailReads(1, Unavailable("the disk is away"));
  answers = describe({TestKey(1)});
  ASSERT_TRUE(answers[0].ok());
  EXPECT_TRUE(std::isnan(answers[0]->front().errors[0].int4));
  h.ExpectConsistent();
}

TEST(StorePromises, AKeyHasOneNumberOfTokens) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1, 16).ok());
  absl::Status other = h.Put(1, 8).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(Message(other).find("has 16 tokens; 8 were put"), std::string::npos) << other;
  ASSERT_TRUE(h.store->Delete(h.ns, TestKey(1)).ok());
  EXPECT_TRUE(h.Put(1, 8).ok());
  h.ExpectConsistent();
}

TEST(StorePromises, ANamespaceThatWasNotWrittenIsWrittenNextTime) {
  StoreHarness h;
  std::vector<std::string> written;
  absl::Status outcome = ResourceExhausted("full");
  h.store->SetFactWriter([&](std::string kind, std::string, std::vector<uint8_t>, auto done) {
    written.push_back(kind);
    done(outcome);
  });
  NamespaceFacts facts = StoreHarness::Facts();
  facts.model_id = "other";
  auto start = [&] {
    absl::Status status = InternalError("no answer");
    h.store->RegisterNamespace(facts, {}, [&](absl::StatusOr<NamespaceId> got) { status = got.status(); });
    return status;
  };
  EXPECT_EQ(start().code(), absl::StatusCode::kResourceExhausted);
  outcome = absl::OkStatus();
  EXPECT_TRUE(start().ok());
  EXPECT_TRUE(start().ok());
  EXPECT_EQ(written.size(), 2u) << "once more after the failure, and not again";
}

std::shared_ptr<const Artifact> ArtifactOf(float mean, uint32_t width) {
  return *Artifact::CreateBalance(1, 1, width, std::vector<float>(width, mean), std::vector<float>(width, 1));
}

TEST(StorePromises, ArtifactsAreKeptOnceWrittenAndUpToALimit) {
  StoreHarness h({.artifacts_bytes_max = 40'000});
  absl::Status outcome = ResourceExhausted("full");
  size_t written = 0;
  h.store->SetFactWriter([&](std::string, std::string, std::vector<uint8_t>, auto done) {
    ++written;
    done(outcome);
  });
  auto put = [&](const std::shared_ptr<const Artifact>& artifact) {
    absl::Status status = InternalError("no answer");
    h.store->PutArtifact(artifact, [&](absl::Status got) { status = std::move(got); });
    return status;
  };
  for (int i = 0; i < 20; ++i) {
    auto artifact = ArtifactOf(static_cast<float>(i), 1000);  // About 8 KB.
    EXPECT_EQ(Message(put(artifact)), "full") << "what was not kept counts against nothing";
    EXPECT_EQ(h.store->artifacts().Find(artifact->digest()), nullptr);
  }
  EXPECT_EQ(written, 20u);
  outcome = absl::OkStatus();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(put(ArtifactOf(static_cast<float>(i), 1000)).ok());
  EXPECT_NE(h.store->artifacts().Find(ArtifactOf(0, 1000)->digest()), nullptr);
  absl::Status refused = put(ArtifactOf(4, 1000));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(Message(refused).find("at most 40000 in all, limits.artifacts"), std::string::npos) << refused;
  EXPECT_EQ(written, 24u);
  EXPECT_TRUE(put(ArtifactOf(3, 1000)).ok()) << "known already";
  EXPECT_TRUE(put(ArtifactOf(4, 100)).ok()) << "it fits";
  StoreHarness small({.cold_bytes = 160'000});
  refused = InternalError("no answer");
  small.store->PutArtifact(ArtifactOf(0, 2000), [&](absl::Status got) { refused = std::move(got); });
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(Message(refused).find("at most 10000 in all, 1/16 of the persistent tier"), std::string::npos) << refused;
}

TEST(StorePromises, ARemovedNamespaceIsGoneAndMakesRoomForAnother) {
  StoreHarness h;
  std::map<std::string, std::vector<uint8_t>> facts;
  h.store->SetFactWriter([&](std::string, std::string name, std::vector<uint8_t> value, auto done) {
    facts[name] = std::move(value);
    done(absl::OkStatus());
  });
  NamespaceFacts other = StoreHarness::Facts();
  other.model_id = "other";
  NamespaceId ns = h.Register(other);
  PutSpec spec = h.Spec(1);
  spec.address.ns = ns;
  ASSERT_TRUE(h.Put(spec, 1).ok());
  ASSERT_TRUE(h.Put(1).ok());
  PutSpec second = h.Spec(2);
  second.address.ns = ns;
  auto half_made = h.store->BeginPut(second);
  ASSERT_TRUE(half_made.ok());
  std::optional<absl::StatusOr<uint64_t>> removed;
  h.store->RemoveNamespace(ns, [&](absl::StatusOr<uint64_t> got) { removed = std::move(got); });
  h.Settle();
  ASSERT_TRUE(removed.has_value() && removed->ok());
  EXPECT_EQ(**removed, 1u);
  EXPECT_EQ(facts.size(), 1u);
  EXPECT_TRUE(facts.begin()->second.empty());
  EXPECT_EQ(h.store->Stats().namespaces, 1u);
  EXPECT_EQ(h.store->ListNamespaces("tenant").size(), 1u);
  EXPECT_FALSE(h.store->FindNamespace(NamespaceFingerprint(other)).ok());
  EXPECT_EQ(h.Put(spec, 1).status().code(), absl::StatusCode::kNotFound);
  std::optional<absl::Status> committed;
  h.FillPut(**half_made, 2);
  h.store->CommitPut(*std::move(half_made), [&](absl::StatusOr<PutResult> got) { committed = got.status(); });
  h.Settle();
  EXPECT_EQ(committed->code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(h.Get(1).ok()) << "another namespace's block of the same key";
  NamespaceId again = h.Register(other);
  EXPECT_NE(again, ns);
  EXPECT_FALSE(h.store->Pin(again, TestKey(1), h.store->OpenSession("tenant")).ok());
  h.ExpectConsistent();
}

TEST(StorePromises, APlanNamesWhatThereIs) {
  StoreHarness h;
  NamespaceFacts facts = StoreHarness::Facts();
  facts.model_id = "other";
  auto start = [&](const PrecisionPlan& plan) {
    absl::Status status = InternalError("no answer");
    h.store->RegisterNamespace(facts, plan, [&](absl::StatusOr<NamespaceId> got) { status = got.status(); });
    return status;
  };
  PrecisionPlan elsewhere;
  elsewhere.tier_target["attic"] = {PrecisionClass::k4Bit, PrecisionClass::k4Bit};
  absl::Status refused = start(elsewhere);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(Message(refused).find("\"attic\""), std::string::npos) << refused;
  PrecisionPlan unused;
  unused.balance = TestKey(1);
  EXPECT_EQ(start(unused).code(), absl::StatusCode::kInvalidArgument);
  // One that was given while the chain had the tier stays with its blocks, and may be given again.
  h.store->RecoverFacts({{"namespace", NamespaceFingerprint(facts).Hex(), SerializeNamespace(facts, elsewhere)}});
  EXPECT_TRUE(h.store->FindNamespace(NamespaceFingerprint(facts)).ok());
  EXPECT_TRUE(start(elsewhere).ok());
}

TEST(StorePromises, ARegistrationThatARemovalOvertookSaysSo) {
  StoreHarness h;
  absl::AnyInvocable<void(absl::Status)> write;
  h.store->SetFactWriter([&](std::string, std::string, std::vector<uint8_t> value, auto done) {
    if (value.empty()) return done(absl::OkStatus());
    write = std::move(done);
  });
  NamespaceFacts facts = StoreHarness::Facts();
  facts.model_id = "other";
  absl::Status registered;
  h.store->RegisterNamespace(facts, {}, [&](absl::StatusOr<NamespaceId> got) { registered = got.status(); });
  h.store->RemoveNamespace(*h.store->FindNamespace(NamespaceFingerprint(facts)), [](absl::StatusOr<uint64_t>) {});
  h.Settle();
  write(absl::OkStatus());
  EXPECT_EQ(registered.code(), absl::StatusCode::kAborted) << registered;
  h.ExpectConsistent();
}

TEST(StorePromises, FactsAreWrittenInTheOrderOfTheDecisions) {
  StoreHarness h;
  NamespaceFacts facts = StoreHarness::Facts();
  facts.model_id = "other";
  std::vector<std::string> written;
  std::optional<absl::Status> removed;
  h.store->SetFactWriter([&](std::string, std::string, std::vector<uint8_t> value, auto done) {
    if (!value.empty() && written.empty()) {
      // Between deciding on the namespace and writing it, another thread removes it.
      std::thread([&] {
        h.store->RemoveNamespace(*h.store->FindNamespace(NamespaceFingerprint(facts)),
                                 [&](absl::StatusOr<uint64_t> got) { removed = got.status(); });
      }).join();
    }
    written.push_back(value.empty() ? "removed" : "registered");
    done(absl::OkStatus());
  });
  absl::Status registered;
  h.store->RegisterNamespace(facts, {}, [&](absl::StatusOr<NamespaceId> got) { registered = got.status(); });
  h.Settle();
  EXPECT_EQ(written, (std::vector<std::string>{"registered", "removed"}));
  EXPECT_EQ(registered.code(), absl::StatusCode::kAborted);
  ASSERT_TRUE(removed.has_value());
  EXPECT_TRUE(removed->ok()) << *removed;
  h.ExpectConsistent();
}

// A later build may refuse a plan that this one took: its namespace keeps its blocks all the same.
TEST(StorePromises, ANamespaceOutlivesAPlanThatIsRefused) {
  NamespaceFacts facts = StoreHarness::Facts();
  PrecisionPlan plan;
  plan.floor = {PrecisionClass::k8Bit, PrecisionClass::k8Bit};
  plan.key_method = KeyMethod::kBalancedRotated;
  plan.balance = TestKey(9);  // An artifact that is not there.
  StoreHarness h;
  facts.model_id = "other";
  h.store->RecoverFacts({{"namespace", NamespaceFingerprint(facts).Hex(), SerializeNamespace(facts, plan)}});
  auto ns = h.store->FindNamespace(NamespaceFingerprint(facts));
  ASSERT_TRUE(ns.ok()) << ns.status();
  EXPECT_EQ(h.store->Plan(*ns)->key_method, KeyMethod::kPerChannel);
  EXPECT_EQ(h.store->Plan(*ns)->floor, plan.floor) << "no coarser than was promised";
}

TEST(StorePromises, PositionsFitTheirField) {
  StoreHarness h;
  PutSpec spec = h.Spec(1);
  spec.first_token = std::numeric_limits<uint32_t>::max() - 16;
  ASSERT_TRUE(h.Put(spec, 1).ok());
  EXPECT_TRUE(h.Demote(1, 2).ok());
  spec = h.Spec(2);
  spec.first_token = std::numeric_limits<uint32_t>::max() - 15;
  absl::Status refused = h.Put(spec, 2).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(Message(refused).find("first_token = 4294967280"), std::string::npos) << refused;
  h.ExpectConsistent();
}

}  // namespace
}  // namespace firn
