// A setting is either in force or refused with its key, its value and what is allowed (case C62).
#include "daemon/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "base/status.h"

namespace firn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const ConfigPlaces kPlaces{"/state", "/run/x"};

absl::StatusOr<Config> Parse(std::string_view text) { return ParseConfig(text, "test.toml", kPlaces); }

std::string ErrorOf(std::string_view text) {
  auto config = Parse(text);
  EXPECT_FALSE(config.ok()) << text;
  return config.ok() ? "" : Message(config.status());
}

std::string Tier(const std::string& more, const std::string& capacity = "\"64MiB\"") {
  return "[[tier]]\nname = \"t\"\nmedium = \"dram\"\ncapacity = " + capacity + "\n" + more + "\n";
}

TEST(Config, ADeviceIsWhatLiesUnderDevButNotInSharedMemory) {
  EXPECT_TRUE(IsDevicePath("/dev/dax0.0"));
  EXPECT_FALSE(IsDevicePath("/dev/shm/cxl"));
  EXPECT_FALSE(IsDevicePath("/device/cxl"));
}

TEST(Config, AnEmptyFileIsTheDefault) {
  auto config = Parse("");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(*config, DefaultConfig(kPlaces));
  ASSERT_EQ(config->tiers.size(), 3u);
  EXPECT_EQ(config->tiers[2].path, "/state/cold");
  EXPECT_EQ(config->listeners[0].uds, "/run/x/firnd.sock");
}

