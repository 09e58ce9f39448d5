// The configuration against a machine that the test states: everything that a start would refuse, at once, with key,
// value, what is allowed and the line (case C62).
#include "daemon/config/check/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/status.h"
#include "daemon/config/check/address.h"

namespace firn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// /files/* are files, /sockets/* sockets, /sealed/* cannot be written; everything else is missing and can be made.
PlaceFacts PlaceOf(const std::string& path) {
  PlaceFacts place;
  place.real = std::filesystem::path(path).lexically_normal().string();
  if (place.real.starts_with("/files/")) place.kind = PlaceKind::kRegular;
  if (place.real.starts_with("/sockets/")) place.kind = PlaceKind::kSocket;
  if (place.real.starts_with("/sealed")) place.obstacle = "cannot write in /sealed: Permission denied";
  if (place.real == "/sockets" || place.real == "/data") place.kind = PlaceKind::kDirectory;
  return place;
}

Machine SmallMachine() {
  Machine machine;
  machine.ram_bytes = 8 * kGiB;
  machine.numa_nodes = {0, 1};
  machine.disk = [](const std::string& path) -> absl::StatusOr<DiskFacts> {
    if (path.starts_with("/root")) return DiskFacts{100 * kGiB, 50 * kGiB, 0, true, false};
    if (path.starts_with("/full")) return DiskFacts{100 * kGiB, kGiB, 3 * kGiB, false, path == "/full/used"};
    return DiskFacts{100 * kGiB, 50 * kGiB, 10 * kGiB, false, false};
  };
  machine.group_exists = [](const std::string& group) { return group == "firn"; };
  machine.place = PlaceOf;
  machine.cxl_place = [](const std::string& path, uint64_t) {
    return path.starts_with("/files/") ? FailedPrecondition("{} holds something else", path) : absl::OkStatus();
  };
  machine.gpu = [](uint32_t device, bool is_cpu) {
    return is_cpu || device == 0 ? absl::OkStatus() : NotFound("no GPU {}", device);
  };
  machine.can_listen_on = [](const std::string& host) {
    return IsLoopback(host) || host == "0.0.0.0" || host == "10.0.0.1" ? absl::OkStatus()
                                                                       : NotFound("no address {}", host);
  };
  machine.read_file = [](const std::string& path) -> absl::StatusOr<std::string> {
    if (path.starts_with("/files/")) return std::string("nonsense");
    return NotFound("open {}: not there", path);
  };
  return machine;
}

std::string Tier(const std::string& more, const std::string& capacity = "\"64MiB\"") {
  return "[[tier]]\nname = \"t\"\nmedium = \"dram\"\ncapacity = " + capacity + "\n" + more + "\n";
}

std::string Cold(const std::string& path, const std::string& capacity) {
  return Tier("") + "[[tier]]\nname = \"c\"\nmedium = \"nvme\"\nprecision = \"int4\"\npath = \"" + path +
         "\"\ncapacity = \"" + capacity + "\"\n";
}

std::string Cxl(const std::string& path) {
  return "[[tier]]\nname = \"x\"\nmedium = \"cxl\"\ncapacity = \"64MiB\"\npath = \"" + path + "\"\n";
}

std::string Listener(const std::string& keys) { return "[[listener]]\n" + keys + "\n"; }

std::string VerdictOf(const std::string& text, std::string* warnings = nullptr) {
  auto reading = ReadConfig(text, "test.toml", {"/state", "/run/x"});
  EXPECT_TRUE(reading.ok()) << reading.status();
  if (!reading.ok()) return "";
  ConfigVerdict verdict = CheckConfig(*reading, SmallMachine());
  std::string errors;
  for (const Finding& error : verdict.errors) {
    EXPECT_THAT(error.what, HasSubstr("allowed")) << FindingText(error);
    errors += FindingText(error) + "\n";
  }
  if (warnings != nullptr) {
    for (const Finding& warning : verdict.warnings) *warnings += FindingText(warning) + "\n";
  }
  return errors;
}

TEST(CheckConfig, TheDefaultIsAccepted) {
  std::string warnings;
  EXPECT_EQ(VerdictOf("", &warnings), "");
  EXPECT_EQ(warnings, "");
}

