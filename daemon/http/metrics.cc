#include "daemon/http/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "daemon/core/stat_table.h"

namespace firn {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

class Families {
 public:
  MetricFamily& Add(StatKind kind, const std::string& name, const char* help) {
    MetricFamily family;
    bool counter = kind == StatKind::kCounter;
    family.name = "firn_" + name + (counter ? "_total" : "");
    family.help = help;
    family.type = counter ? MetricType::Counter : MetricType::Gauge;
    families_.push_back(std::move(family));
    return families_.back();
  }
  static void Set(MetricFamily& family, double value, std::vector<ClientMetric::Label> labels = {}) {
    ClientMetric metric;
    metric.label = std::move(labels);
    (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    family.metric.push_back(std::move(metric));
  }
  void One(StatKind kind, const std::string& name, const char* help, double value,
           std::vector<ClientMetric::Label> labels = {}) {
    Set(Add(kind, name, help), value, std::move(labels));
  }
  MetricFamily& AddHistogram(const std::string& name, const char* help) {
    MetricFamily& family = Add(StatKind::kGauge, name, help);
    family.type = MetricType::Histogram;
    return family;
  }
  static void Set(MetricFamily& family, const LatencySnapshot& latency, std::vector<ClientMetric::Label> labels) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.histogram.sample_count = latency.count();
    metric.histogram.sample_sum = static_cast<double>(latency.sum_ns) / 1e9;
    uint64_t so_far = 0;
    for (size_t i = 0; i < latency.buckets.size(); ++i) {
      so_far += latency.buckets[i];
      bool last = i == kLatencyBoundsNs.size();
      double bound = last ? std::numeric_limits<double>::infinity() : static_cast<double>(kLatencyBoundsNs[i]) / 1e9;
      metric.histogram.bucket.push_back({so_far, bound});
    }
    family.metric.push_back(std::move(metric));
  }
  std::string Text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  std::vector<MetricFamily> families_;
};

double ResidentBytes() {
  unsigned long total = 0, resident = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%lu %lu", &total, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

void AddStore(const StoreStats& stats, Families* out) {
  for (const StoreStatRow& row : StoreStatTable()) {
    out->One(row.kind, row.name, row.help, static_cast<double>(stats.*row.value));
  }
  MetricFamily& misses = out->Add(StatKind::kCounter, "misses", "Gets answered without a block, by reason.");
  for (size_t i = 0; i < kMissReasons; ++i) {
    std::string reason(MissReasonName(static_cast<MissReason>(i)));
    Families::Set(misses, static_cast<double>(stats.misses[i]), {{"reason", reason}});
  }
  for (const TierStatRow& row : TierStatTable()) {
    MetricFamily& family = out->Add(row.kind, std::string("tier_") + row.name, row.help);
    for (const TierStats& tier : stats.tiers) {
      Families::Set(family, static_cast<double>(row.value(tier)), {{"tier", tier.name}});
    }
  }
  struct Timed {
    const char* name;
    const char* help;
    const LatencySnapshot& (*of)(const TierStats&);
  };
  constexpr Timed kTimed[] = {
      {"tier_read_seconds", "Reads of copies, from the call to the bytes, checks aside.",
       [](const TierStats& t) -> const LatencySnapshot& { return t.counters.read_latency; }},
      {"tier_write_seconds", "Writes of copies, from filled memory until they are there.",
       [](const TierStats& t) -> const LatencySnapshot& { return t.counters.commit_latency; }},
      {"tier_demotion_seconds", "Demotions into the tier that arrived: reading, re-coding, writing.",
       [](const TierStats& t) -> const LatencySnapshot& { return t.demotion_latency; }}};
  for (const Timed& timed : kTimed) {
    MetricFamily& family = out->AddHistogram(timed.name, timed.help);
    for (const TierStats& tier : stats.tiers) Families::Set(family, timed.of(tier), {{"tier", tier.name}});
  }
  MetricFamily& classes = out->Add(StatKind::kGauge, "tier_blocks", "Copies by the coarser class of K and V.");
  for (const TierStats& tier : stats.tiers) {
    for (PrecisionClass c : kReportedClasses) {
      Families::Set(classes, static_cast<double>(tier.blocks_by_class[static_cast<size_t>(c)]),
                    {{"tier", tier.name}, {"class", std::string(PrecisionClassName(c))}});
    }
  }
}

void AddService(ServiceCore& core, Families* out) {
  using enum StatKind;
  const RpcCounters& counters = core.counters();
  MetricFamily& calls = out->Add(kCounter, "rpcs", "Calls received, by method.");
  for (size_t i = 0; i < kMethods; ++i) {
    Families::Set(calls, static_cast<double>(counters.calls[i].load()), {{"method", std::string(kMethodNames[i])}});
  }
  MetricFamily& failures = out->Add(kCounter, "rpc_failures", "Calls that ended with an error, by method.");
  for (size_t i = 0; i < kMethods; ++i) {
    Families::Set(failures, static_cast<double>(counters.failures[i].load()),
                  {{"method", std::string(kMethodNames[i])}});
  }
  MetricFamily& latency =
      out->AddHistogram("rpc_seconds", "Time to answer, by method; of Put and Get, block by block.");
  for (size_t i = 0; i < kMethods; ++i) {
    if (!IsTimed(static_cast<Method>(i))) continue;
    Families::Set(latency, counters.latency[i].Snapshot(), {{"method", std::string(kMethodNames[i])}});
  }
  auto value = [](const std::atomic<uint64_t>& counter) { return static_cast<double>(counter.load()); };
  out->One(kCounter, "stalled_streams", "Streams ended because their client had stopped.",
           value(counters.stalled_streams));
  out->One(kCounter, "expired_leases", "Half-made puts ended because nothing arrived.", value(counters.expired_leases));
  out->One(kCounter, "received_payload_bytes", "Payload received.", value(counters.received_payload_bytes));
  out->One(kCounter, "sent_payload_bytes", "Payload handed to the transport.", value(counters.sent_payload_bytes));
  ByteBudget& transport = core.transport();
  out->One(kGauge, "transport_buffer_bytes", "Buffers of decoded and staged payload.",
           static_cast<double>(transport.used_bytes()));
  out->One(kGauge, "transport_waiting_bytes", "Buffers that streams wait for.",
           static_cast<double>(transport.waiting_bytes()));
  out->One(kGauge, "transport_budget_bytes", "Their limit.", static_cast<double>(transport.capacity_bytes()));
  ConnectionTable& connections = core.connections();
  out->One(kGauge, "connections", "Connections that are open, on all listeners.",
           static_cast<double>(connections.Count()));
  out->One(kGauge, "connections_limit", "Their limit.", static_cast<double>(connections.connections_max()));
  out->One(kCounter, "connections_refused", "Connections closed at once because there were too many.",
           value(connections.refused));
  out->One(kCounter, "accept_failures", "Times that the system could not accept a connection.",
           value(connections.accept_failures));
  out->One(kGauge, "client_sessions", "Sessions that clients hold open.", static_cast<double>(core.sessions().size()));
  out->One(kGauge, "ready", "1 while calls are answered, 0 while starting or stopping.",
           core.state() == ServiceCore::State::kServing ? 1 : 0);
}

void AddFacts(const MetricsInput& input, Families* out) {
  using enum StatKind;
  const Config& config = *input.config;
  out->One(kGauge, "build_info", "The version running.", 1, {{"version", input.core->version()}});
  out->One(kGauge, "config_info", "The configuration in force, by its SHA-256.", 1,
           {{"sha256", Sha256(AsBytes(PrintConfig(config))).Hex()}});
  MetricFamily& tiers =
      out->Add(kGauge, "tier_info", "How each tier is configured; `io` is how its files are read and written.");
  for (size_t i = 0; i < config.tiers.size(); ++i) {
    const TierSettings& tier = config.tiers[i];
    Families::Set(tiers, 1,
                  {{"tier", tier.name},
                   {"medium", MediumOf(tier)},
                   {"precision_k", std::string(PrecisionClassName(tier.precision.k))},
                   {"precision_v", std::string(PrecisionClassName(tier.precision.v))},
                   {"io", i < input.io_backends.size() ? input.io_backends[i] : ""}});
  }
  MetricFamily& healthy = out->Add(kGauge, "tier_healthy", "0 while writes or reads of the tier fail.");
  for (const TierSettings& tier : config.tiers) {
    bool fails = std::find(input.unhealthy.begin(), input.unhealthy.end(), tier.name) != input.unhealthy.end();
    Families::Set(healthy, fails ? 0 : 1, {{"tier", tier.name}});
  }
  out->One(kGauge, "start_time_seconds", "Start of the process, seconds since 1970.",
           static_cast<double>(input.started_unix_s));
  out->One(kGauge, "resident_bytes", "Resident memory of the process.", ResidentBytes());
}

void AddGpus(const MetricsInput& input, Families* out) {
  using enum StatKind;
  struct Row {
    StatKind kind;
    const char* name;
    const char* help;
    uint64_t (*of)(const GpuLink::Stats&);
  };
  constexpr Row kRows[] = {
      {kGauge, "gpu_up", "1 while the tier's child process serves.", [](const auto& s) { return uint64_t{s.up}; }},
      {kCounter, "gpu_starts", "Children started.", [](const auto& s) { return s.starts; }},
      {kCounter, "gpu_deaths", "Children that ended, or never got ready.", [](const auto& s) { return s.deaths; }},
      {kCounter, "gpu_jobs", "Jobs given to children.", [](const auto& s) { return s.jobs; }},
      {kCounter, "gpu_job_failures", "Jobs that failed, or whose child died.",
       [](const auto& s) { return s.jobs_failed; }},
      {kGauge, "gpu_jobs_waiting", "Jobs without an answer yet.", [](const auto& s) { return s.jobs_waiting; }}};
  for (const Row& row : kRows) {
    MetricFamily& family = out->Add(row.kind, row.name, row.help);
    for (const TierSettings& tier : input.config->tiers) {
      if (tier.medium != Medium::kGpu) continue;
      auto at = std::find_if(input.gpus.begin(), input.gpus.end(), [&](const auto& g) { return g.first == tier.name; });
      uint64_t value = at == input.gpus.end() ? 0 : row.of(at->second);
      Families::Set(family, static_cast<double>(value), {{"tier", tier.name}});
    }
  }
}

}  // namespace

std::string MetricsText(const MetricsInput& input) {
  Families families;
  AddFacts(input, &families);
  AddStore(*input.stats, &families);
  AddService(*input.core, &families);
  AddGpus(input, &families);
  return families.Text();
}

StoreStats ZeroStats(const Config& config) {
  StoreStats stats;
  for (const TierSettings& tier : config.tiers) stats.tiers.emplace_back().name = tier.name;
  return stats;
}

}  // namespace firn
