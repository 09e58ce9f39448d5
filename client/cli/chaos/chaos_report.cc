#include "client/cli/chaos/chaos_report.h"

#include <cstdio>

#include "base/status.h"
#include "client/cli/support/output.h"

namespace firn::cli {
namespace {

constexpr const char* kCounters[] = {"ecc_corrected",   "ecc_uncorrectable", "damaged_reads",  "mended",
                                     "damage_degraded", "damage_withdrawn",  "scrubbed_copies"};

void AddAll(const std::map<std::string, uint64_t>& more, std::map<std::string, uint64_t>* sum) {
  for (const auto& [name, value] : more) (*sum)[name] += value;
}

std::string ListText(const std::map<std::string, uint64_t>& counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
  }
  return text.empty() ? "none" : text;
}

}  // namespace

void StatsSum::Take(const firnkv::Stats& stats) {
  last_counters_.clear();
  for (const firnkv::TierStats& tier : stats.tiers) {
    for (const char* name : kCounters) {
      auto counter = tier.counters.find(name);
      if (counter != tier.counters.end()) last_counters_[name] += counter->second;
    }
  }
  last_misses_ = stats.misses;
}

void StatsSum::Ended() {
  AddAll(last_counters_, &counters_);
  AddAll(last_misses_, &misses_);
  last_counters_.clear();
  last_misses_.clear();
}

std::map<std::string, uint64_t> StatsSum::Counters() const {
  auto sum = counters_;
  AddAll(last_counters_, &sum);
  return sum;
}

std::map<std::string, uint64_t> StatsSum::Misses() const {
  auto sum = misses_;
  AddAll(last_misses_, &sum);
  return sum;
}

void TakeTally(const Tally& tally, ChaosReport* report) {
  report->operations = {{"operations", tally.operations},
                        {"puts", tally.puts},
                        {"durable puts", tally.durable_puts},
                        {"gets", tally.gets},
                        {"hits", tally.hits},
                        {"misses", tally.misses},
                        {"deletes", tally.deletes},
                        {"lookups", tally.lookups},
                        {"flushes", tally.flushes},
                        {"without room", tally.full},
                        {"refused for lost copies", tally.refused},
                        {"unanswered", tally.unanswered}};
  report->wrong = tally.wrong;
  report->lost = tally.lost;
  report->came_back = tally.came_back;
  report->failed = tally.failed;
  report->lost_to_damage = tally.lost_to_damage;
}

Json ToJson(const ChaosReport& report) {
  Json operations = Json::object();
  for (const auto& [name, count] : report.operations) {
    std::string key = name;
    for (char& c : key) c = c == ' ' ? '_' : c;
    operations[key] = count;
  }
  return {{"good", report.good()},
          {"seed", report.seed},
          {"seconds", report.seconds},
          {"operations", operations},
          {"faults", report.faults},
          {"skipped", report.skipped},
          {"misses", report.misses},
          {"counters", report.counters},
          {"wrong_bytes", report.wrong},
          {"lost_durable", report.lost},
          {"deleted_came_back", report.came_back},
          {"failed", report.failed},
          {"lost_to_damage", report.lost_to_damage},
          {"starts", report.starts},
          {"ready_ms_max", report.ready_ms_max},
          {"scrub",
           {{"copies", report.scrub.copies},
            {"mended", report.scrub.mended},
            {"degraded", report.scrub.degraded},
            {"withdrawn", report.scrub.withdrawn},
            {"unread", report.scrub.unread}}},
          {"verify_consistent", report.consistent},
          {"finding_count", report.finding_count},
          {"findings", report.findings},
          {"events", report.events}};
}

void PrintReport(const ChaosReport& report) {
  Table table({"what", "count"});
  for (const auto& [name, count] : report.operations) table.Row({name, std::to_string(count)});
  table.Print();
  uint64_t faults = 0;
  for (const auto& [name, count] : report.faults) faults += count;
  fmt::print("\nfaults ({}): {}\n", faults, ListText(report.faults));
  for (const auto& [name, why] : report.skipped) fmt::print("  not injected: {}: {}\n", name, why);
  fmt::print("misses by reason, as the daemons count: {}\n", ListText(report.misses));
  fmt::print("healing, over all {} daemons of the run: {}\n", report.starts, ListText(report.counters));
  fmt::print("scrub at the end: {} copies, {} written anew, {} lost planes, {} let go, {} unread\n",
             report.scrub.copies, report.scrub.mended, report.scrub.degraded, report.scrub.withdrawn,
             report.scrub.unread);
  fmt::print("verify at the end: {}\n", report.consistent ? "consistent" : "DIFFERENCES");
  fmt::print("ready again after at most {} ms, of {} starts\n", report.ready_ms_max, report.starts);
  fmt::print("wrong bytes {}, lost durable blocks {}, deleted blocks that came back {}, answers that failed {}\n",
             report.wrong, report.lost, report.came_back, report.failed);
  fmt::print("durable blocks that damage of the medium took or made coarser, seen as such {}\n", report.lost_to_damage);
  for (const std::string& finding : report.findings) fmt::print("WRONG: {}\n", finding);
  if (report.finding_count > report.findings.size()) {
    fmt::print("WRONG: and {} more\n", report.finding_count - report.findings.size());
  }
  fmt::print("{} (seed {}, {:.1f} s)\n", report.good() ? "nothing was wrong" : "SOMETHING WAS WRONG", report.seed,
             report.seconds);
}

}  // namespace firn::cli