TEST(CheckConfig, C62_settings_are_compared_with_the_machine) {
  EXPECT_THAT(VerdictOf(Tier("", "\"9GiB\"")),
              AllOf(HasSubstr("tier[0].capacity = \"9GiB\""), HasSubstr("allowed: 8.00 GiB"), HasSubstr("(line 4)")));
  EXPECT_THAT(VerdictOf(Tier("numa_node = 7")),
              AllOf(HasSubstr("tier[0].numa_node = 7"), HasSubstr("allowed: 0, 1"), HasSubstr("(line 5)")));
  EXPECT_THAT(VerdictOf(Cold("/data", "61GiB")), AllOf(HasSubstr("tier[1].capacity"), HasSubstr("allowed: 60.00 GiB")));
  EXPECT_EQ(VerdictOf(Cold("/data", "60GiB")), "");
  EXPECT_THAT(VerdictOf(Cold("/root/x", "41GiB")), AllOf(HasSubstr("root disk"), HasSubstr("allowed: 40.00 GiB")));
  std::string warnings;
  EXPECT_EQ(VerdictOf(Cold("/root/x", "1GiB"), &warnings), "");
  EXPECT_THAT(warnings, HasSubstr("tier[1].path = \"/root/x\": is on the root disk"));
  EXPECT_THAT(VerdictOf(Listener("uds = \"/s\"\ngroup = \"nobodys\"")), HasSubstr("no such group"));
  EXPECT_EQ(VerdictOf(Listener("uds = \"/s\"\ngroup = \"firn\"")), "");
}

// A disk that something else filled must not keep what is stored from being served.
TEST(CheckConfig, AFullDiskRefusesNewTiersOnly) {
  std::string warnings;
  EXPECT_THAT(VerdictOf(Cold("/full/fresh", "8GiB")), AllOf(HasSubstr("tier[1].capacity"), HasSubstr("4.00 GiB")));
  EXPECT_EQ(VerdictOf(Cold("/full/used", "8GiB"), &warnings), "");
  EXPECT_THAT(warnings, AllOf(HasSubstr("tier[1].capacity = \"8GiB\""), HasSubstr("allowed: 4.00 GiB"),
                              HasSubstr("when there is room")));
  EXPECT_THAT(VerdictOf(Cold("/full/used", "101GiB")), HasSubstr("tier[1].capacity")) << "the disk is smaller";
}

// Buffers of nvme tiers are memory, too.
TEST(CheckConfig, MemoryOfNvmeTiersCounts) {
  std::string most = "[[tier]]\nname = \"h\"\nmedium = \"dram\"\ncapacity = \"8191MiB\"\n";
  EXPECT_EQ(VerdictOf(most), "");
  std::string cold = "[[tier]]\nname = \"c\"\nmedium = \"nvme\"\npath = \"/data\"\ncapacity = \"1GiB\"\n";
  EXPECT_THAT(VerdictOf(most + cold),
              AllOf(HasSubstr("tier[0].capacity = \"8191MiB\""), HasSubstr("buffers of tiers on nvme")));
  std::string warnings;
  EXPECT_EQ(VerdictOf("[[tier]]\nname = \"h\"\nmedium = \"dram\"\ncapacity = \"7GiB\"\n" + cold, &warnings), "");
  EXPECT_THAT(warnings, AllOf(HasSubstr("7.00 GiB of tiers in memory"), HasSubstr("of 8.00 GiB of memory")));
}

std::string Gpu(const std::string& name, int device, const std::string& more = "") {
  return "[[tier]]\nname = \"" + name + "\"\nmedium = \"gpu:" + std::to_string(device) + "\"\ncapacity = \"80GiB\"\n" +
         more + "\n";
}

TEST(CheckConfig, GpusComeFirstAndHaveMemoryBehindThem) {
  EXPECT_EQ(VerdictOf(Gpu("g", 0) + Tier("")), "") << "what a GPU has is not this machine's memory";
  EXPECT_THAT(VerdictOf(Gpu("g", 1) + Tier("")), AllOf(HasSubstr("tier[0].medium"), HasSubstr("no GPU 1")));
  EXPECT_EQ(VerdictOf(Gpu("g", 1, "backend = \"cpu\"") + Tier("")), "");
  EXPECT_THAT(VerdictOf(Gpu("g", 0)), AllOf(HasSubstr("tier[0].medium"), HasSubstr("somewhere to go")));
  EXPECT_THAT(VerdictOf(Tier("") + Gpu("g", 0) + "[[tier]]\nname = \"u\"\nmedium = \"dram\"\ncapacity = \"1GiB\""),
              AllOf(HasSubstr("tier[1].medium"), HasSubstr("tiers on GPUs first")));
  EXPECT_THAT(VerdictOf(Gpu("g", 0) + Gpu("h", 0) + Tier("")), HasSubstr("one tier a GPU"));
  EXPECT_THAT(VerdictOf(Gpu("g", 0, "staging = \"9GiB\"") + Tier("")), HasSubstr("tier[1].capacity"));
}