// Where nobody looks for a key, nobody sets it.
TEST(Config, EveryKeyIsInTheExampleAndInTheManual) {
  auto text_of = [](const std::string& path) {
    std::ifstream in(std::string(FIRN_SOURCE_DIR) + "/" + path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string parser = text_of("daemon/config/parse.cc"), example = text_of("deploy/firnd.toml"),
                    manual = text_of("docs/configuration.md");
  static const std::regex asked(
      "\\.(?:String|Bytes|Duration|Count|Int|Share|Bool|Choice|Has|Sections?)\\(\"([a-z_]+)\"|Read(?:Precision|Ecc)"
      "\\(section, \"([a-z_]+)\"|std::pair\\{\"([a-z_]+)\"|\\{\"([a-z_]+)\", &chosen");
  std::set<std::string> keys;
  for (auto at = std::sregex_iterator(parser.begin(), parser.end(), asked); at != std::sregex_iterator(); ++at) {
    for (size_t i = 1; i < at->size(); ++i) {
      if ((*at)[i].matched) keys.insert((*at)[i]);
    }
  }
  EXPECT_GT(keys.size(), 50u);
  EXPECT_THAT(keys,
              testing::IsSupersetOf({"state_dir", "runtime_dir", "threads", "ecc", "least", "scrub", "interval"}));
  for (const std::string& key : keys) {
    EXPECT_TRUE(std::regex_search(example, std::regex("\\b" + key + " = |\\[" + key + "\\]"))) << key;
    EXPECT_TRUE(std::regex_search(manual, std::regex("`(\\[+)?" + key + "(\\]+)?`"))) << key;
  }
}

// What is in force is all there, also what is left out.
TEST(Config, ThePrintedDefaultSaysHowManyThreads) {
  EXPECT_THAT(PrintConfig(DefaultConfig(kPlaces)), testing::ContainsRegex("\n# One a core: threads = [0-9]+\n"));
  auto three = Parse("threads = 3\n");
  ASSERT_TRUE(three.ok());
  EXPECT_THAT(PrintConfig(*three), HasSubstr("\nthreads = 3\n"));
}

TEST(Config, DirectoriesInTheFileMoveTheDefaults) {
  auto config = Parse("state_dir = \"/elsewhere\"\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->tiers[2].path, "/elsewhere/cold");
}

TEST(Config, PrintedConfigReadsBackTheSame) {
  auto config = Parse(R"(
threads = 3
[[tier]]
name = "hot"
medium = "dram"
capacity = "1000000B"
numa_node = 1
precision = { k = "fp8", v = "int4" }
least = "int2"
high_watermark = 0.7
low_watermark = 0.5
on_memory_failure = "exit"
[[tier]]
name = "far"
medium = "cxl"
capacity = "2GiB"
path = "/dev/dax0.0"
precision = "int4"
[[listener]]
uds = "/tmp/a \"b\".sock"
mode = "0600"
tenant = "a.b"
[[listener]]
tcp = "10.0.0.1:80"
certificate = "/c"
private_key = "/k"
client_ca = "/a"
[limits]
put_idle = "1500ms"
[log]
level = "debug"
format = "json"
)");
  // 1,000,000 bytes are below the least capacity.
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(Message(config.status()), HasSubstr("tier[0].capacity = \"1000000B\": out of range; allowed: 1.00 MiB"));

  config = Parse(R"(
[[tier]]
name = "hot"
medium = "dram"
capacity = "3000001B"
numa_node = 1
precision = { k = "fp8", v = "int4" }
least = "int2"
high_watermark = 0.7
low_watermark = 0.5
on_memory_failure = "exit"
[[listener]]
uds = "/tmp/a \"b\".sock"
mode = "0600"
[[listener]]
tcp = "10.0.0.1:80"
certificate = "/c"
private_key = "/k"
client_ca = "/a"
[limits]
put_idle = "1500ms"
)");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->tiers[0].use_fp8);
  auto again = Parse(PrintConfig(*config));
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << PrintConfig(*config);
  EXPECT_EQ(*again, *config);
}

TEST(Config, TiersOnGpusReadBackAsTheyWere) {
  auto config = Parse(
      "[[tier]]\nname = \"g\"\nmedium = \"gpu:3\"\ncapacity = \"0B\"\nbackend = \"cpu\"\n"
      "staging = \"64MiB\"\nscratch = \"1GiB\"\n[[tier]]\nname = \"d\"\nmedium = \"dram\"\n"
      "capacity = \"1GiB\"\nprecision = \"int8\"\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->tiers[0].gpu_device, 3u);
  EXPECT_TRUE(config->tiers[0].gpu_is_cpu);
  EXPECT_EQ(config->tiers[0].capacity_bytes, 0u);
  auto again = Parse(PrintConfig(*config));
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << PrintConfig(*config);
  EXPECT_EQ(*again, *config);
}

TEST(Config, ErrorCorrectionReadsBackAsItWas) {
  const std::string tier = "[[tier]]\nname = \"t\"\nmedium = \"{}\"\ncapacity = \"1GiB\"\n{}ecc = \"{}\"\n";
  const struct {
    const char* medium;
    const char* words;
    EccPolicy policy;
  } cases[] = {
      {"dram", "none", EccPolicy()},
      {"dram", "secded", EccPolicy::Uniform(EccCode::kSecded)},
      {"dram", "graded", EccPolicy::Graded(EccCode::kSecded)},
      {"nvme", "graded", EccPolicy::Graded(EccCode::kReedSolomon)},
      {"nvme", "rs", EccPolicy::Uniform(EccCode::kReedSolomon)},
      {"dram", "p4=secded,meta=rs",
       EccPolicy().With(ProtectionClass::kMeta, EccCode::kReedSolomon).With(ProtectionClass::kP4, EccCode::kSecded)},
  };
  for (const auto& [medium, words, policy] : cases) {
    SCOPED_TRACE(words);
    const char* path = std::string_view(medium) == "nvme" ? "path = \"/cold\"\n" : "";
    auto config = Parse(fmt::format(fmt::runtime(tier), medium, path, words));
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->tiers[0].ecc, policy);
    auto again = Parse(PrintConfig(*config));
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << PrintConfig(*config);
    EXPECT_EQ(*again, *config);
  }
}

TEST(Config, ScrubbingReadsBackAsItWas) {
  auto config = Parse("[scrub]\nrate = \"0B\"\ninterval = \"36h\"\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->scrub.bytes_per_second, 0u);
  EXPECT_EQ(config->scrub.interval_ms, 36 * 3'600'000);
  auto again = Parse(PrintConfig(*config));
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << PrintConfig(*config);
  EXPECT_EQ(*again, *config);
}

struct Refused {
  const char* name;
  std::string text;
  std::vector<const char*> says;
};

TEST(Config, C62_settings_are_refused_with_key_value_and_range) {
  const Refused cases[] = {
      {"unknown key", Tier("capcity = \"1GiB\""), {"tier[0].capcity = \"1GiB\"", "unknown key", "capacity", "line 5"}},
      {"unknown root key", "tiers = 3", {"tiers = 3", "unknown key", "tier"}},
      {"unknown section", "[limit]\nkeys = 3", {"limit = ", "unknown key", "limits"}},
      {"no unit", Tier("", "\"64\""), {"tier[0].capacity = \"64\"", "nothing as its unit", "allowed: 1.00 MiB"}},
      {"a number", Tier("", "64"), {"tier[0].capacity = 64", "unit", "allowed: 1.00 MiB"}},
      {"zero", Tier("", "\"0GiB\""), {"tier[0].capacity = \"0GiB\"", "out of range", "allowed: 1.00 MiB"}},
      {"negative", Tier("", "\"-1GiB\""), {"tier[0].capacity = \"-1GiB\"", "negative"}},
      {"wrong unit", Tier("", "\"1Gib\""), {"tier[0].capacity = \"1Gib\"", "\"Gib\"", "GiB"}},
      {"three bits", Tier("precision = \"int3\""), {"tier[0].precision = \"int3\"", "allowed", "int4"}},
      {"least above", Tier("precision = \"int4\"\nleast = \"int8\""), {"tier[0].least = \"int8\"", "finer", "int4"}},
      {"two 8-bit classes", Tier("precision = { k = \"fp8\", v = \"int8\" }"), {"tier[0].precision", "not both"}},
      {"node", Tier("numa_node = \"0\""), {"tier[0].numa_node = \"0\"", "allowed: 0 to 1023"}},
      {"known", Tier("foo = 1"), {"tier[0].foo = 1", "numa_node", "path", "on_memory_failure"}},
      {"missing", "[[tier]]\nname = \"t\"\nmedium = \"dram\"", {"tier[0].capacity: missing", "allowed", "line 1"}},
      {"watermarks", Tier("low_watermark = 0.95"), {"tier[0].low_watermark = 0.95", "below high_watermark, 0.9"}},
      {"watermark range", Tier("high_watermark = 1.5"), {"tier[0].high_watermark = 1.5", "above 0 and at most 1"}},
      {"ecc", Tier("ecc = \"parity\""), {"tier[0].ecc = \"parity\"", "allowed: \"none\", \"secded\", \"rs\""}},
      {"ecc class", Tier("ecc = \"p2=rs\""), {"tier[0].ecc = \"p2=rs\"", "\"meta=rs,base=secded"}},
      {"ecc twice", Tier("ecc = \"p4=rs,p4=rs\""), {"tier[0].ecc"}},
      {"ecc empty", Tier("ecc = \"p4=rs,\""), {"tier[0].ecc"}},
      {"ecc of a GPU",
       "[[tier]]\nname=\"g\"\nmedium=\"gpu:0\"\ncapacity=\"1GiB\"\necc=\"graded\"",
       {"tier[0].ecc", "\"none\""}},
      {"scrub", "[scrub]\nrate = 5", {"scrub.rate = 5"}},
      {"scrub interval", "[scrub]\ninterval = \"1ms\"", {"scrub.interval = \"1ms\"", "1 s to"}},
      {"gpu",
       "[[tier]]\nname=\"g\"\nmedium=\"gpu:64\"\ncapacity=\"1GiB\"",
       {"tier[0].medium = \"gpu:64\"", "\"gpu:63\""}},
      {"gpu's own keys", Tier("staging = \"1GiB\""), {"tier[0].staging", "with \"gpu:N\""}},
      {"gpu's place",
       "[[tier]]\nname=\"g\"\nmedium=\"gpu:1\"\ncapacity=\"0B\"\nnuma_node=0\nbackend=\"rocm\"",
       {"tier[0].numa_node", "tier[0].backend = \"rocm\"", "cuda"}},
      {"medium", "[[tier]]\nname=\"g\"\nmedium=\"tape\"\ncapacity=\"1GiB\"", {"tier[0].medium = \"tape\"", "dram"}},
      {"no path", "[[tier]]\nname=\"g\"\nmedium=\"nvme\"\ncapacity=\"1GiB\"", {"tier[0].path", "missing"}},
      {"mode", "[[listener]]\nuds=\"/s\"\nmode=\"0666\"", {"listener[0].mode = \"0666\"", "0770"}},
      {"mode", "[[listener]]\nuds=\"/s\"\nmode=\"rw\"", {"listener[0].mode = \"rw\"", "allowed"}},
      {"both", "[[listener]]\nuds=\"/s\"\ntcp=\"127.0.0.1:1\"", {"listener[0].uds = \"/s\"", "either uds or tcp"}},
      {"tenant", "[[listener]]\nuds=\"/s\"\ntenant=\"a b\"", {"listener[0].tenant = \"a b\"", "letters"}},
      {"part of tls", "[[listener]]\ntcp=\"127.0.0.1:1\"\nclient_ca=\"/a\"", {"certificate", "all of"}},
      {"duration", "[limits]\nput_idle = 30", {"limits.put_idle = 30", "unit", "allowed: 100 ms to 3600 s"}},
      {"duration range", "[limits]\nread_stall = \"0s\"", {"limits.read_stall = \"0s\"", "out of range"}},
      {"count", "[limits]\nkeys = 0", {"limits.keys = 0", "allowed: 1 to 131072"}},
      {"level", "[log]\nlevel = \"loud\"", {"log.level = \"loud\"", "debug"}},
      {"type", "[store]\npromote_on_get = 1", {"store.promote_on_get = 1", "true, false"}},
      {"syntax", "[[tier]\n", {"line 1"}},
      {"empty string", "state_dir = \"\"", {"state_dir = \"\"", "empty"}},
      {"relative state_dir", "state_dir = \"x\"", {"state_dir = \"x\"", "allowed: an absolute path"}},
      {"relative runtime_dir", "runtime_dir = \"run/x\"", {"runtime_dir = \"run/x\"", "allowed: an absolute path"}},
  };
  for (const Refused& c : cases) {
    std::string error = ErrorOf(c.text);
    for (const char* part : c.says) EXPECT_THAT(error, HasSubstr(part)) << c.name;
  }
}

TEST(Config, EverythingWrongIsReportedAtOnce) {
  EXPECT_THAT(ErrorOf("threads = 0\nfoo = 1\n[log]\nlevel = \"x\"\n"),
              AllOf(HasSubstr("threads = 0"), HasSubstr("foo = 1"), HasSubstr("log.level")));
}

// A file may hold anything; what is shown of it on a terminal or in a log is text, and not all of a megabyte.
TEST(Config, MessagesArePrintableAndBounded) {
  EXPECT_THAT(ErrorOf("\"a\\u0000b\" = 1"), HasSubstr("a\\x00b = 1: unknown key"));
  EXPECT_THAT(ErrorOf("\"a\\u001b[31mb\\n\" = 1"), HasSubstr("a\\x1b[31mb\\x0a = 1"));
  EXPECT_THAT(ErrorOf(Tier("ecc = \"x\\u0000\\u009by\"")), HasSubstr("tier[0].ecc = \"x\\x00\\xc2\\x9by\""));
  EXPECT_LT(ErrorOf(std::string(100'000, 'a') + " = 1").size(), 1000u);
  EXPECT_LT(ErrorOf("[log]\nlevel = \"" + std::string(100'000, 'a') + "\"").size(), 1000u);
  std::string many;
  for (int i = 0; i < 2000; ++i) many += "k" + std::to_string(i) + " = 1\n";
  std::string error = ErrorOf(many);
  EXPECT_THAT(error, HasSubstr("... and 1900 more"));
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 100);
  EXPECT_EQ(Printable("a\xc3\xa4\xff", 100), "a\xc3\xa4\\xff");
  EXPECT_EQ(Printable("a\xc3\xa4", 2), "a... (3 bytes)") << "a character is shown whole or not at all";
}

// A directory, a device or a FIFO at the path is an error like any other, at start as on SIGHUP.
TEST(Config, OnlyARegularFileIsAConfiguration) {
  std::string fifo = testing::TempDir() + "/firn-config-fifo";
  unlink(fifo.c_str());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {std::string("/tmp"), std::string("/dev/zero"), fifo}) {
    auto config = LoadConfig(path, kPlaces);
    ASSERT_FALSE(config.ok()) << path;
    EXPECT_THAT(Message(config.status()), AllOf(HasSubstr("configuration: " + path + " is a"), HasSubstr("1048576")));
  }
  unlink(fifo.c_str());
}

TEST(Config, ReloadSaysWhatNeedsARestart) {
  Config now = DefaultConfig(kPlaces), next = now;
  next.log_level = "debug";
  next.shutdown_budget_ms = 5;
  EXPECT_TRUE(UnchangeableDifferences(now, next).empty());
  next.tiers[0].capacity_bytes *= 2;
  ASSERT_EQ(UnchangeableDifferences(now, next).size(), 1u);
  EXPECT_THAT(UnchangeableDifferences(now, next)[0], HasSubstr("[[tier]]"));
}

}  // namespace
}  // namespace firn