TEST(CheckConfig, TheChainGoesHotToCold) {
  EXPECT_THAT(VerdictOf(Tier("") + Tier("")), HasSubstr("another tier has this name"));
  EXPECT_THAT(VerdictOf(Tier("precision = \"int4\"") +
                        "[[tier]]\nname = \"u\"\nmedium = \"dram\"\ncapacity = \"1GiB\"\nprecision = \"int8\""),
              AllOf(HasSubstr("tier[1].precision = \"int8\""), HasSubstr("finer than the hotter tier \"t\"")));
  EXPECT_THAT(VerdictOf("[[tier]]\nname = \"c\"\nmedium = \"nvme\"\npath = \"/data\"\ncapacity = \"1GiB\""),
              HasSubstr("the hottest tier must be memory"));
  EXPECT_THAT(VerdictOf(Cold("/data", "1GiB") +
                        "[[tier]]\nname = \"d\"\nmedium = \"nvme\"\nprecision = \"int4\"\npath = \"/other\"\n" +
                        "capacity = \"1GiB\"\n"),
              AllOf(HasSubstr("tier[2].medium = \"nvme\""), HasSubstr("allowed: one tier on nvme, the last")));
  EXPECT_THAT(VerdictOf("tier = []"), HasSubstr("tier = []: 0 tiers; allowed: 1 to 8 (line 1)"));
}

TEST(CheckConfig, PlacesMustBeWhatTheyAreUsedAs) {
  for (const auto& [text, key] : std::initializer_list<std::pair<std::string, std::string>>{
           {Cold("/files/f", "1GiB"), "tier[1].path = \"/files/f\""},
           {Cold("/sealed/c", "1GiB"), "tier[1].path = \"/sealed/c\""},
           {Cxl("/files/f"), "tier[0].path = \"/files/f\""},
           {"state_dir = \"/files/f\"", "state_dir = \"/files/f\""},
           {"state_dir = \"/sealed\"", "state_dir = \"/sealed\""},
           {"runtime_dir = \"/files/f\"", "runtime_dir = \"/files/f\""},
           {"runtime_dir = \"/sealed/r\"\n" + Listener("uds = \"/s\""), "runtime_dir = \"/sealed/r\""},
           {Listener("uds = \"/files/f\""), "listener[0].uds = \"/files/f\""},
           {Listener("uds = \"/data\""), "listener[0].uds = \"/data\""},
           {Listener("uds = \"/sealed/s\""), "listener[0].uds = \"/sealed/s\""}}) {
    EXPECT_THAT(VerdictOf(text), AllOf(HasSubstr(key), HasSubstr("(line "))) << text;
  }
  EXPECT_EQ(VerdictOf(Listener("uds = \"/sockets/s\"")), "");
  EXPECT_EQ(VerdictOf(Cxl("/new")), "");
}

TEST(CheckConfig, WhatCannotBeListenedOnAtOnceIsRefused) {
  auto tcp = [](const char* address) { return Listener(fmt::format("tcp = \"{}\"", address)); };
  EXPECT_THAT(VerdictOf(tcp("127.0.0.1:7000") + tcp("localhost:7000")), HasSubstr("listener[0] has this address"));
  EXPECT_THAT(VerdictOf("admin.http = \"127.0.0.1:7000\"\n" + tcp("localhost:7000")), HasSubstr("admin.http"));
  EXPECT_EQ(VerdictOf(tcp("127.0.0.1:7000") + tcp("127.0.0.2:7000") + tcp("127.0.0.1:0") + tcp("127.0.0.1:0")), "");
  EXPECT_THAT(VerdictOf(Listener("uds = \"/x\"") + Listener("uds = \"/x.lock\"")),
              HasSubstr("listener[0] has this path"));
  EXPECT_THAT(VerdictOf(Listener("uds = \"/x.lock\"") + Listener("uds = \"/x\"")), HasSubstr("the path of its lock"));
  EXPECT_THAT(VerdictOf("state_dir = \"/state\"\n" + Listener("uds = \"/state/firnd.lock\"")),
              HasSubstr("the state directory's lock"));
}

TEST(CheckConfig, TwoNamesOfOnePlaceAreOnePlace) {
  EXPECT_THAT(VerdictOf(Listener("uds = \"/x\"") + Listener("uds = \"/./y/../x\"")),
              AllOf(HasSubstr("listener[1].uds = \"/./y/../x\""), HasSubstr("listener[0] has this path")));
  EXPECT_THAT(VerdictOf(Cold("/data", "1GiB") + "[[tier]]\nname = \"d\"\nmedium = \"nvme\"\nprecision = \"int4\"\n" +
                        "path = \"/x/../data\"\ncapacity = \"1GiB\"\n"),
              HasSubstr("tier[2].path = \"/x/../data\""));
  const std::string any = Listener("tcp = \"127.0.0.1:0\""), one = Listener("tcp = \"127.0.0.1:80\"");
  EXPECT_EQ(VerdictOf(any + any), "");
  EXPECT_THAT(VerdictOf(one + one), HasSubstr("listener[1].tcp"));
}

TEST(CheckConfig, AddressesAreOfThisMachine) {
  EXPECT_THAT(VerdictOf(Listener("tcp = \"0.0.0.0:1\"")),
              AllOf(HasSubstr("listener[0].tcp = \"0.0.0.0:1\""), HasSubstr("mutual TLS")));
  EXPECT_EQ(VerdictOf(Listener("tcp = \"[::1]:1\"")), "");
  EXPECT_THAT(VerdictOf(Listener("tcp = \"127.0.0.1:70000\"")), HasSubstr("port 0 to 65535"));
  EXPECT_THAT(VerdictOf("[admin]\nhttp = \"0.0.0.0:9411\""), HasSubstr("admin.expose"));
  EXPECT_EQ(VerdictOf("[admin]\nhttp = \"0.0.0.0:9411\"\nexpose = true"), "");
  EXPECT_THAT(VerdictOf("[admin]\nhttp = \"999.1.1.1:80\"\nexpose = true"), HasSubstr("a numeric address"));
  EXPECT_THAT(VerdictOf("[admin]\nhttp = \"10.9.9.9:80\"\nexpose = true"),
              AllOf(HasSubstr("admin.http = \"10.9.9.9:80\""), HasSubstr("an address of this machine")));
}

TEST(CheckConfig, FilesOfTlsAreLookedAt) {
  const std::string missing = VerdictOf(
      Listener("tcp = \"10.0.0.1:1\"\ncertificate = \"/c\"\nprivate_key = \"/k\"\nclient_ca = \"/files/garbage\""));
  EXPECT_THAT(missing, AllOf(HasSubstr("listener[0].certificate = \"/c\": open /c: not there"),
                             HasSubstr("listener[0].private_key = \"/k\""),
                             HasSubstr("listener[0].client_ca = \"/files/garbage\": holds no certificate in PEM")));
}

// What decides who may talk to the daemon without TLS.
TEST(CheckConfig, OnlyNumbersAndLocalhostAreLoopback) {
  for (const char* host : {"127.0.0.1", "127.255.0.9", "::1", "0:0::1", "localhost"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"127.0.0.1.example.com", "127.example.com", "127.1", "127", "0x7f.0.0.1", "0.0.0.0",
                           "::", "::ffff:127.0.0.1", "localhost.", "LOCALHOST.example.com", "128.0.0.1", ""}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
  for (const char* tcp : {"127.0.0.1.example.com:7654", "127.1:7654"}) {
    EXPECT_THAT(VerdictOf("[[listener]]\ntcp = \"" + std::string(tcp) + "\""), HasSubstr("needs mutual TLS"));
    EXPECT_THAT(VerdictOf("[admin]\nhttp = \"" + std::string(tcp) + "\""), HasSubstr("not loopback"));
  }
  for (const char* address : {"127.0.0.1", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1: 80", "127.0.0.1:65536", ":80",
                              "127.0.0.1:99999999999999999999", "::1:80", "127.0.0.1:80x"}) {
    EXPECT_FALSE(SplitAddress(address).has_value()) << address;
  }
}

TEST(CheckConfig, WhatIsWrongInTheFileAndOnTheMachineIsSaidTogether) {
  const std::string text = "threads = 0\n" + Tier("") + Tier("") + Listener("uds = \"/files/f\"");
  EXPECT_THAT(VerdictOf(text), AllOf(HasSubstr("threads = 0: out of range; allowed: 1 to 1024 (line 1)"),
                                     HasSubstr("tier[1].name = \"t\": another tier has this name"),
                                     HasSubstr("(line 8)"), HasSubstr("listener[0].uds")));
  // What could not be read is not judged as if it held its default.
  EXPECT_THAT(VerdictOf(Tier("") + Cold("relative", "1GiB")), Not(HasSubstr("disk")));
}

}  // namespace
}  // namespace firn
